"""The database: engine, transactions, schema.

SQLite runs in WAL mode: readers never wait for the writer. A transaction that will write says so
when it begins (``BEGIN IMMEDIATE``) and waits its turn there; one that began as a reader and then
wrote would fail at once whenever another had written in between.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session, sessionmaker

from pool_server.errors import DatabaseUnusableError, SchemaNewerError
from pool_server.records import now_utc
from pool_server.settings import PoolSettings

BUSY_TIMEOUT_MS = 30_000
# One connection for each thread that may run an endpoint, so that none waits for another's.
POOL_SIZE, POOL_OVERFLOW = 8, 56


def open_engine(url: str) -> Engine:
    """Open a SQLite database with the settings that the server counts on."""
    engine = create_engine(url, pool_size=POOL_SIZE, max_overflow=POOL_OVERFLOW)

    @event.listens_for(engine, "connect")
    def prepare_connection(connection: sqlite3.Connection, _record: object) -> None:
        # The driver must not begin transactions by itself; `begin` below does.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute("PRAGMA trusted_schema = OFF")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("pool_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


class Database:
    """Transactions on one engine.

    `read` never changes anything; `write` commits when its block ends well and rolls back when
    it raises.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.writing_engine = engine.execution_options(pool_writes=True)
        self._readers = sessionmaker(engine, expire_on_commit=False)
        self._writers = sessionmaker(self.writing_engine, expire_on_commit=False)

    @classmethod
    def open(cls, settings: PoolSettings) -> Database:
        return cls(open_engine(settings.database_url))

    @contextmanager
    def read(self) -> Iterator[Session]:
        with self._readers() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        with self._writers.begin() as session:
            yield session

    def answers(self) -> bool:
        """Tell whether the database can be asked at all."""
        try:
            with self.read() as session:
                return bool(session.scalar(text("SELECT 1")) == 1)
        except DatabaseError:
            return False

    def close(self) -> None:
        self.engine.dispose()


def migration_settings(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration, found beside the installed `migrations` package."""
    import migrations

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def newest_revision() -> str:
    """Return the revision that this program works with."""
    head = ScriptDirectory.from_config(migration_settings()).get_current_head()
    assert head is not None, "the migrations package has no revisions"
    return head


def current_revision(connection: Connection) -> str | None:
    """Return the revision that a database is at; None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade_database(settings: PoolSettings) -> str | None:
    """Bring the database of an embedded pool to the newest schema.

    A new database is made; an old one is first copied into the backup folder. The upgrade is one
    transaction: it happens as a whole or not at all.

    Returns
    -------
    str or None
        The path of the backup, when one was made.

    Raises
    ------
    SchemaNewerError
        The database was written by a newer version of this program; nothing is changed.
    DatabaseUnusableError
        The file is no SQLite database.
    """
    newest = newest_revision()
    existed = settings.database_file.exists() and settings.database_file.stat().st_size > 0
    # Hashes of tokens are in it; its companions (-wal, -shm) get the same permissions.
    if not settings.database_file.exists():
        settings.database_file.touch(mode=0o600)
    engine = open_engine(settings.database_url)
    try:
        with engine.connect() as connection:
            found = current_revision(connection)
        if found == newest:
            return None
        _refuse_unknown_revision(found, settings.database_file)
        backup = _back_up(settings, found) if existed else None
        with engine.execution_options(pool_writes=True).begin() as connection:
            command.upgrade(migration_settings(connection), "head")
        return None if backup is None else str(backup)
    except DatabaseError as error:
        raise DatabaseUnusableError(
            f"{settings.database_file} cannot be used as the pool's database: {error.orig}",
            hint="Give another folder with --data, or put back a copy from the backup folder.",
        ) from error
    finally:
        engine.dispose()


def _refuse_unknown_revision(found: str | None, database_file: Path) -> None:
    scripts = ScriptDirectory.from_config(migration_settings())
    known = {revision.revision for revision in scripts.walk_revisions()}
    if found is not None and found not in known:
        raise SchemaNewerError(
            f"{database_file} has schema {found}, which this version of poolctl does not know "
            f"(its newest is {scripts.get_current_head()})",
            hint="Upgrade poolctl; the database was left as it is.",
            details={"found": found},
        )


def _back_up(settings: PoolSettings, revision: str | None) -> Path:
    """Copy the database while it may be in use; return where the copy lies."""
    settings.backup_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = now_utc().strftime("%Y%m%dT%H%M%S%fZ")
    backup = settings.backup_folder / f"pool-{revision or 'empty'}-{stamp}.sqlite3"
    with (
        closing(sqlite3.connect(settings.database_file)) as source,
        closing(sqlite3.connect(backup)) as target,
    ):
        source.backup(target)
    backup.chmod(0o600)
    return backup
