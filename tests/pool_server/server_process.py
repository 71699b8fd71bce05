"""Servers as processes of their own, which are there in a moment.

To start Python and load the whole server takes seconds, and the tests start hundreds. So one
process loads it once, and each server is forked from there: as real as any other, with a number
of its own, to be killed or stopped.
"""

import logging
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from pydantic import SecretStr

from pool_server.database import engine
from pool_server.database.schema import upgrade_database
from pool_server.server import run_server
from pool_server.settings import PoolSettings
from pool_server.storage import s3_bucket
from tests.children import children_of
from tests.conftest import PROJECT_ROOT

START_TIMEOUT_S = 540.0

# As `os.fsync` in `tests.conftest`.
engine.SQLITE_SYNCHRONOUS = "OFF"
# The S3 server of the tests shares its processors with them: it answers late rather than never.
s3_bucket.SHORT_TIMEOUT_S = s3_bucket.READ_TIMEOUT_S
_forking = multiprocessing.get_context("forkserver")
_forking.set_forkserver_preload(["tests.pool_server.preloaded"])


class ServerProcess:
    """A server that was started; `poll`, `wait` and the rest are as of `subprocess.Popen`."""

    def __init__(self, process: ForkServerProcess, answers: Connection, log: Path | None) -> None:
        assert process.pid is not None
        self.pid = process.pid
        self._process = process
        self._answers = answers
        self._log = log

    def wait_until_ready(self) -> tuple[str, str | None]:
        """Wait until it answers; gives its URL and the first secret."""
        said = None
        with suppress(EOFError):
            if self._answers.poll(START_TIMEOUT_S):
                said = self._answers.recv()
        assert said is not None, f"the server did not start: {self._end_of_log()}"
        url, secret = said
        return url, secret

    def _end_of_log(self) -> str:
        return self._log.read_text()[-3000:] if self._log and self._log.exists() else "no log"

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout_s: float | None = None) -> int:
        self._process.join(timeout_s)
        code = self._process.exitcode
        assert code is not None, f"the server has not ended within {timeout_s} s"
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@contextmanager
def started_process(
    folder: Path, log: Path | None = None, **environment: str
) -> Iterator[ServerProcess]:
    """Start a server as a process of its own, and kill it in the end."""
    answers, answering = _forking.Pipe(duplex=False)
    process = _forking.Process(
        target=_serve, args=(folder, log, {**os.environ, **environment}, answering)
    )
    process.start()
    # The server's end is the server's alone: where that ends, this side hears of it.
    answering.close()
    server = ServerProcess(process, answers, log)
    try:
        yield server
    finally:
        server.kill()
        server.wait()
        process.close()
        answers.close()


def _serve(
    folder: Path, log: Path | None, environment: Mapping[str, str], answering: Connection
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(PROJECT_ROOT)
    _write_to(log)
    logging.basicConfig(level=logging.INFO, force=True)
    settings = PoolSettings(data_folder=folder, port=0)
    put_empty_database(settings)
    run_server(settings, on_ready=lambda url, secret: answering.send((url, secret)))


@cache
def empty_database() -> bytes:
    """Return a database of the newest schema without any row, made once for all pools."""
    with tempfile.TemporaryDirectory() as folder:
        settings = PoolSettings(data_folder=Path(folder), database_url=SecretStr(""))
        upgrade_database(settings)
        return settings.database_file.read_bytes()


def put_empty_database(settings: PoolSettings) -> None:
    """Spare a pool on SQLite that is not there yet the making of its tables."""
    if not settings.uses_postgresql and not settings.database_file.exists():
        settings.data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.database_file.touch(mode=0o600)
        settings.database_file.write_bytes(empty_database())


def _write_to(log: Path | None) -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if log else nothing
    os.dup2(nothing, 1)
    os.dup2(errors, 2)


def child_of(process_id: int, module: str) -> int:
    """Return the child of a process that runs a module, once it is there."""
    end_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end_s:
        if children := children_of(process_id, module):
            return children[0].pid
        time.sleep(0.01)
    raise AssertionError(f"{process_id} has no child that runs {module}")
