"""Charters, ledgers and seals; inputs refused before anything is computed for them."""

import base64
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from aggregators.secure_sum.layout import BitBudget, decode_sum, encode
from aggregators.secure_sum.sharing import add_to
from pool_server.wire.signatures.keys import PrivateKey
from site_agent.errors import InvalidInputError
from site_agent.pool.signing import create_key
from site_agent.secure.charter import (
    Charter,
    accept_charter,
    create_charter,
    read_charter,
    require_accepted,
)
from site_agent.secure.party import create_session_key, open_share, seal_share
from site_agent.secure.server import Server
from site_agent.secure.session import new_descriptor, parse_descriptor
from site_agent.work.ledger import Ledger
from tests.site_agent.secure.folder_board import FolderBoard
from tests.site_agent.secure.parties import LAYOUT, create_parties


def _keys(*names: str) -> dict[str, str]:
    return {name: PrivateKey.generate().public.text for name in names}


def _charter(lab: str = "", **rules: int) -> Charter:
    labs = _keys("a", "b", "c")
    return create_charter("gaze", _keys("s1", "s2"), labs | ({"a": lab} if lab else {}), **rules)


def test_a_charter_is_accepted_by_its_whole_digest_or_words(tmp_path: Path) -> None:
    own_key = create_key(tmp_path, "a").key.public.text
    charter = _charter(own_key, weight_bits=10)
    (tmp_path / "charter.toml").write_bytes(charter.content)
    assert read_charter(tmp_path / "charter.toml").terms == charter.terms
    assert (charter.budget.weight, charter.terms.challenges, len(charter.labs)) == (10, 3, 3)
    with pytest.raises(InvalidInputError, match="was not accepted here"):
        require_accepted(tmp_path, charter.digest)
    # Sixteen digits were met by a forged charter after a search of minutes.
    short = charter.words.rpartition(" ")[0]
    for wrong in ("", charter.digest[:16], charter.digest[:63], short, _charter().digest):
        with pytest.raises(InvalidInputError, match="do not accept it"):
            accept_charter(tmp_path, charter, wrong)
    for right in (charter.digest.upper(), charter.groups, charter.words):
        accept_charter(tmp_path, charter, right)
    assert require_accepted(tmp_path, charter.digest).terms == charter.terms
    kept = tmp_path / "charters" / f"{charter.digest}.toml"
    kept.write_bytes(_charter().content)
    with pytest.raises(InvalidInputError, match="the file was changed"):
        require_accepted(tmp_path, charter.digest)


def test_the_words_of_a_digest_stand_for_its_bits() -> None:
    assert Charter(_charter().terms, "7f000001" * 8, b"").words == " ".join(["lusab babad"] * 8)


def test_comments_and_order_of_a_file_do_not_change_its_digest() -> None:
    charter = _charter()
    text = "# for the meeting\n" + charter.content.decode()
    assert Charter.parse(text.encode()).digest == charter.digest


def test_the_least_number_of_labs_grows_with_the_charter() -> None:
    keys = _keys("s1", "s2"), _keys(*(f"lab-{number}" for number in range(10)))
    assert create_charter("gaze", *keys).terms.least_labs == 7
    assert create_charter("gaze", *keys, least_labs=3).terms.least_labs == 3


def test_keys_of_small_order_and_charters_without_one_are_refused(tmp_path: Path) -> None:
    nothing = base64.b64encode(bytes([1]) + bytes(31)).decode()
    with pytest.raises(InvalidInputError, match="small order"):
        _charter(nothing)
    create_key(tmp_path, "z")
    charter = _charter()
    with pytest.raises(InvalidInputError, match="names no key in"):
        accept_charter(tmp_path, charter, charter.digest)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("least_labs = 3", "least_labs = 2"), "least_labs"),
        (("fraction_bits = 24", "fraction_bits = 26"), "at most 59"),
        (("lab_bits = 10", "lab_bits = 1"), "3 labs do not fit 1 bits"),
        (('name = "b"', 'name = "a"'), "share a name or a key"),
        (('name = "b"', 'name = "B b"'), r"labs\.1\.name"),
        (('key = "', 'key = "A'), r"servers\.0"),
        (('name = "gaze"', 'name = "gaze"\nspeed = 1'), "speed"),
        (("labs = [", "labs = "), "is not a charter: "),
    ],
)
def test_a_bad_charter_is_refused(change: tuple[str, str], problem: str) -> None:
    text = _charter().content.decode()
    assert change[0] in text
    with pytest.raises(InvalidInputError, match=problem):
        Charter.parse(text.replace(*change, 1).encode())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"#" * (1 << 21), "2,097,152 bytes, expected at most 1,048,576"),
    ],
)
def test_a_file_that_would_exhaust_its_reader_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        Charter.parse(content)


@pytest.mark.parametrize("name", ["fraction_bits", "magnitude_bits", "weight_bits", "lab_bits"])
def test_bits_are_bounded_before_they_are_used(name: str) -> None:
    with pytest.raises(InvalidInputError, match=name):
        _charter(**{name: 99_999_999})


def test_one_server_or_two_labs_make_no_charter() -> None:
    for servers, labs in (
        (_keys("s1"), _keys("a", "b", "c")),
        (_keys("s1", "s2"), _keys("a", "b")),
    ):
        with pytest.raises(InvalidInputError, match="at least"):
            create_charter("gaze", servers, labs)


