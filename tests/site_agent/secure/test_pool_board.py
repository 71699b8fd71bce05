"""A board that a pool keeps follows the laws of boards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pool_server.database.records import now_utc
from site_agent import PoolClient
from site_agent.errors import ConflictError, NotFoundError
from site_agent.secure.board import Board
from site_agent.secure.pool_board import PoolBoard
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread

SITES = ("lab-a", "server-1")


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Board]]:
    """Return the boards of a lab and of a server."""
    with pool_in_thread(tmp_path_factory.mktemp("board")) as pool:
        clients = [client_of(pool, site) for site in SITES]
        ends_at = now_utc() + timedelta(days=1)
        yield [
            PoolBoard(clients[0].secure, sites=SITES, ends_at=ends_at),
            PoolBoard(clients[1].secure),
        ]
        for client in clients:
            client.close()


def client_of(pool: PoolDriver, site: str) -> PoolClient:
    return PoolClient(pool.url, pool.secret(site, "contributor"))


def test_what_a_lab_posts_a_server_reads(boards: list[Board]) -> None:
    lab, server = boards
    sessions = [lab.open_session(f"descriptor {n}".encode()) for n in range(3)]
    assert lab.open_session(b"descriptor 1") == sessions[1]
    assert server.sessions() == sessions
    assert server.descriptor(sessions[1]) == b"descriptor 1"
    messages = [(f"phase-{n}", f'{{"n": {n}}}'.encode()) for n in range(25)]
    for phase, envelope in messages[:23]:
        lab.post(sessions[0], phase, "lab-a", envelope)
    assert len(server.posts(sessions[0])) == 23
    for phase, envelope in messages[22:]:
        lab.post(sessions[0], phase, "lab-a", envelope)
    found = server.posts(sessions[0])
    assert [(each.phase, each.envelope) for each in found] == messages
    assert {(each.session, each.sender) for each in found} == {(sessions[0], "lab-a")}
    assert lab.posts(sessions[0]) == found
    assert server.posts(sessions[1]) == []
    with pytest.raises(ConflictError):
        lab.post(sessions[0], "phase-1", "lab-a", b"{}")


def test_a_file_arrives_whole_and_is_resumed(boards: list[Board], tmp_path: Path) -> None:
    lab, server = boards
    session = lab.open_session(b"files")
    sent, target = tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(os.urandom(300_000))
    digest = lab.put_blob(session, "lab-a", sent)
    assert lab.put_blob(session, "lab-a", sent) == digest
    # What an interrupted download left.
    target.with_name(f"received.{digest[:16]}.part").write_bytes(sent.read_bytes()[:100_000])
    server.get_blob(session, digest, target)
    assert target.read_bytes() == sent.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["received", "sent"]
    with pytest.raises(NotFoundError):
        server.get_blob(session, "0" * 64, target)
