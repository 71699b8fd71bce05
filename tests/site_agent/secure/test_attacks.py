"""Parties and boards that cheat: how far they get, and whom the others name."""

from __future__ import annotations

import base64
import json
import os
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.models import StateDict
from aggregators.secure_sum.layout import BitBudget, decode_sum, encode, network_layout
from aggregators.secure_sum.sharing import UInt64, add_to, explicit_server, to_bytes
from aggregators.whole_file import write_whole
from site_agent.errors import ConflictError, InvalidInputError, SecureSumError
from site_agent.secure.board import read_session
from site_agent.secure.contributions import (
    encode_leaf_presence,
    encode_leaf_sums,
    read_presence,
)
from site_agent.secure.lab import Lab, RosterPolicy
from site_agent.secure.messages import CommitBody, PartsBody, Post, ShareBody, ValuesBody
from site_agent.secure.server import Server
from site_agent.secure.session import Fault, Session, new_descriptor, parse_descriptor
from tests.pool_server.rounds.round_driver import base_model, contribution_bytes
from tests.site_agent.secure.parties import (
    BASE,
    LAYOUT,
    AlteringBoard,
    Parties,
    create_parties,
    signed_again,
)


def flipped(numbers: UInt64) -> UInt64:
    altered = numbers.copy()
    altered[3] ^= np.uint64(1)
    return altered


class AltersBeforeCommit(Server):
    """Adds a share with one bit flipped, and is honest about single shares afterwards."""

    def _share(self, view: Session, lab: str, body: Any) -> UInt64:
        share = super()._share(view, lab, body)
        return flipped(share) if (lab, view.phase) == ("lab-1", "commit") else share


class LiesConsistently(Server):
    """Always uses the flipped share."""

    def _share(self, view: Session, lab: str, body: Any) -> UInt64:
        share = super()._share(view, lab, body)
        return flipped(share) if lab == "lab-1" else share


class AltersAfterCommit(Server):
    """Opens another sum than it committed to."""

    def _open(self, view: Session) -> bool:
        path = self.secrets(view.session) / "sum"
        write_whole(path, to_bytes(flipped(self._sum(view))))
        return super()._open(view)


class FalseCheck(Server):
    """Posts a wrong check value."""

    def say(self, view: Session, phase: str, body: Any, **rest: Any) -> None:
        if phase == "check":
            body = ValuesBody(values=(1, 2, 3))
        super().say(view, phase, body, **rest)


@pytest.mark.parametrize(
    ("server", "phase", "kind", "named"),
    [
        (AltersBeforeCommit, "blame", "proof", {"server-1"}),
        (FalseCheck, "blame", "proof", {"server-1"}),
        (LiesConsistently, "blame", "pair", {"server-1", "lab-1"}),
        (AltersAfterCommit, "opening", "proof", {"server-1"}),
    ],
)
def test_a_server_that_alters_a_share_is_found(
    folder: Path, server: type[Server], phase: str, kind: str, named: set[str]
) -> None:
    parties = create_parties(folder, labs=3)
    parties.servers["server-1"] = server
    session = parties.open()
    parties.up_to("complete", session)
    parties.tag(session)  # in the blame phase, to answer
    parties.serve(session)
    if phase == "blame":
        (reason,) = {each for each in parties.reasons(session) if "blame:" in each}
        assert {name for name in _members(parties) if name in reason} == named
        assert ("one of them lied" in reason) == (kind == "pair")
        assert parties.view(session).is_void
        return
    with pytest.raises(SecureSumError, match="server-1 opened something else") as error:
        parties.lab("lab-0").finish(session, folder / "result", "full")
    (fault,) = error.value.faults
    assert (fault.phase, fault.kind, set(fault.parties)) == (phase, kind, named)
    with pytest.raises(SecureSumError, match="waits for"):
        parties.lab("lab-0").finish(session, folder / "result")


def _members(parties: Parties) -> list[str]:
    return [*parties.charter.servers, *parties.charter.labs]


