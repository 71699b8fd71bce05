"""Boards that cheat: how far they get, and how the parties react."""

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from aggregators.secure_sum.sharing import explicit_server
from site_agent.errors import SecureSumError
from site_agent.secure.messages import CommitBody, Post
from site_agent.secure.party import read_session
from site_agent.secure.session import Fault
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
