"""One PostgreSQL and one S3 server for all processes that run tests.

The first process that needs a server starts it. The process that began the run stops it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.pool_server.postgres_server import PostgresServer
    from tests.pool_server.swift_server import S3Server

# Inherited by the processes that pytest-xdist starts.
RUN_FOLDER = "POOLCTL_TESTS_FOLDER"


def begin_run() -> None:
    """Make the folder of this run; a process started by pytest-xdist finds it made."""
    if RUN_FOLDER not in os.environ:
        # Not below pytest's folder: PostgreSQL runs as another user, and its socket needs a
        # short name.
        folder = Path(tempfile.mkdtemp(prefix="poolctl-tests-"))
        folder.chmod(0o755)
        os.environ[RUN_FOLDER] = str(folder)


def end_run() -> None:
    """Stop the servers of this run and remove their files."""
    folder = Path(os.environ.pop(RUN_FOLDER))
    for file in folder.glob("*.json"):
        process_id = json.loads(file.read_text())["process_id"]
        with suppress(ProcessLookupError):
            os.killpg(process_id, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def shared_postgres() -> PostgresServer:
    """Return the PostgreSQL of this run; each test makes databases of its own in it."""
    from tests.pool_server.postgres_server import PostgresServer, require_binaries

    binaries = require_binaries()

    def start(folder: Path) -> dict[str, Any]:
        server = PostgresServer(folder, binaries)
        server.initialise()
        server.start()
        return {"process_id": server.detach(), "password": server.password}

    folder, known = started_once("postgres", start)
    return PostgresServer(folder, binaries, known["password"])


def shared_swift() -> S3Server:
    """Return the S3 server of this run; each test makes a bucket of its own in it."""
    from tests.pool_server.swift_server import S3Server, start_swift

    def start(folder: Path) -> dict[str, Any]:
        return vars(start_swift(folder))

    return S3Server(**started_once("swift", start)[1])


def started_once(name: str, start: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """Return a folder, and the result of `start` for the process group it started there."""
    run = Path(os.environ[RUN_FOLDER])
    folder, known = run / name, run / f"{name}.json"
    with (run / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            known.write_text(json.dumps(start(folder)))
    return folder, json.loads(known.read_text())
