"""Fixtures for every test."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.shared_servers import begin_run, end_run, shared_postgres, shared_swift

if TYPE_CHECKING:
    from tests.pool_server.postgres_server import PostgresServer
    from tests.pool_server.swift_server import S3Server

PROJECT_ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = PROJECT_ROOT.parent / "shared" / "data"

# Tests start hundreds of processes: where compiled sources may not be kept, each of them would
# compile all of the program again, which takes it longer than what it is started for.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Where several processes run tests, each processor has one already. The threads of torch, OpenBLAS
# and numba wait by spinning: with more of them than processors, computing takes several times as
# long. What tests start inherits this, so that all of it computes the same bits.
if "PYTEST_XDIST_WORKER" in os.environ:
    for _library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
        os.environ[f"{_library}_NUM_THREADS"] = "1"

# Nothing is flushed to the disk, as by the tests' PostgreSQL: a killed process loses nothing by it,
# only a machine that loses power would; and a write waits for the disk longer than for the pool.
os.fsync = os.fdatasync = lambda _descriptor: None

# A shell that starts the tests in its background lets them ignore Ctrl-C, and so would all that
# they start: that what is interrupted ends as it should could not be seen.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run: a red run means that something changed. New examples are looked
# for with `pytest --hypothesis-profile=explore`. How long one takes says nothing where several
# processes share a processor.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=500, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the notes of training and commands out of the home of the person running the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real photographs, traces and models; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("real data not present: ../shared/data")
    return SHARED_DATA


@pytest.fixture(scope="module")
def small_lenet() -> Iterator[None]:
    """``gaze-lenet`` is a smaller one in this module's tests."""
    from tests.site_agent.small_lenet import use_small_lenet

    with pytest.MonkeyPatch.context() as patch:
        use_small_lenet(patch)
        yield


@pytest.fixture(scope="session")
def postgres() -> PostgresServer:
    """A PostgreSQL that all tests share; each makes databases of its own in it."""
    return shared_postgres()


@pytest.fixture(scope="session")
def swift() -> Iterator[S3Server]:
    """A real S3 server that all tests share; each makes a bucket of its own in it."""
    import botocore.session

    # Otherwise each client of boto3 reads the description of S3 again, for a third of a second.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.session.create_loader", cache(botocore.session.create_loader))
        yield shared_swift()


def pytest_configure(config: pytest.Config) -> None:
    begin_run()
    # Objects loaded before the tests begin stay: collecting garbage among them takes a fifth of the
    # time of the collection of tests.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
    # Nor is what a module of tests makes garbage while they run.
    gc.set_threshold(50_000)


def pytest_unconfigure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        end_run()


# Tests that fail first come first. Each process runs whole files: the files with long tests follow,
# so that none of them is left for the end, when the other processes have nothing to do.
FIRST = (
    "tests/architecture/",
    "tests/cli/federated/test_live.py",
    # Makes the recording and the models that many others read.
    "tests/site_agent/eyeblink/test_pipeline.py",
    "tests/end_to_end/",
    "tests/site_agent/federated/engines/",
    "tests/cli/vision/test_study.py",
    "tests/site_agent/studies/",
    "tests/pool_server/people/sites/test_walk.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        starts = enumerate(FIRST)
        return next((n for n, start in starts if item.nodeid.startswith(start)), len(FIRST))

    items.sort(key=place)
