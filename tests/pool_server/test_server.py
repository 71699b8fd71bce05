"""Starting and stopping the server."""

import os
import socket
from pathlib import Path

import httpx
import pytest

from pool_server.errors import DatabaseUnusableError, StartError
from pool_server.server import run_server
from pool_server.settings import PoolSettings
from tests.pool_server.pool_driver import running_pool


def test_the_url_is_the_real_one_and_the_secret_works_once(tmp_path: Path) -> None:
    settings = PoolSettings(data_folder=tmp_path / "new" / "pool", port=0)
    with running_pool(settings) as (url, secret):
        headers = {"Authorization": f"Bearer {secret}"}
        answer = httpx.get(f"{url}/api/v1/whoami", headers=headers, verify=False, timeout=540)
        assert answer.json()["role"] == "admin"
    with running_pool(settings) as (url, none):
        assert none is None
        answer = httpx.get(f"{url}/api/v1/whoami", headers=headers, verify=False, timeout=540)
        assert answer.json()["site"] == "admin"


def test_a_folder_has_one_server(tmp_path: Path) -> None:
    settings = PoolSettings(data_folder=tmp_path, port=0)
    with running_pool(settings), pytest.raises(StartError, match=str(os.getpid())):
        run_server(settings, on_ready=lambda url, secret: pytest.fail("it started"))


def test_a_place_that_cannot_be_served_is_named_and_nothing_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        for fields, named in (
            ({"port": port}, str(port)),
            ({"host": "no.such.host.invalid"}, r"no\.such\.host\.invalid"),
            ({"data_folder": tmp_path / "file"}, "file"),
        ):
            settings = PoolSettings(**{"data_folder": tmp_path / "pool", "port": 0, **fields})
            with pytest.raises(StartError, match=named):
                run_server(settings, on_ready=lambda url, secret: None)
    assert not list(tmp_path.glob("pool/*.sqlite3"))


def test_a_broken_database_is_named_and_the_folder_free_again(tmp_path: Path) -> None:
    settings = PoolSettings(data_folder=tmp_path, port=0)
    settings.database_file.write_bytes(b"x" * 5000)
    for _ in range(2):
        with pytest.raises(DatabaseUnusableError):
            run_server(settings, on_ready=lambda url, secret: None)


def test_only_the_owner_may_look_into_the_folder(tmp_path: Path) -> None:
    settings = PoolSettings(data_folder=tmp_path / "pool", port=0)
    with running_pool(settings):
        assert settings.data_folder.stat().st_mode & 0o077 == 0
        for file in settings.data_folder.glob("pool.sqlite3*"):
            assert file.stat().st_mode & 0o077 == 0