@pytest.mark.parametrize("answers", ["honestly", "to fit its tag", "not at all"])
def test_a_lab_with_a_false_tag_is_found(folder: Path, answers: str) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.up_to("tag", session)
    view = parties.view(session)
    lab = parties.lab("lab-2")
    with lab.ledger.at_work():
        facts = {"input": "", "roster": sorted(view.roster)}
        lab.say(view, "tag", ValuesBody(values=(5, 6, 7)), **facts)
    parties.tag(session, "lab-0", "lab-1")
    parties.serve(session)
    view = parties.view(session)
    assert (view.phase, view.has("blame"), view.is_void) == ("blame", True, False)
    parties.tag(session, "lab-0", "lab-1")  # they are not asked
    if answers == "honestly":
        lab.visit(session)
    elif answers == "to fit its tag":
        parts = dict.fromkeys(parties.charter.servers, (0, 0, 0))
        with lab.ledger.at_work():
            lab.say(view, "answer", PartsBody(parts={**parts, "server-0": (5, 6, 7)}))
    else:
        parties.serve(session)
        assert not parties.reasons(session)  # it has time to answer
        parties.clock.pass_hours(300)
    parties.serve(session)
    reason = next(each for each in parties.reasons(session) if "blame:" in each)
    assert "lab-2" in reason
    assert "lab-0" not in reason
    assert "lab-1" not in reason
    assert ("one of them lied" in reason) == (answers == "to fit its tag")
    assert ("did not answer" in reason) == (answers == "not at all")


@pytest.mark.parametrize("body", [{}, {"values": [1, 2]}, {"values": [1, 2, 2**61 - 1]}])
def test_a_lab_that_signs_no_tag_is_named(folder: Path, body: dict[str, object]) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.up_to("tag", session)
    parties.tag(session)
    board = AlteringBoard(
        parties.board,
        lambda posts: [
            signed_again(x, parties.key("lab-1"), body=body)
            if (x.phase, x.sender) == ("tag", "lab-1")
            else x
            for x in posts
        ],
    )
    (fault,) = read_session(board, session, parties.charter).faults
    assert (fault.phase, fault.kind, fault.parties) == ("tag", "proof", ("lab-1",))
    parties.server("server-0", board).act(session)
    assert any("tag: lab-1 signed" in reason for reason in parties.reasons(session))


class Silent(Server):
    """Does not post in one phase."""

    phase = ""

    def _step(self, view: Session) -> bool:
        return False if view.phase == self.phase and not view.faults else super()._step(view)


@pytest.mark.parametrize("phase", ["keys", "receipt", "commit", "check", "opening"])
def test_a_server_that_withholds_is_named(folder: Path, phase: str) -> None:
    parties = create_parties(folder, labs=3)
    parties.servers["server-2"] = type("SilentInOnePhase", (Silent,), {"phase": phase})
    session = parties.open()
    parties.serve(session)
    if phase != "keys":
        parties.share(session)
        parties.serve(session)
    if phase in ("check", "opening"):
        parties.tag(session)
        parties.serve(session)
    assert (parties.view(session).phase, parties.view(session).waiting) == (phase, ("server-2",))
    parties.clock.pass_hours(300)
    parties.serve(session, "server-0", "server-1")
    if phase == "opening":
        # They have opened: nothing but the same labs with the same numbers can follow.
        assert not parties.reasons(session)
        assert not parties.server("server-0").declare_void(session, "give up")
    else:
        text = f"{phase}: server-2 did not post in time"
        assert any(text in reason for reason in parties.reasons(session))
        assert not parties.view(session).is_void
        # What it posts late does not bring the session back.
        parties.servers.clear()
        parties.serve(session)
        assert parties.view(session).is_void
        assert "opening" not in {post.phase for post in parties.board.posts(session)}


@pytest.mark.parametrize("withheld", [True, False])
def test_a_result_that_is_withheld_or_false_does_not_stop_who_verifies_in_full(
    folder: Path, withheld: bool
) -> None:
    parties = create_parties(folder, labs=3)
    silent = type("SilentInOnePhase", (Silent,), {"phase": "result"})
    parties.servers["server-2"] = silent if withheld else FalseResult
    session = parties.open()
    parties.up_to("complete", session)
    lab = parties.lab("lab-0")
    problem = "waits for server-2" if withheld else "signed different results"
    with pytest.raises(SecureSumError, match=problem):
        lab.finish(session, folder / "result")
    written = lab.finish(session, folder / "result", "full")
    assert [each.parties for each in written.faults] == ([] if withheld else [("server-2",)])
    assert written.weight == 6


