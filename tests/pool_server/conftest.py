"""A pool that all tests of the server share; each uses names of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pool_server.pool_driver import PoolDriver, pool_in_thread


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_thread(tmp_path_factory.mktemp("pool")) as driver:
        yield driver
