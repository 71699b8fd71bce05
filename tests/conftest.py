"""What every test may ask for."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.pool_server.postgres_server import PostgresServer

PROJECT_ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = PROJECT_ROOT.parent / "shared" / "data"

# Tests start hundreds of processes: where compiled sources may not be kept, each of them would
# compile all of the program again, which takes it longer than what it is started for.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

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


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real photographs, traces and models; the test is skipped where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("real data not present: ../shared/data")
    return SHARED_DATA


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that all tests share; each makes databases of its own in it."""
    from tests.pool_server.postgres_server import postgres_server

    with postgres_server() as server:
        yield server
