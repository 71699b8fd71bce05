"""Servers and labs that lie: how far they get, and the parties that the others name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.secure_sum.sharing import UInt64, to_bytes
from aggregators.whole_file import write_whole
from site_agent.errors import SecureSumError
from site_agent.secure.lab import Lab
from site_agent.secure.messages import PartsBody, Post, ShareBody, ValuesBody
from site_agent.secure.party import read_session
from site_agent.secure.server import Server
from site_agent.secure.session import Session
from tests.site_agent.secure.parties import (
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
        (reason,) = {reason for reason in parties.reasons(session) if "blame:" in reason}
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
    reason = next(reason for reason in parties.reasons(session) if "blame:" in reason)
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
        # A late message does not bring the session back.
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
    assert [fault.parties for fault in written.faults] == ([] if withheld else [("server-2",)])
    assert written.weight == 6


class FalseResult(Server):
    """Signs another sum than was opened."""

    def say(self, view: Session, phase: str, body: Any, **rest: Any) -> None:
        if phase == "result":
            body = body.model_copy(update={"sum": "00" * 32})
        super().say(view, phase, body, **rest)


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
    assert [fault.parties for fault in error.value.faults] == [()]


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
