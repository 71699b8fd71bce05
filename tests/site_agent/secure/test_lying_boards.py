"""Boards that cheat, how far they get, and the board of a pool."""

import base64
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from aggregators.secure_sum.sharing import explicit_server
from pool_server.wire.signatures.keys import PrivateKey
from site_agent import PoolClient
from site_agent.errors import ConflictError, NotFoundError, SecureSumError
from site_agent.secure.charter import create_charter
from site_agent.secure.messages import CommitBody, Post
from site_agent.secure.party import Board, read_session
from site_agent.secure.session import Fault, new_descriptor
from tests.pool_server.pool_driver import PoolDriver, pool_in_thread
from tests.site_agent.secure.parties import (
    LAYOUT,
    AlteringBoard,
    Parties,
    create_parties,
    signed_again,
)


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
    own_post = next(post for post in parties.board.posts(session) if post.sender == "lab-0")
    for name in ("lab-3", "lab-9"):
        made = signed_again(
            Post(session, "share", name, own_post.envelope), parties.key("lab-0"), sender=name
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
