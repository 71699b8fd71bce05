"""The pools that the tests of the server share; each test uses names of its own.

``embedded`` is on SQLite and a folder, ``postgresql`` on PostgreSQL and a folder; both run in the
process of the tests, without a server. ``consortium`` is two servers on PostgreSQL and a bucket of
an S3 server; a client's requests alternate between them. Tests of the API run on the embedded pool;
those marked ``both_databases`` on PostgreSQL as well: where the database matters, and one test of
each noun. Those marked ``both_shapes`` run on the consortium's pool, too: where the storage or
several processes matter. Of several such tests of one noun the others are
``both_shapes(slow=True)``.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from pool_server.merges.running import MergeWorker
from tests.pool_server.pool_driver import (
    PoolDriver,
    pool_in_process,
    pool_in_thread,
    pool_of_processes,
)
from tests.pool_server.postgres_server import PostgresServer
from tests.pool_server.swift_server import S3Server

EMBEDDED = "embedded"
POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.postgres)
CONSORTIUM = pytest.param("consortium", marks=[pytest.mark.postgres, pytest.mark.s3])

OpenPool = Callable[..., AbstractContextManager[PoolDriver]]


MakePlace = Callable[[], dict[str, Any]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shape" in metafunc.fixturenames:
        shapes = [EMBEDDED]
        for name, other in (("both_databases", POSTGRESQL), ("both_shapes", CONSORTIUM)):
            marker = metafunc.definition.get_closest_marker(name)
            if marker is not None:
                slow = [pytest.mark.slow] if marker.kwargs.get("slow") else []
                shapes.append(pytest.param(*other.values, marks=[*other.marks, *slow]))
        metafunc.parametrize("shape", shapes, indirect=True, scope="module")


@pytest.fixture(scope="module")
def shape(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def place_of_shape(request: pytest.FixtureRequest, shape: str) -> MakePlace:
    """Make a new place for a pool of the shape: a database and a bucket, named by settings."""
    if shape == "postgresql":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        return lambda: {"database_url": postgres.make_pool_database()}
    make: MakePlace = dict if shape == "embedded" else request.getfixturevalue("make_shared_place")
    return make


@pytest.fixture(scope="session")
def make_shared_place(postgres: PostgresServer, swift: S3Server) -> MakePlace:
    """Make a place that several servers can use at once."""

    def make() -> dict[str, Any]:
        bucket = swift.make_bucket("pool")
        return swift.pool_settings(bucket, database_url=postgres.make_pool_database())

    return make


@pytest.fixture
def no_merge_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pools of this process leave waiting merges alone."""
    monkeypatch.setattr(MergeWorker, "run_next", lambda _worker, _stopping: False)


@pytest.fixture(scope="module")
def open_pool(place_of_shape: MakePlace) -> OpenPool:
    """Open a pool of its own for a test, of either shape: ``with open_pool(folder, ...) as pool``.

    Settings are given by name. It runs in this process, without a server.
    """

    def open_it(folder: Path, **settings: Any) -> AbstractContextManager[PoolDriver]:
        return pool_in_process(folder, **place_of_shape(), **settings)

    return open_it


@pytest.fixture(scope="module")
def pool(request: pytest.FixtureRequest, shape: str) -> PoolDriver:
    """The pool that tests share; that of the other shape stays open for the next module."""
    return request.getfixturevalue(f"{shape}_pool")


@pytest.fixture(scope="session")
def consortium_pool(
    make_shared_place: MakePlace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PoolDriver]:
    with pool_of_processes(tmp_path_factory.mktemp("pool"), **make_shared_place()) as driver:
        yield driver


@pytest.fixture(scope="session")
def postgresql_pool(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PoolDriver]:
    folder, url = tmp_path_factory.mktemp("postgresql"), postgres.make_pool_database()
    with pool_in_process(folder, database_url=url) as driver:
        yield driver


@pytest.fixture(scope="session")
def served_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    """A pool with an address, for tests of connections and programs that open them."""
    with pool_in_thread(tmp_path_factory.mktemp("served")) as driver:
        yield driver


@pytest.fixture(scope="session")
def embedded_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolDriver]:
    with pool_in_process(tmp_path_factory.mktemp("embedded")) as driver:
        yield driver
