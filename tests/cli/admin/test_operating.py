"""Commands of the operator: `poolctl db`, and `admin recover|backup|restore|gc|fsck`."""

import os
import pwd
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from pool_server.database.schema import newest_revision
from tests.cli.conftest import Run, first_token
from tests.pool_server.model_files import network_bytes, sha256
from tests.pool_server.pool_driver import pool_in_thread, upload
from tests.pool_server.postgres_server import PostgresServer


def test_a_data_folder_is_set_up_and_upgraded(poolctl: Run, tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    made = poolctl("db", "upgrade", "--data", folder, "--json").data
    assert (made["found"], made["revision"]) == (None, newest_revision())
    assert first_token(made).startswith("pool_")
    assert Path(made["admin_token_file"]).stat().st_mode & 0o077 == 0
    again = poolctl("db", "upgrade", "--data", folder, "--json").data
    assert (again["found"], again["admin_token_file"]) == (newest_revision(), None)
    assert again["database"] == str(folder / "pool.sqlite3")


def test_no_secret_is_printed_where_no_terminal_is(poolctl: Run, tmp_path: Path) -> None:
    made = poolctl("db", "upgrade", "--data", tmp_path / "pool")
    assert "pool_" not in made.out + made.err
    assert "first-token" in made.err


@pytest.mark.postgres
@pytest.mark.parametrize("command", [("db", "upgrade"), ("admin", "recover")])
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
    (tmp_path / "pool.sqlite3").touch()
    poolctl(*command, "--data", tmp_path).fails(2, "give only one")


@pytest.mark.postgres
def test_postgresql_is_set_up_by_hand_and_never_by_the_server(
    poolctl: Run, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_SERVER_DATABASE_URL", postgres.make_database())
    refused = poolctl("serve", "--port", "0", "--json").error
    assert refused["code"] == "schema_older"
    assert "poolctl db upgrade" in refused["hint"]
    with monkeypatch.context() as on_a_terminal:
        on_a_terminal.setattr(sys.stdout, "isatty", lambda: True)
        made = poolctl("db", "upgrade")
    assert "shown this once" in made.out
    assert postgres.password not in made.out + made.err
    again = poolctl("db", "upgrade").out
    assert "shown this once" not in again
    assert "up to date already" in again


def test_what_is_said_wrongly_is_told_without_the_password(
    poolctl: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    poolctl("db", "upgrade", "--data", tmp_path, "--database-url", "postgresql://h/d").fails(
        2, "give only one"
    )
    gone = poolctl("db", "upgrade", "--database-url", "postgresql://u:geheim@127.0.0.1:1/d")
    assert gone.code == 5
    assert "postgresql://u@127.0.0.1:1/d" in gone.err
    monkeypatch.setenv("POOL_SERVER_DATABASE_URL", "mysql://u:geheim@h/d")
    wrong = [poolctl("db", "upgrade"), poolctl("serve")]
    assert [outcome.code for outcome in wrong] == [2, 2]
    assert all("POOL_SERVER_DATABASE_URL" in outcome.err for outcome in wrong)
    assert "geheim" not in "".join(outcome.out + outcome.err for outcome in [*wrong, gone])


def test_an_admin_who_lost_every_token_gets_in_again(
    poolctl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pool"
    # Variables set by the command itself are restored as well.
    monkeypatch.setenv("POOL_SERVER_CONFIG", "")
    with pool_in_thread(folder) as pool:
        with closing(sqlite3.connect(folder / "pool.sqlite3")) as connection, connection:
            connection.execute("UPDATE tokens SET expires_at = '2020-01-01 00:00:00'")
            connection.execute("UPDATE sites SET suspended_at = '2020-01-01 00:00:00'")
        assert pool.admin.get("/api/v1/whoami").status_code == 401
        made = poolctl("admin", "recover", "--data", folder, "--json").data["token"]
        admin = pool.client(made["secret"])
        told = admin.get("/api/v1/whoami").json()
        assert (told["site"], told["role"], told["pool_wide"]) == ("admin", "admin", True)
        [entry] = admin.get("/api/v1/audit", params={"action": "admin.recover"}).json()["items"]
        assert (entry["actor"], entry["subject"]) == ("admin/command-line", f"admin/{made['name']}")
        assert entry["details"]["system_user"] == pwd.getpwuid(os.getuid()).pw_name
        assert entry["details"]["site_was_suspended"] is True
        assert made["secret"] not in str(entry)

        config = tmp_path / "pool.toml"
        config.write_text(f"data_folder = '{folder}'\n")
        with closing(sqlite3.connect(folder / "pool.sqlite3")) as connection, connection:
            connection.execute("UPDATE tokens SET name = 'lost' WHERE name = ?", [made["name"]])
        shown = poolctl("admin", "recover", "--config", config)
        assert "shown this once" in shown.out
        assert "poolctl admin people revoke" in shown.err


def test_a_folder_without_a_pool_stays_empty(poolctl: Run, tmp_path: Path) -> None:
    refused = poolctl("admin", "recover", "--data", tmp_path / "none", "--json")
    assert "none: no such folder; expected a pool's" in refused.error["message"]
    assert not (tmp_path / "none").exists()


CONTENT = network_bytes(500, seed=7)


def test_a_pool_is_backed_up_restored_and_checked(poolctl: Run, tmp_path: Path) -> None:
    with pool_in_thread(tmp_path / "pool") as pool:
        upload(pool.member("ops-a"), "ops-a/gaze", CONTENT)
        data = ("--data", tmp_path / "pool")
        made = poolctl("admin", "backup", tmp_path / "backup", *data, "--verify", "--json")
        assert made.data["verified"] is True
        again = poolctl("admin", "backup", tmp_path / "backup", *data, "--keep", 1, "--json")
        assert again.data["dropped"] == [made.data["snapshot"]]
    target = tmp_path / "target"
    arguments = ("admin", "restore", tmp_path / "backup", "--data", target, "--json")
    assert poolctl(*arguments).data["snapshot"] == again.data["snapshot"]
    assert poolctl(*arguments).error["code"] == "pool_not_empty"
    assert poolctl("admin", "fsck", "--data", target, "--json").data["problems"] == []
    assert "every file" in poolctl("admin", "gc", "--data", target).out
    [blob] = target.glob(f"storage/blobs/*/{sha256(CONTENT)}")
    blob.chmod(0o600)
    blob.write_bytes(b"x" + CONTENT[1:])
    poolctl("admin", "fsck", "--data", target, "--json").fails(5, "integrity", "ops-a/gaze@1")
    assert poolctl("admin", "fsck", "--data", target, "--quick").code == 0
    assert poolctl("admin", "restore", tmp_path, "--data", target).code == 5
    poolctl("admin", "backup", tmp_path / "other", "--data", target, "--json").fails(
        5, "integrity", f"the pool's file {sha256(CONTENT)} was missing or damaged"
    )
    assert list((tmp_path / "other").glob("snapshots/*/manifest.json")), "all else is backed up"


@pytest.mark.parametrize("arguments", ["backup DIR", "fsck --quick", "gc", "recover"])
def test_where_nothing_names_a_pool_none_is_made_up(
    poolctl: Run, tmp_path: Path, arguments: str
) -> None:
    told = poolctl("admin", *arguments.replace("DIR", str(tmp_path / "backup")).split(), "--json")
    assert (told.code, told.error["code"]) == (2, "usage")
    assert "give --config, --data or --database-url" in told.error["message"]
    assert "db upgrade" not in told.error["message"] + told.error["hint"]
    assert not (tmp_path / "backup").exists()