def test_a_party_with_another_key_than_the_charter_says_is_refused(tmp_path: Path) -> None:
    charter = _charter(create_key(tmp_path, "a").key.public.text)
    accept_charter(tmp_path, charter, charter.digest)
    create_key(tmp_path, "s1")
    with pytest.raises(InvalidInputError, match="do not include 's1' with the key"):
        Server(tmp_path, "s1", charter.digest, FolderBoard(tmp_path / "board"))


def test_a_line_that_was_cut_off_is_dropped_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "party" / "ledger.jsonl"
    ledger = Ledger(path)
    with ledger.at_work():
        ledger.append({"kind": "post", "phase": "tag", "session": "1"})
        ledger.append({"kind": "post", "phase": "tag", "session": "2"})
    whole = path.read_bytes()
    for cut in range(len(whole) // 2 + 1, len(whole)):
        path.write_bytes(whole[:cut])
        with ledger.at_work():
            assert [entry["session"] for entry in ledger.find("post", phase="tag")] == ["1"]
            ledger.append({"kind": "base", "digest": "x"})
        assert len(path.read_bytes().splitlines()) == 2
    assert path.stat().st_mode & 0o077 == 0


def test_a_damaged_ledger_is_not_used(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.path.write_bytes(b'{"kind": "post"\n{"kind": "base"}\n')
    with pytest.raises(InvalidInputError, match="the ledger is damaged"), ledger.at_work():
        pass


def test_a_seal_opens_for_its_key_and_context_only() -> None:
    private, public = create_session_key()
    sealed = seal_share(b"share", public, "session", "lab-a", "server-1")
    assert open_share(sealed, private, "session", "lab-a", "server-1") == b"share"
    assert seal_share(b"share", public, "session", "lab-a", "server-1") != sealed
    altered = bytes([*sealed[:-1], sealed[-1] ^ 1])
    for content, key, context in (
        (altered, private, ("session", "lab-a", "server-1")),
        (sealed, create_session_key()[0], ("session", "lab-a", "server-1")),
        (sealed, private, ("session", "lab-b", "server-1")),
        (sealed, private, ("session", "lab-a", "server-2")),
        (sealed[:20], private, ("session", "lab-a", "server-1")),
    ):
        with pytest.raises(ValueError, match="the seal does not open"):
            open_share(content, key, *context)


class TestLimits:
    """A message that is cheap to send must not take minutes to check."""

    def test_a_small_descriptor_of_a_huge_sum_is_refused_before_anything_is_made_of_it(
        self, tmp_path: Path
    ) -> None:
        charter = create_parties(tmp_path, servers=2, labs=3).charter
        good = new_descriptor(charter, LAYOUT, 1_000_000.0).model_dump(mode="json")
        for layout in (
            {"kind": "leaf-sums", "base_digest": "ab" * 32, "leaves": 2**31, "parts": 1},
            {"kind": "leaf-presence", "base_digest": "ab" * 32, "leaves": 2**31},
            {
                "kind": "network", "base_digest": "ab" * 32,
                "entries": [{"name": "steps", "dtype": "I64", "shape": [2**31, 2**31]}],
            },
            {
                "kind": "network", "base_digest": "ab" * 32,
                "entries": [{"name": "w", "dtype": "F32", "shape": [2**31]}],
            },
        ):  # fmt: skip
            tracemalloc.start()
            with pytest.raises(InvalidInputError):
                parse_descriptor(json.dumps(good | {"layout": layout}).encode(), charter)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 2**20

    def test_the_deadlines_are_those_of_the_charter(self, tmp_path: Path) -> None:
        parties = create_parties(tmp_path, servers=2, labs=3)
        descriptor = new_descriptor(parties.charter, LAYOUT, parties.clock.now)
        hurried = descriptor.deadlines.model_copy(update={"tag": descriptor.deadlines.commit + 60})
        content = descriptor.model_copy(update={"deadlines": hurried}).to_bytes()
        with pytest.raises(InvalidInputError, match=r"until tag; the charter gives 48 h"):
            parse_descriptor(content, parties.charter)
        late = new_descriptor(parties.charter, LAYOUT, parties.clock.now + 90 * 24 * 3600)
        session = parties.board.open_session(late.to_bytes())
        parties.serve(session)
        with pytest.raises(InvalidInputError, match="for longer than the charter's 48 h"):
            parties.lab("lab-0").share(session, LAYOUT, parties.numbers("lab-0"))

    def test_a_share_that_is_too_large_is_not_fetched(self, tmp_path: Path) -> None:
        parties = create_parties(tmp_path, servers=2, labs=3)
        session = parties.open()
        parties.serve(session)
        parties.share(session)
        large = next(parties.folder.rglob("blobs/*"))
        large.write_bytes(large.read_bytes() + bytes(10_000))
        parties.serve(session)
        receipts = parties.view(session)._messages["receipt"]
        refused = [item.body.refused for signed in receipts.values() for item in signed.values()]  # type: ignore[union-attr]
        assert any("too large" in reason for one in refused for reason in one.values())

    def test_a_sum_that_some_lab_made_without_samples_is_no_result(self) -> None:
        budget = BitBudget()
        vectors = [
            encode(np.full((1, 2), 0.5), np.array([weight], dtype=np.int64), budget)
            for weight in (0, 1, 1)
        ]
        total = vectors[0] * 0
        for vector in vectors:
            add_to(total, vector)
        assert decode_sum(total, 1, 3, budget)[1] == 2
        with pytest.raises(ValueError, match="sums of weights from 2 to 2, expected 3 to"):
            decode_sum(total, 1, 3, budget, 1)
