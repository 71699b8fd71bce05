"""``poolctl admin recover``: a way back in for the operator of the pool."""

import os
import pwd
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.pool_server.pool_driver import pool_in_thread


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
    assert refused.error["code"] == "schema_older"
    assert not (tmp_path / "none").exists()
