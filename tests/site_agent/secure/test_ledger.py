"""Ledgers after a crash, and seals."""

from pathlib import Path

import pytest

from site_agent.errors import InvalidInputError
from site_agent.secure.party import create_session_key, open_share, seal_share
from site_agent.work.ledger import Ledger


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
