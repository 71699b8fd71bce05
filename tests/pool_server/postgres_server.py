"""A real PostgreSQL for tests: of Debian's packages, in a folder of its own, on a socket there.

    with postgres_server() as postgres:
        url = postgres.make_database("pool")

It wants a password, as one in use does. Nothing is flushed to the disk (``fsync=off``): a killed
process loses nothing by that, only a machine that loses power would.
"""

import fcntl
import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

USER = "pool"
START_TIMEOUT_S = 540.0
# So that a test's pool is there at once: a database of the newest schema, to be copied.
TEMPLATE = "pool_template"
_FLAGS = {
    "listen_addresses": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "400",
    "autovacuum": "off",
    "log_min_messages": "warning",
}
_counter = itertools.count(1)


def unique_name() -> str:
    """Return a name that no other test of this run uses, in any process."""
    return f"{os.getpid()}x{next(_counter)}"


def find_binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL that is installed."""
    versions = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    if versions:
        return max(versions, key=lambda path: int(path.parent.name))
    initdb = shutil.which("initdb")
    return Path(initdb).resolve().parent if initdb else None


def require_binaries() -> Path:
    """Return where PostgreSQL is; without it, skip the test, or fail it where all must run."""
    binaries = find_binaries()
    if binaries is not None:
        return binaries
    reason = "PostgreSQL is not installed (apt-get install postgresql)"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class PostgresServer:
    """A server that can be killed and started again."""

    def __init__(self, folder: Path, binaries: Path, password: str = "") -> None:
        self.folder = folder
        self.data = folder / "data"
        self.password = password or secrets.token_urlsafe(12)
        self._binaries = binaries
        self._process: subprocess.Popen[bytes] | None = None

    def initialise(self) -> None:
        word = self.folder / "password"
        word.write_text(self.password)
        self._hand_over(self.folder)
        self._hand_over(word)
        self._popen(
            "initdb",
            f"--pgdata={self.data}",
            f"--username={USER}",
            f"--pwfile={word}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
            "--no-instructions",
        ).wait(START_TIMEOUT_S)
        assert (self.data / "PG_VERSION").exists(), self.log()

    def start(self) -> None:
        """Start the server, after a kill too, and wait until it answers."""
        flags = {**_FLAGS, "unix_socket_directories": str(self.folder)}
        arguments = [word for name, value in flags.items() for word in ("-c", f"{name}={value}")]
        self._process = self._popen("postgres", "-D", str(self.data), *arguments)
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            with suppress(psycopg.OperationalError), closing(self.connect("postgres")):
                return
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < end, f"PostgreSQL does not answer: {self.log()}"
            time.sleep(0.05)

    def detach(self) -> int:
        """Let the server outlive this object, and return its process's number."""
        assert self._process is not None
        self._process.returncode = 0
        return self._process.pid

    def kill(self) -> None:
        """Kill all its processes with SIGKILL, as the machine's end would."""
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(START_TIMEOUT_S)
        # Its children take a moment; the next start refuses as long as one lives.
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                os.killpg(self._process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.01)

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{self.password}@/{database}?host={self.folder}"

    def connect(self, database: str) -> psycopg.Connection[Any]:
        """Return a connection outside of transactions."""
        return psycopg.connect(self.url(database), autocommit=True)

    @staticmethod
    def free_name() -> str:
        """Return a name that no database or role has."""
        return f"pool_{unique_name()}"

    def make_database(self, name: str = "", template: str = "template0") -> str:
        """Make an empty database, with a name never used before, and return its address."""
        name = name or self.free_name()
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        with closing(self.connect("postgres")) as connection:
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
        return self.url(name)

    def make_pool_database(self) -> str:
        """Make a database of the newest schema, without any site, and return its address."""
        # Not atop: most tests never need it.
        from pool_server.database.schema import upgrade_database
        from pool_server.settings import PoolSettings

        # One process makes it for all, and none copies it while another is connected to it.
        with (self.folder / "template.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            complete = self.folder / "template.complete"
            if not complete.exists():
                upgrade_database(PoolSettings(database_url=self.make_database(TEMPLATE)))
                complete.touch()
            return self.make_database(template=TEMPLATE)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def _popen(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._binaries / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                # A group of its own, so that all of it can be killed.
                start_new_session=True,
                **self._owner(),  # type: ignore[call-overload]
            )

    @staticmethod
    def _owner() -> dict[str, int]:
        """Return the user to run it as: PostgreSQL refuses to be root."""
        if os.getuid() != 0:
            return {}
        account = pwd.getpwnam("postgres")
        return {"user": account.pw_uid, "group": account.pw_gid}

    def _hand_over(self, path: Path) -> None:
        if owner := self._owner():
            os.chown(path, owner["user"], owner["group"])


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run PostgreSQL in a folder that is gone afterwards."""
    binaries = require_binaries()
    # Not below pytest's folder: that is closed to others, and too long a name for a socket.
    folder = Path(tempfile.mkdtemp(prefix="poolctl-pg-"))
    server = PostgresServer(folder, binaries)
    try:
        server.initialise()
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)
