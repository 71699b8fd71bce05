"""The database: engine and transactions, on SQLite and on PostgreSQL.

**SQLite** runs in WAL mode: readers never wait for the writer. A transaction that will write says
so when it begins (``BEGIN IMMEDIATE``) and waits its turn there; one that began as a reader and
then wrote would fail at once whenever another had written in between.

**PostgreSQL** lets many processes write at once (READ COMMITTED). Between a query and an insert
another process may have inserted the same row: unique constraints and row locks
(``with_for_update``) decide, and the loser tries again, by `write_with_retry` or by
`pool_server.http.middleware`, which handles the whole request again. All queries of one
`Database.read` see the same snapshot.
"""

import logging
import random
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    CursorResult,
    Delete,
    Engine,
    Update,
    create_engine,
    event,
    func,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import DataError, DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.orm.exc import StaleDataError

from pool_server.errors import DatabaseUnavailableError, QueryError, WriteConflictError
from pool_server.settings import PoolSettings

log = logging.getLogger("pool_server.database.engine")

BUSY_TIMEOUT_MS = 30_000
SQLITE_SYNCHRONOUS = "FULL"
# One connection for each thread that may run an endpoint, so that none waits for another's.
SQLITE_POOL_SIZE, SQLITE_POOL_OVERFLOW = 8, 56
# PostgreSQL's connections are processes, and other servers want some: few are kept, and a thread
# waits its turn for another.
KEPT_CONNECTIONS = 5
POOL_TIMEOUT_S = 15.0
# Limits of a statement, of waiting for a lock, of an idle transaction.
STATEMENT_TIMEOUT_MS, LOCK_TIMEOUT_MS, IDLE_TIMEOUT_MS = 60_000, 15_000, 120_000

MOST_ATTEMPTS = 8
FIRST_PAUSE_S = 0.01

# https://www.postgresql.org/docs/current/errcodes-appendix.html: foreign key and unique violation,
# serialization failure, deadlock.
_LOST_RACES = frozenset({"23503", "23505", "40001", "40P01"})
# A copy that only answers questions, such as the old one after a switch to another.
_READ_ONLY = "25006"
_SQLITE_LOST_RACES = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
        sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY,
        sqlite3.SQLITE_BUSY_SNAPSHOT,
    }
)
_SQLITE_UNAVAILABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOTADB,
    }
)

T = TypeVar("T")


def open_engine(address: URL | str, connections: int = 20) -> Engine:
    """Open a database with the settings that the server counts on.

    At most `connections` are open at a time; SQLite opens as many as there are threads.
    """
    url = make_url(address)
    if url.get_backend_name() == "sqlite":
        return open_sqlite(url)
    return open_postgres(url, connections)


def open_sqlite(url: URL) -> Engine:
    engine = create_engine(
        url,
        pool_size=SQLITE_POOL_SIZE,
        max_overflow=SQLITE_POOL_OVERFLOW,
        # The one used last has read pages in memory; of the others few read any.
        pool_use_lifo=True,
        hide_parameters=True,
    )

    @event.listens_for(engine, "connect")
    def prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
        # `begin` below begins transactions, not the driver.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute(f"PRAGMA synchronous = {SQLITE_SYNCHRONOUS}")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("pool_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def open_postgres(url: URL, connections: int) -> Engine:
    kept = min(KEPT_CONNECTIONS, connections)
    limits = {
        "statement_timeout": STATEMENT_TIMEOUT_MS,
        "lock_timeout": LOCK_TIMEOUT_MS,
        "idle_in_transaction_session_timeout": IDLE_TIMEOUT_MS,
        "timezone": "UTC",
        # To compile a query takes longer than any of these takes to run.
        "jit": "off",
        # Looked-up pages are in memory, or on a solid-state disk.
        "random_page_cost": 1.1,
    }
    options = " ".join(f"-c {name}={value}" for name, value in limits.items())
    arguments: dict[str, object] = {
        "application_name": "poolctl",
        "connect_timeout": 5,
        # A peer that vanished without a word is noticed, instead of waited for.
        "keepalives_idle": 30,
        "tcp_user_timeout": 20_000,
    }
    # Options in the admin's address take precedence.
    arguments = {name: value for name, value in arguments.items() if name not in url.query}
    arguments["options"] = f"{options} {url.query.get('options', '')}".strip()
    return create_engine(
        url,
        pool_size=kept,
        max_overflow=connections - kept,
        pool_timeout=POOL_TIMEOUT_S,
        isolation_level="READ COMMITTED",
        connect_args=arguments,
        hide_parameters=True,
        # A connection that the database has closed meanwhile is replaced, with all others.
        pool_pre_ping=True,
    )


