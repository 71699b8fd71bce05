"""The laws of a board, on a folder."""

import hashlib
from pathlib import Path

import pytest

from site_agent.errors import ConflictError, NotFoundError
from site_agent.secure.messages import Post
from tests.site_agent.secure.folder_board import FolderBoard


def test_posts_stay_as_they_are_and_in_their_order(tmp_path: Path) -> None:
    board = FolderBoard(tmp_path / "board")
    session = board.open_session(b"{}")
    assert session == hashlib.sha256(b"{}").hexdigest() == board.open_session(b"{}")
    assert (board.sessions(), board.descriptor(session)) == ([session], b"{}")
    board.post(session, "tag", "lab-b", b"1")
    board.post(session, "tag", "lab-a", b"2")
    board.post(session, "tag", "lab-b", b"1")
    with pytest.raises(ConflictError, match="lab-a has posted something else as tag"):
        board.post(session, "tag", "lab-a", b"3")
    expected = [Post(session, "tag", "lab-b", b"1"), Post(session, "tag", "lab-a", b"2")]
    assert FolderBoard(tmp_path / "board").posts(session) == expected


def test_files_come_back_by_their_digest(tmp_path: Path) -> None:
    board = FolderBoard(tmp_path / "board")
    session = board.open_session(b"{}")
    (tmp_path / "share").write_bytes(b"abc")
    digest = board.put_blob(session, "lab-a", tmp_path / "share")
    assert digest == hashlib.sha256(b"abc").hexdigest()
    board.get_blob(session, digest, tmp_path / "back", 1 << 20)
    assert (tmp_path / "back").read_bytes() == b"abc"
    for wrong in ("0" * 64, "../descriptor.json"):
        with pytest.raises(NotFoundError):
            board.get_blob(session, wrong, tmp_path / "back", 1 << 20)
    with pytest.raises(NotFoundError):
        board.posts("0" * 64)
