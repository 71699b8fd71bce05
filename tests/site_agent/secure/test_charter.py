"""Charters: required content, and acceptance by digest only."""

import base64
from pathlib import Path

import pytest

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
from site_agent.secure.server import Server
from tests.site_agent.secure.folder_board import FolderBoard


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
