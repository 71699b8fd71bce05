"""`poolctl db`, on both databases, and the server that wants it."""

import sys
from pathlib import Path

import pytest

from pool_server.database.schema import newest_revision
from tests.cli.conftest import Run, first_token
from tests.pool_server.postgres_server import PostgresServer


def test_a_data_folder_is_set_up_and_upgraded(poolctl: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    look = ("db", "upgrade", "--dry-run", "--data", folder)
    assert poolctl(*look, "--json").data["revision"] is None
    assert not folder.exists(), "looking makes nothing"
    made = poolctl("db", "upgrade", "--data", folder, "--json").data
    assert (made["found"], made["revision"]) == (None, newest_revision())
    assert first_token(made).startswith("pool_")
    assert Path(made["admin_token_file"]).stat().st_mode & 0o077 == 0
    again = poolctl("db", "upgrade", "--data", folder, "--json").data
    assert (again["found"], again["admin_token_file"]) == (newest_revision(), None)
    shown = poolctl(*look, "--json").data
    assert (shown["is_newest"], shown["database"]) == (True, str(folder / "pool.sqlite3"))
    assert poolctl(*look, "-q").out.strip() == newest_revision()


def test_no_secret_is_printed_where_no_terminal_is(poolctl: Run, tmp_path: Path) -> None:
    made = poolctl("db", "upgrade", "--data", tmp_path / "pool")
    assert "pool_" not in made.out + made.err
    assert "first-token" in made.err


@pytest.mark.postgres
@pytest.mark.parametrize("command", [("db", "upgrade", "--dry-run"), ("admin", "recover")])
def test_data_means_the_database_that_serve_takes(
    poolctl: Run,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    monkeypatch.setenv("POOL_SERVER_DATABASE_URL", postgres.make_pool_database())
    served = poolctl("serve", "--check", "--data", tmp_path / "pool", "--json").data["database"]
    assert served.startswith("postgresql://")
    assert poolctl(*command, "--data", tmp_path / "pool", "--json").data["database"] == served


@pytest.mark.postgres
def test_postgresql_is_set_up_by_hand_and_never_by_the_server(
    poolctl: Run, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_SERVER_DATABASE_URL", postgres.make_database())
    refused = poolctl("serve", "--port", "0", "--json").error
    assert refused["code"] == "schema_older"
    assert "poolctl db upgrade" in refused["hint"]
    current = poolctl("db", "upgrade", "--dry-run", "--json").data
    assert (current["revision"], current["is_newest"]) == (None, False)
    with monkeypatch.context() as on_a_terminal:
        on_a_terminal.setattr(sys.stdout, "isatty", lambda: True)
        made = poolctl("db", "upgrade")
    assert "shown this once" in made.out
    assert postgres.password not in made.out + made.err
    assert poolctl("db", "upgrade", "--dry-run", "--json").data["is_newest"]
    again = poolctl("db", "upgrade").out
    assert "shown this once" not in again
    assert "up to date already" in again


def test_what_is_said_wrongly_is_told_without_the_password(
    poolctl: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = poolctl(
        "db", "upgrade", "--dry-run", "--data", tmp_path, "--database-url", "postgresql://h/d"
    )
    assert (both.code, "give only one" in both.err) == (2, True)
    gone = poolctl(
        "db", "upgrade", "--dry-run", "--database-url", "postgresql://u:geheim@127.0.0.1:1/d"
    )
    assert gone.code == 5
    assert "postgresql://u@127.0.0.1:1/d" in gone.err
    monkeypatch.setenv("POOL_SERVER_DATABASE_URL", "mysql://u:geheim@h/d")
    wrong = [poolctl("db", "upgrade", "--dry-run"), poolctl("serve")]
    assert [outcome.code for outcome in wrong] == [2, 2]
    assert all("POOL_SERVER_DATABASE_URL" in outcome.err for outcome in wrong)
    assert "geheim" not in "".join(outcome.out + outcome.err for outcome in [*wrong, gone])