class Database:
    """Transactions on one engine.

    `read` changes nothing. `write` commits when its block ends well and rolls back when it raises.
    Both raise `DatabaseUnavailableError` when the database does not answer, and
    `WriteConflictError` when another transaction was first.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.writing_engine = engine.execution_options(pool_writes=True)
        self._readers = sessionmaker(reading_engine(engine), expire_on_commit=False)
        self._writers = sessionmaker(self.writing_engine, expire_on_commit=False)

    @classmethod
    def open(cls, settings: PoolSettings) -> "Database":
        return cls(open_engine(settings.engine_url, settings.database_connections))

    @property
    def is_shared(self) -> bool:
        """Return whether other processes may be working on the database at this moment."""
        return self.engine.dialect.name != "sqlite"

    @contextmanager
    def read(self) -> Iterator[Session]:
        with translate_errors(), self._readers() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        with translate_errors(), self._writers.begin() as session:
            yield session

    @contextmanager
    def alone(self, purpose: str) -> Iterator[bool]:
        """Yield True to one process at a time and False to all others, without waiting.

        The lock is the database's: it ends with the process, however that ends. A pool on SQLite
        has one process only.
        """
        if not self.is_shared:
            yield True
            return
        key = advisory_key(purpose)
        # Without a transaction, for one that does nothing for long would be ended.
        engine = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        with translate_errors(), engine.connect() as connection:
            is_first = bool(connection.scalar(select(func.pg_try_advisory_lock(key))))
            try:
                yield is_first
            finally:
                if is_first:
                    connection.execute(select(func.pg_advisory_unlock(key)))

    def require_write(self) -> None:
        """Raise `DatabaseUnavailableError` unless the database takes a write now."""
        with self.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = version_num"))

    def close(self) -> None:
        self.engine.dispose()


def reading_engine(engine: Engine) -> Engine:
    """Return an engine with read-only transactions, each of one snapshot."""
    if engine.dialect.name == "sqlite":
        return engine
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def write_with_retry(database: Database, act: Callable[[Session], T]) -> T:
    """Run `act` in a transaction, and again when another process was first.

    Effects of `act` outside the database must bear repetition.
    """
    for attempt in range(MOST_ATTEMPTS - 1):
        try:
            with database.write() as session:
                return act(session)
        except WriteConflictError:
            time.sleep(pause_s(attempt))
    with database.write() as session:
        return act(session)


def pause_s(attempt: int) -> float:
    """Return how long to wait before doing it again: longer each time, and not all alike."""
    return FIRST_PAUSE_S * 2.0**attempt * random.random()


def advisory_key(purpose: str) -> int:
    """Return the number of an advisory lock of PostgreSQL."""
    return zlib.crc32(f"poolctl: {purpose}".encode())


def wait_for_turn(session: Session, purpose: str) -> None:
    """Wait until no other transaction has the turn; it ends with the transaction.

    For races that no unique constraint decides. SQLite has one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(advisory_key(purpose))))


def change_rows(session: Session, statement: Update | Delete) -> int:
    """Change rows by one statement; return how many."""
    result = session.execute(statement)
    assert isinstance(result, CursorResult)
    return result.rowcount


def count_rows(session: Session, *conditions: ColumnElement[bool]) -> int:
    return session.scalar(select(func.count()).where(*conditions)) or 0


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the database's errors into the server's own, except for our mistakes."""
    try:
        yield
    except DataError as error:
        # Only PostgreSQL refuses these: invalid characters, numbers that are too large.
        raise QueryError(f"invalid value: {first_line(error)}") from error
    except DBAPIError as error:
        if lost_a_race(error):
            raise WriteConflictError(
                "somebody else changed the same thing at the same moment",
                hint="Try again in a moment.",
            ) from error
        if is_unavailable(error):
            raise DatabaseUnavailableError(
                f"the database does not answer: {first_line(error)}", hint="Try again in a moment."
            ) from error
        raise
    except StaleDataError as error:
        raise WriteConflictError(
            "somebody else removed the same thing at the same moment", hint="Try again in a moment."
        ) from error
    except PoolTimeoutError as error:
        raise DatabaseUnavailableError(
            "all connections to the database are in use", hint="Try again in a moment."
        ) from error


def lost_a_race(error: DBAPIError) -> bool:
    """Return whether the same transaction may succeed, or fail more clearly, when retried."""
    if isinstance(error.orig, sqlite3.Error):
        return _sqlite_code(error.orig) in _SQLITE_LOST_RACES
    return getattr(error.orig, "sqlstate", None) in _LOST_RACES


def is_unavailable(error: DBAPIError) -> bool:
    """Return whether the database is gone, overloaded or out of room."""
    if isinstance(error.orig, sqlite3.Error):
        # The low byte is the kind, the rest is detail.
        return _sqlite_code(error.orig) & 0xFF in _SQLITE_UNAVAILABLE
    return (
        error.connection_invalidated
        or isinstance(error, OperationalError | InterfaceError)
        or getattr(error.orig, "sqlstate", None) == _READ_ONLY
    )


def first_line(error: DBAPIError) -> str:
    """Return the driver's message, without the statement and its values."""
    return str(error.orig).strip().split("\n", 1)[0]


def _sqlite_code(error: sqlite3.Error) -> int:
    # The driver's own complaints (a closed connection) have no code.
    return getattr(error, "sqlite_errorcode", 0)
