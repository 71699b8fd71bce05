"""`/readyz`, while the pool can be read and not written."""

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pool_server.errors import StorageFullError
from pool_server.http.session import TRUSTED_S
from pool_server.storage import LocalStorage
from tests.pool_server.pool_driver import PoolDriver, error_of, pool_in_process


@contextmanager
def no_room() -> Iterator[None]:
    """Let no file of this process grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[PoolDriver]:
    """A pool that is ready, and was asked long ago."""
    with pool_in_process(tmp_path) as pool:
        assert pool.client(None).get("/readyz").status_code == 200
        time.sleep(1.1 * TRUSTED_S)
        yield pool


def test_a_database_that_takes_no_writes_is_not_ready(ready: PoolDriver) -> None:
    anyone = ready.client(None)
    with no_room():
        refused = anyone.get("/readyz")
    assert error_of(refused) == (503, "database_unavailable")
    assert anyone.get("/readyz").json() == {"status": "ok"}


def test_a_storage_without_room_is_not_ready(
    ready: PoolDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_storage: LocalStorage) -> None:
        raise StorageFullError("no room")

    with monkeypatch.context() as full:
        full.setattr(LocalStorage, "check", refuse)
        assert error_of(ready.client(None).get("/readyz")) == (503, "storage_failed")
    assert ready.client(None).get("/readyz").status_code == 200
