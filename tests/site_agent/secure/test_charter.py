"""Charters: what they must say, and acceptance by digest only."""

from __future__ import annotations

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


def _charter(**rules: int) -> Charter:
    return create_charter("gaze", _keys("s1", "s2"), _keys("a", "b", "c"), **rules)


def test_a_charter_is_accepted_by_its_digest(tmp_path: Path) -> None:
    charter = _charter(weight_bits=10)
    (tmp_path / "charter.toml").write_bytes(charter.content)
    assert read_charter(tmp_path / "charter.toml").terms == charter.terms
    assert (charter.budget.weight, charter.terms.challenges, len(charter.labs)) == (10, 3, 3)
    with pytest.raises(InvalidInputError, match="was not accepted here"):
        require_accepted(tmp_path, charter.digest)
    for wrong in ("", charter.digest[:15], "0" * 64, _charter().digest):
        with pytest.raises(InvalidInputError, match="do not accept it"):
            accept_charter(tmp_path, charter, wrong)
    accept_charter(tmp_path, charter, charter.digest[:16].upper())
    assert require_accepted(tmp_path, charter.digest).terms == charter.terms
    kept = tmp_path / "charters" / f"{charter.digest}.toml"
    kept.write_bytes(_charter().content)
    with pytest.raises(InvalidInputError, match="the file was changed"):
        require_accepted(tmp_path, charter.digest)


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
        (("labs = [", "labs = "), "charter: "),
    ],
)
def test_a_bad_charter_is_refused(change: tuple[str, str], problem: str) -> None:
    text = _charter().content.decode()
    assert change[0] in text
    with pytest.raises(InvalidInputError, match=problem):
        Charter.parse(text.replace(*change, 1).encode())


def test_one_server_or_two_labs_make_no_charter() -> None:
    for servers, labs in (
        (_keys("s1"), _keys("a", "b", "c")),
        (_keys("s1", "s2"), _keys("a", "b")),
    ):
        with pytest.raises(InvalidInputError, match="at least"):
            create_charter("gaze", servers, labs)


def test_a_party_with_another_key_than_the_charter_says_is_refused(tmp_path: Path) -> None:
    charter = _charter()
    accept_charter(tmp_path, charter, charter.digest)
    create_key(tmp_path, "s1")
    with pytest.raises(InvalidInputError, match="do not include 's1' with the key"):
        Server(tmp_path, "s1", charter.digest, FolderBoard(tmp_path / "board"))