class FalseResult(Server):
    """Signs another sum than was opened."""

    def say(self, view: Session, phase: str, body: Any, **rest: Any) -> None:
        if phase == "result":
            body = body.model_copy(update={"sum": "00" * 32})
        super().say(view, phase, body, **rest)


class _AlteringFiles(AlteringBoard):
    """A board that flips a bit of every file that it gives."""

    def get_blob(self, session: str, digest: str, target: Path, most_bytes: int) -> None:
        self._board.get_blob(session, digest, target, most_bytes)
        content = bytearray(target.read_bytes())
        content[40] ^= 1
        target.write_bytes(content)


def test_files_that_the_board_alters_are_not_used(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session)
    altering = _AlteringFiles(parties.board, lambda posts: posts)
    explicit = {lab: explicit_server(session, lab, (*parties.charter.servers,)) for lab in
                parties.charter.labs}  # fmt: skip
    server = explicit["lab-0"]
    parties.server(server, altering).act(session)
    parties.serve(session)
    assert sorted(parties.view(session).roster) == [x for x in explicit if explicit[x] != server]
    parties.clock.pass_hours(300)
    parties.serve(session)
    other = parties.open(attempt=2)
    parties.up_to("complete", other)
    for mode in ("servers", "full"):
        with pytest.raises(SecureSumError, match="the board gives another file") as error:
            parties.lab("lab-0", altering).finish(other, folder / "result", mode)
        assert error.value.faults[0].parties == ()
    assert parties.lab("lab-0").finish(other, folder / "result").weight == 10


