"""Labs and servers in processes of their own: one is killed at a chosen moment."""

import contextlib
import itertools
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.methods.networks.round_files import read_network_contribution
from site_agent.errors import ConflictError, SecureSumError
from site_agent.secure.lab import Lab
from site_agent.secure.server import Server
from tests.site_agent.secure.folder_board import FolderBoard
from tests.site_agent.secure.parties import LAYOUT, Parties, contribution, create_parties
from tests.site_agent.secure.test_lying_members import AltersBeforeCommit

MOMENTS = ("before it is in the ledger", "before it is posted", "after it is posted")
SERVER_PHASES = ("keys", "receipt", "commit", "check", "opening", "result")
LAB_PHASES = ("share", "tag")


class _KillingBoard(FolderBoard):
    """A board in a folder, at which this process is killed."""

    def __init__(self, folder: Path, phase: str, moment: str) -> None:
        super().__init__(folder)
        self.phase, self.moment = phase, moment

    def post(self, session: str, phase: str, sender: str, envelope: bytes) -> None:
        self.reach(phase, MOMENTS[1])
        super().post(session, phase, sender, envelope)
        self.reach(phase, MOMENTS[2])

    def reach(self, phase: str, moment: str) -> None:
        if (phase, moment) == (self.phase, self.moment):
            os.kill(os.getpid(), signal.SIGKILL)


def _run(parties: Parties, session: str, name: str, phase: str, moment: str) -> None:
    """Take part in a session until it ends; in a process of its own."""
    board = _KillingBoard(parties.folder / "board", phase, moment)
    party = parties.server(name, board) if "server" in name else parties.lab(name, board)
    append = party.ledger.append

    def killed_append(entry: Any) -> None:
        board.reach(entry.get("phase", ""), MOMENTS[0])
        append(entry)

    party.ledger.append = killed_append  # type: ignore[method-assign]
    view = party.act(session) if isinstance(party, Server) else party.review(session)
    while view.phase != "complete" and not view.is_void:
        time.sleep(0.02)
        if isinstance(party, Server):
            view = party.act(session)
            continue
        view = party.review(session)
        with contextlib.suppress(SecureSumError, ConflictError):
            if party.share(session, LAYOUT, parties.numbers(name)):
                view = party.visit(session)
    if isinstance(party, Lab) and view.phase == "complete":
        party.finish(session, parties.folder / f"{name}.result", "full")


@contextmanager
def _running(
    parties: Parties, session: str, killed: str, phase: str, moment: str
) -> Iterator[None]:
    """Run all parties until the session ends; start the killed one again."""
    # Forks of a process without threads need not load numba again, and hold no lock of a thread.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "tests.site_agent.secure.compiled_sums"])
    children: dict[str, BaseProcess] = {}

    def start(name: str, *where: str) -> None:
        children[name] = context.Process(target=_run, args=(parties, session, name, *where))
        children[name].start()

    try:
        for name in [*parties.charter.servers, *parties.charter.labs]:
            start(name, *((phase, moment) if name == killed else ("", "")))
        children[killed].join(540)
        assert children[killed].exitcode == -signal.SIGKILL
        start(killed, "", "")
        for child in children.values():
            child.join(540)
            assert child.exitcode == 0
        yield
    finally:
        for child in children.values():
            child.kill()


def _said(folder: Path, session: str) -> dict[str, list[str]]:
    """Return the phases in each party's ledger."""
    said = {}
    for path in folder.glob("*/ledger.jsonl"):
        entries = [json.loads(line) for line in path.read_text().splitlines()]
        said[path.parent.name] = [
            entry["phase"]
            for entry in entries
            if entry["kind"] == "post" and entry["session"] == session
        ]
    return said


def _sum_after_a_kill(folder: Path, killed: str, phase: str, moment: str) -> None:
    parties = create_parties(folder, labs=3)
    session = parties.open()
    with _running(parties, session, killed, phase, moment):
        posted = [(post.sender, post.phase) for post in parties.board.posts(session)]
        assert len(posted) == len(set(posted)) == 3 * 6 + 3 * 2
        for name, phases in _said(folder, session).items():
            # Each message was made once, so no server opened twice.
            assert phases == list(SERVER_PHASES if "server" in name else LAB_PHASES)
        assert parties.view(session).phase == "complete"
        assert len({path.read_bytes() for path in folder.glob("lab-*.result")}) == 1
        combined = read_network_contribution(folder / "lab-0.result")
        change = sum(
            (n + 1) * contribution(n).network.tensors["weight"].astype(float) for n in range(3)
        )
        assert np.abs(combined.network.tensors["weight"] - change / 6).max() <= 1e-7
        assert not list(folder.glob("*/sessions/*"))


@pytest.mark.parametrize(
    ("killed", "phase", "moment"),
    [("server-0", "opening", MOMENTS[1]), ("lab-2", "share", MOMENTS[1])],
)
def test_a_killed_party_goes_on(folder: Path, killed: str, phase: str, moment: str) -> None:
    _sum_after_a_kill(folder, killed, phase, moment)


@pytest.mark.slow  # 66 sessions of six processes
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize(
    ("killed", "phase"),
    [
        *itertools.product(["server-0", "server-1", "server-2"], SERVER_PHASES),
        *itertools.product(["lab-0", "lab-2"], LAB_PHASES),
    ],
)
def test_every_party_may_be_killed_everywhere(
    folder: Path, killed: str, phase: str, moment: str
) -> None:
    _sum_after_a_kill(folder, killed, phase, moment)


def _abort_after_a_kill(folder: Path, killed: str, phase: str, moment: str) -> None:
    parties = create_parties(folder)
    parties.servers["server-1"] = AltersBeforeCommit
    session = parties.open()
    with _running(parties, session, killed, phase, moment):
        view = parties.view(session)
        assert (view.phase, view.is_void) == ("blame", True)
        said = _said(folder, session)
        assert not any("opening" in phases for phases in said.values())
        assert all(len(set(phases)) == len(phases) for phases in said.values())
        assert any("server-1" in reason for reason in parties.reasons(session))
    parties.servers.clear()
    again = parties.open(attempt=2, labs=["lab-0", "lab-1", "lab-2"])
    names = ("lab-0", "lab-1", "lab-2")
    parties.serve(again)
    parties.share(again, *names)
    parties.serve(again)
    parties.tag(again, *names)
    parties.serve(again)
    assert parties.lab("lab-0").finish(again, folder / "result", "full").weight == 6


@pytest.mark.parametrize(("killed", "phase", "moment"), [("server-2", "void", MOMENTS[1])])
def test_a_void_session_stays_void(folder: Path, killed: str, phase: str, moment: str) -> None:
    _abort_after_a_kill(folder, killed, phase, moment)


@pytest.mark.slow  # 12 sessions of seven processes
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("phase", ["blame", "void"])
@pytest.mark.parametrize("killed", ["server-0", "server-1"])
def test_every_server_may_be_killed_in_an_abort(
    folder: Path, killed: str, phase: str, moment: str
) -> None:
    _abort_after_a_kill(folder, killed, phase, moment)
