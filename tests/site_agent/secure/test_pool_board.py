"""A board that a pool keeps follows the laws of boards."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool_server.wire.signatures.keys import PrivateKey
from site_agent import PoolClient
from site_agent.errors import ConflictError, NotFoundError
from site_agent.secure.charter import create_charter
from site_agent.secure.party import Board
from site_agent.secure.session import new_descriptor
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.site_agent.secure.parties import LAYOUT

SITES = ("lab-0", "lab-1", "lab-2", "server-0", "server-1")
CHARTER = create_charter(
    "eyes",
    {name: PrivateKey.generate().public.text for name in SITES[3:]},
    {name: PrivateKey.generate().public.text for name in SITES[:3]},
)


def descriptor(attempt: int) -> bytes:
    return new_descriptor(CHARTER, LAYOUT, time.time(), attempt=attempt).to_bytes()


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Board]]:
    """Return the boards of a lab and of a server."""
    with pool_in_thread(tmp_path_factory.mktemp("board")) as pool:
        clients = [client_of(pool, site) for site in SITES]
        yield [Board(clients[0].secure, charter=CHARTER), Board(clients[-1].secure)]
        for client in clients:
            client.close()


def client_of(pool: PoolDriver, site: str) -> PoolClient:
    return PoolClient(pool.url, pool.secret(site, "contributor"))


def test_what_a_lab_posts_a_server_reads(boards: list[Board]) -> None:
    lab, server = boards
    contents = [descriptor(attempt) for attempt in range(1, 4)]
    sessions = [lab.open_session(content) for content in contents]
    assert lab.open_session(contents[1]) == sessions[1]
    assert server.sessions() == sessions
    assert server.descriptor(sessions[1]) == contents[1]
    messages = [(f"phase-{n}", f'{{"n": {n}}}'.encode()) for n in range(25)]
    for phase, envelope in messages[:23]:
        lab.post(sessions[0], phase, "lab-0", envelope)
    assert len(server.posts(sessions[0])) == 23
    for phase, envelope in messages[22:]:
        lab.post(sessions[0], phase, "lab-0", envelope)
    posts = server.posts(sessions[0])
    assert [(item.phase, item.envelope) for item in posts] == messages
    assert {(item.session, item.sender) for item in posts} == {(sessions[0], "lab-0")}
    assert lab.posts(sessions[0]) == posts
    assert server.posts(sessions[1]) == []
    with pytest.raises(ConflictError):
        lab.post(sessions[0], "phase-1", "lab-0", b"{}")


def test_a_file_arrives_whole_and_is_resumed(boards: list[Board], tmp_path: Path) -> None:
    lab, server = boards
    session = lab.open_session(descriptor(9))
    sent, target = tmp_path / "sent", tmp_path / "received"
    sent.write_bytes(os.urandom(300_000))
    digest = lab.put_blob(session, "lab-0", sent)
    assert lab.put_blob(session, "lab-0", sent) == digest
    # The remains of an interrupted download.
    target.with_name(f"received.{digest[:16]}.part").write_bytes(sent.read_bytes()[:100_000])
    server.get_blob(session, digest, target, 1 << 20)
    assert target.read_bytes() == sent.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["received", "sent"]
    with pytest.raises(NotFoundError):
        server.get_blob(session, "0" * 64, target, 1 << 20)