def test_a_lab_that_does_not_tag_is_named_and_a_smaller_roster_works(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.up_to("tag", session)
    parties.tag(session, "lab-0", "lab-1", "lab-2")
    parties.serve(session)
    assert parties.view(session).waiting == ("lab-3",)
    others = parties.open(attempt=2, labs=["lab-0", "lab-1", "lab-2"])
    parties.serve(others)
    parties.share(others, "lab-0", "lab-1", "lab-2")
    # The first session may still be opened, so the roster must not change: servers refuse.
    parties.serve(others)
    assert any("another roster" in reason for reason in parties.reasons(others))
    parties.clock.pass_hours(300)
    parties.serve(session)
    assert parties.view(session).is_void
    assert any("tag: lab-3 did not post in time" in each for each in parties.reasons(session))
    again = parties.open(attempt=3, labs=["lab-0", "lab-1", "lab-2"])
    parties.serve(again)
    parties.share(again, "lab-0", "lab-1", "lab-2")
    parties.serve(again)
    parties.tag(again, "lab-0", "lab-1", "lab-2")
    parties.serve(again)
    assert parties.lab("lab-1").finish(again, folder / "result", "full").weight == 6


def test_labs_do_not_tag_a_second_roster(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.up_to("complete", session)
    again = parties.open(attempt=2, labs=["lab-0", "lab-1", "lab-2"])
    for name in parties.charter.servers:  # all servers forget: they are at fault together
        (folder / name / "ledger.jsonl").unlink()
    parties.serve(again)
    parties.share(again, "lab-0", "lab-1", "lab-2")
    parties.serve(again)
    with pytest.raises(ConflictError, match="had other labs"):
        parties.lab("lab-0").visit(again)
    parties.clock.pass_hours(300)
    parties.serve(again)
    other = parties.open(attempt=3)
    parties.serve(other)
    with pytest.raises(ConflictError, match="had other numbers"):
        parties.lab("lab-0").share(other, LAYOUT, parties.numbers("lab-1"))
    same = parties.open(attempt=4)
    parties.up_to("complete", same)
    assert parties.view(same).phase == "complete"


def test_a_roster_of_too_few_labs_is_not_summed(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session, "lab-0")
    parties.clock.pass_hours(49)
    parties.serve(session)
    assert any(
        "receipt: all servers received 1 labs; the charter asks for 3" in reason
        for reason in parties.reasons(session)
    )
    assert parties.view(session).is_void


def test_messages_of_another_session_count_for_nothing(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    first, second = parties.open(), parties.open(attempt=2)
    parties.serve(first)
    parties.share(first)
    for post in parties.board.posts(first):
        parties.board.post(second, post.phase, post.sender, post.envelope)
    view = parties.view(second)
    assert (view.phase, view.rejected) == ("keys", 6)
    assert not parties.lab("lab-0").share(second, LAYOUT, parties.numbers("lab-0"))


def _second_commit(parties: Parties) -> Callable[[Post], Post]:
    key = parties.key("server-2")
    body = CommitBody(commitment="00" * 32).model_dump()
    return lambda post: signed_again(post, key, body=body)


def _is_commit(post: Post) -> bool:
    return (post.phase, post.sender) == ("commit", "server-2")


def test_two_signed_commits_prove_who_signed_them(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.up_to("tag", session)
    again = _second_commit(parties)

    def both(posts: list[Post]) -> list[Post]:
        return [*posts, *(again(post) for post in posts if _is_commit(post))]

    board = AlteringBoard(parties.board, both)
    with pytest.raises(SecureSumError, match="server-2 signed 2 different messages") as error:
        parties.lab("lab-0", board).visit(session)
    assert error.value.faults == (
        Fault("commit", "proof", ("server-2",), "server-2 signed 2 different messages"),
    )
    parties.server("server-0", board).act(session)
    assert parties.reasons(session) == {"commit: server-2 signed 2 different messages"}


def test_a_lab_that_is_shown_another_commit_stops_the_sum(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.up_to("tag", session)
    again = _second_commit(parties)
    board = AlteringBoard(
        parties.board, lambda posts: [again(x) if _is_commit(x) else x for x in posts]
    )
    parties.lab("lab-0", board).visit(session)
    with pytest.raises(SecureSumError, match="states other messages of server-2") as error:
        parties.tag(session, "lab-1")
    (fault,) = error.value.faults
    assert (fault.phase, fault.kind, fault.parties) == ("tag", "pair", ("lab-0", "server-2"))
    parties.serve(session)
    assert parties.view(session).is_void


def test_keys_that_the_board_swaps_are_not_used(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.serve(session)
    forger = parties.key("lab-2")
    body = {"hpke": base64.b64encode(os.urandom(32)).decode()}

    def swapped(posts: list[Post]) -> list[Post]:
        return [signed_again(x, forger, body=body) if x.sender == "server-0" else x for x in posts]

    board = AlteringBoard(parties.board, swapped)
    assert not parties.lab("lab-0", board).share(session, LAYOUT, parties.numbers("lab-0"))
    view = read_session(board, session, parties.charter)
    assert (view.phase, view.waiting, view.rejected) == ("keys", ("server-0",), 1)
    # A server that signs two keys: its labs shared for one of them, the servers see the other.
    again = AlteringBoard(
        parties.board,
        lambda posts: [
            signed_again(x, parties.key("server-0"), body=body) if x.sender == "server-0" else x
            for x in posts
        ],
    )
    assert parties.lab("lab-0", again).share(session, LAYOUT, parties.numbers("lab-0"))
    parties.share(session, "lab-1", "lab-2")
    parties.serve(session)
    assert any("received 2 labs" in reason for reason in parties.reasons(session))


def test_labs_that_the_board_invents_are_not_counted(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session, "lab-0", "lab-1")
    own = next(post for post in parties.board.posts(session) if post.sender == "lab-0")
    for name in ("lab-3", "lab-9"):
        made = signed_again(
            Post(session, "share", name, own.envelope), parties.key("lab-0"), sender=name
        )
        parties.board.post(session, "share", name, made.envelope)
    parties.clock.pass_hours(49)
    parties.serve(session)
    assert any("received 2 labs" in reason for reason in parties.reasons(session))


def test_labs_that_are_hidden_from_one_server_are_left_out(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session)
    hiding = AlteringBoard(
        parties.board, lambda posts: [x for x in posts if (x.phase, x.sender) != ("share", "lab-3")]
    )
    parties.clock.pass_hours(49)
    parties.server("server-1", hiding).act(session)
    parties.serve(session)
    assert sorted(parties.view(session).roster) == ["lab-0", "lab-1", "lab-2"]
    with pytest.raises(SecureSumError, match="server-1 did not receive: no share arrived"):
        parties.lab("lab-3").visit(session)
    parties.tag(session, "lab-0", "lab-1", "lab-2")
    parties.serve(session)
    assert parties.lab("lab-0").finish(session, folder / "result", "full").weight == 6


@pytest.mark.parametrize("garbage", ["seed", "share", "file"])
def test_a_lab_with_garbage_seals_is_left_out(folder: Path, garbage: str) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session, "lab-0", "lab-1", "lab-2")
    assert _Garbled.of(parties, garbage).share(session, LAYOUT, parties.numbers("lab-3"))
    parties.serve(session)
    assert sorted(parties.view(session).roster) == ["lab-0", "lab-1", "lab-2"]
    with pytest.raises(SecureSumError, match=r"did not receive: (the seal does not open|number 3)"):
        parties.lab("lab-3").visit(session)


class _Garbled(Lab):
    what = ""

    @classmethod
    def of(cls, parties: Parties, what: str) -> _Garbled:
        made = cls(parties.folder / "lab-3", "lab-3", parties.charter.digest, parties.board)
        made.what, made.clock = what, parties.clock
        return made

    def _seal(self, view: Session, server: str, content: bytes) -> bytes:
        if self.what == "file" and len(content) > 32:
            content = content[:24] + b"\xff" * 8 + content[32:]
        sealed = super()._seal(view, server, content)
        is_seed = len(content) == 32
        return (
            bytes(len(sealed))
            if is_seed == (self.what == "seed") and self.what != "file"
            else sealed
        )


def test_a_lab_that_is_gone_after_its_tag_is_summed(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.up_to("tag", session)
    parties.tag(session)
    (folder / "lab-0" / "ledger.jsonl").unlink()
    parties.serve(session)
    assert parties.lab("lab-1").finish(session, folder / "result").weight == 6


def test_a_sum_out_of_range_is_refused_without_naming_anyone(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.serve(session)
    parties.share(session, "lab-0", "lab-1")
    numbers = parties.numbers("lab-2")
    numbers[0] = 2**58
    assert parties.lab("lab-2").share(session, LAYOUT, numbers)
    parties.serve(session)
    parties.tag(session)
    parties.serve(session)
    with pytest.raises(SecureSumError, match="some lab gave an input out of range") as error:
        parties.lab("lab-0").finish(session, folder / "result", "full")
    assert [each.parties for each in error.value.faults] == [()]


def test_a_server_opens_once_whatever_the_board_shows_later(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.up_to("complete", session)
    before = (folder / "server-0" / "ledger.jsonl").read_bytes()
    for drop in ("opening", "check", "tag", "commit"):
        board = AlteringBoard(
            parties.board, lambda posts, drop=drop: [x for x in posts if x.phase != drop]
        )
        parties.server("server-0", board).act(session)
    assert (folder / "server-0" / "ledger.jsonl").read_bytes() == before


def test_a_server_does_not_open_what_it_declared_void(folder: Path) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    parties.up_to("tag", session)
    hidden = AlteringBoard(parties.board, lambda posts: [x for x in posts if x.phase != "void"])
    for name in parties.charter.servers:
        assert parties.server(name, hidden).declare_void(session, "asked by its operator")
    parties.tag(session)  # the labs see the certificate
    assert parties.view(session).is_void
    for name in parties.charter.servers:
        parties.server(name, hidden).act(session)
    phases = {post.phase for post in parties.board.posts(session)}
    assert phases == {"keys", "share", "receipt", "commit", "void"}


def test_a_share_message_for_other_servers_is_left_out(folder: Path) -> None:
    parties = create_parties(folder)
    session = parties.open()
    parties.serve(session)
    parties.share(session)
    board = AlteringBoard(parties.board, lambda posts: [_misdirected(x, parties) for x in posts])
    view = read_session(board, session, parties.charter)
    assert sorted(view.shares) == ["lab-0", "lab-1", "lab-2"]


def _misdirected(post: Post, parties: Parties) -> Post:
    if (post.phase, post.sender) != ("share", "lab-3"):
        return post
    body = ShareBody(seeds={}, server="server-0", blob="00" * 32).model_dump()
    return signed_again(post, parties.key("lab-3"), body=body)


class TestRosters:
    """Who is summed together is for each lab to decide, not for those who open the session."""

    @pytest.fixture
    def parties(self, tmp_path: Path) -> Parties:
        return create_parties(tmp_path, servers=2, labs=5, least_labs=3)

    def test_two_labs_cannot_isolate_a_third_in_a_session_of_their_own(
        self, parties: Parties
    ) -> None:
        session = parties.open(labs=("lab-0", "lab-1", "lab-2"))
        parties.serve(session)
        victim, labs = parties.lab("lab-2"), [f"lab-{number}" for number in range(5)]
        with pytest.raises(InvalidInputError, match=r"invites lab-0, lab-1, lab-2, expected lab-0"):
            victim.share(session, LAYOUT, parties.numbers("lab-2"), labs)
        assert not parties.view(session).posted("share", "lab-2")

    @pytest.mark.parametrize(
        ("policy", "words"),
        [
            (RosterPolicy(least_others=4), "this lab asks for 4 others"),
            (RosterPolicy(insists_on=frozenset({"lab-3"})), "this lab insists on lab-3"),
        ],
    )
    def test_a_lab_tags_no_roster_that_its_policy_forbids(
        self, parties: Parties, policy: RosterPolicy, words: str
    ) -> None:
        session = parties.open()
        parties.serve(session)
        parties.share(session, "lab-0", "lab-1", "lab-2", "lab-4")
        parties.clock.pass_hours(49)
        parties.serve(session)
        shown: list[Sequence[str]] = []
        with pytest.raises(ConflictError, match=words):
            parties.lab("lab-0").visit(session, policy, shown.append)
        assert (parties.lab("lab-0").has_said(session, "tag"), shown) == (False, [])
        parties.lab("lab-1").visit(session, RosterPolicy(least_others=3), shown.append)
        assert shown == [["lab-0", "lab-1", "lab-2", "lab-4"]]

    def test_leaves_are_summed_over_the_labs_that_were_counted(
        self, parties: Parties, tmp_path: Path
    ) -> None:
        """Three labs reach a leaf; two of them stay away from its sum, which shows the third."""
        budget, base = parties.charter.budget, base_model(8)
        files = {}
        for number in range(5):
            files[f"lab-{number}"] = tmp_path / f"{number}.contribution"
            files[f"lab-{number}"].write_bytes(contribution_bytes(base, number))
        present = {name: encode_leaf_presence(file, budget) for name, file in files.items()}
        counted = read_presence(parties.sum_of(present, tmp_path / "counted"))
        few = {
            name: encode_leaf_sums(files[name], counted, 3, budget)
            for name in ("lab-0", "lab-1", "lab-2")
        }
        with pytest.raises(ConflictError, match="were counted among lab-0, lab-1, lab-2, lab-3"):
            parties.sum_of(few, tmp_path / "summed")
        parties.clock.pass_hours(200)
        for session in parties.board.sessions():
            parties.serve(session)  # given up, as nobody has tagged it
        all_of_them = {
            name: encode_leaf_sums(file, counted, 3, budget) for name, file in files.items()
        }
        assert parties.sum_of(all_of_them, tmp_path / "summed").is_file()


def test_equal_weights_in_two_files_are_one_subject() -> None:
    """Else {a, b, c, d} on one file less {a, b, c} on the other is what d gave."""
    other = StateDict(BASE.tensors, BASE.infos, {"note": "the same weights"})
    first, second = network_layout(BASE, "ab" * 32), network_layout(other, "cd" * 32)
    assert first.digest != second.digest
    assert first.subject == second.subject
    moved = dict(BASE.tensors) | {"weight": np.asarray(BASE.tensors["weight"]) + 1}
    assert network_layout(StateDict(moved, BASE.infos), "ab" * 32).subject != first.subject


def test_a_second_sum_of_equal_weights_over_fewer_labs_is_given_up(
    tmp_path: Path,
) -> None:
    parties = create_parties(tmp_path, servers=2, labs=4)
    session = parties.open()
    parties.up_to("complete", session)
    same = LAYOUT.model_copy(update={"base_digest": "cd" * 32})
    descriptor = new_descriptor(parties.charter, same, parties.clock.now)
    second = parties.board.open_session(descriptor.to_bytes())
    parties.serve(second)
    names = ("lab-0", "lab-1", "lab-2")
    for name in names:
        parties.lab(name).approve_base("cd" * 32)
        assert parties.lab(name).share(second, same, parties.numbers(name))
    parties.clock.pass_hours(49)
    parties.serve(second)
    # The servers remember, as each lab would.
    assert any(each.endswith(_SAME_SUM) for each in parties.reasons(second))
    assert not parties.view(second).posted("opening", "server-0")


_SAME_SUM = "of the same sum has another roster and is not void"


class TestLimits:
    """What costs a sentence to send must not cost minutes to look at."""

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
        refused = [each.body.refused for signed in receipts.values() for each in signed.values()]  # type: ignore[union-attr]
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
