"""Compare the schema of the database with the newest one, and upgrade it.

An embedded pool upgrades by itself when it starts, after copying its file. On PostgreSQL, which
several processes share, an admin runs ``poolctl db upgrade`` once, while servers of the release
before go on; a server only compares, and refuses to start with a schema that it cannot serve.

A revision alone says little: tables may have been changed by hand or by a version in development.
So the database also keeps the digest of its tables, with the oldest program that can serve them.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import Script, ScriptDirectory
from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    delete,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import DatabaseError

import migrations
from pool_server.database.engine import advisory_key, first_line, open_engine
from pool_server.database.records import (
    FIRST_SITE,
    AuditRecord,
    SchemaFactsRecord,
    local_act,
    now_utc,
)
from pool_server.errors import DatabaseUnusableError, StartError
from pool_server.settings import PoolSettings, setting_name

# How long an upgrade waits for a table that is in use.
LOCK_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class SchemaChange:
    """Revisions before (None: an empty database) and after an upgrade, and the backup's path."""

    before: str | None
    now: str
    backup: Path | None = None


def migration_settings(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration for the installed `migrations` package."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


@cache
def known_revisions() -> dict[str, Script]:
    """Return the migrations of this program, the newest first."""
    scripts = ScriptDirectory.from_config(migration_settings())
    return {script.revision: script for script in scripts.walk_revisions()}


def newest_revision() -> str:
    """Return the revision that this program works with."""
    return next(iter(known_revisions()))


def current_revision(connection: Connection) -> str | None:
    """Return the revision of a database; None for an empty one."""
    return MigrationContext.configure(connection).get_current_revision()


def find_revision(settings: PoolSettings) -> str | None:
    """Return the revision of the pool's database, or None for an empty one."""
    if not settings.uses_postgresql and not settings.database_file.exists():
        return None
    with usable_engine(settings) as engine, engine.connect() as connection:
        return current_revision(connection)


def list_columns(connection: Connection) -> dict[str, list[str]]:
    """Return the columns of the pool's tables, alike on every database."""
    inspector = inspect(connection)
    columns = inspector.get_multi_columns()
    keys = inspector.get_multi_pk_constraint()
    return {
        name: [
            *sorted(
                f"{column['name']}{' or null' if column['nullable'] else ''}"
                for column in columns[schema, name]
            ),
            f"by {', '.join(keys[schema, name]['constrained_columns'])}",
        ]
        for schema, name in sorted(columns, key=lambda key: key[1])
        if name != "alembic_version"
    }


def digest_columns(columns: Mapping[str, list[str]]) -> str:
    return hashlib.sha256(json.dumps(columns, sort_keys=True).encode()).hexdigest()


def require_served_schema(settings: PoolSettings) -> None:
    """Raise unless this program can serve the database: of its own schema, or a later one."""
    revision = find_revision(settings)
    if revision in {None, *known_revisions()} and revision != newest_revision():
        raise StartError(
            f"the database {settings.database_place} "
            f"{'is empty' if revision is None else f'has schema {revision}'}; "
            f"this version of poolctl works with schema {newest_revision()}",
            code="schema_older",
            hint="Run `poolctl db upgrade` with the same settings."
            if revision or settings.uses_postgresql
            else "Name the data folder of a pool; `poolctl serve` makes a new one.",
        )
    with usable_engine(settings) as engine, engine.connect() as connection:
        refuse_unknown_schema(connection, settings)


def refuse_unknown_schema(connection: Connection, settings: PoolSettings) -> None:
    """Raise `StartError` for a schema that this program can neither serve nor upgrade."""
    revision = current_revision(connection)
    if revision is None:
        return
    columns = list_columns(connection)
    script = known_revisions().get(revision)
    if script is not None:
        if digest_columns(columns) != script.module.schema_digest:
            raise _other_tables(settings, revision, columns)
        return
    facts = None
    if SchemaFactsRecord.__tablename__ in columns:
        facts = connection.execute(
            select(SchemaFactsRecord.digest, SchemaFactsRecord.oldest_program).where(
                SchemaFactsRecord.revision == revision
            )
        ).first()
    is_served = (
        facts is not None
        and facts.digest == digest_columns(columns)
        and facts.oldest_program in known_revisions()
    )
    if not is_served:
        refuse_unknown_revision(revision, settings.database_place)


def _other_tables(
    settings: PoolSettings, revision: str, columns: dict[str, list[str]]
) -> StartError:
    """Name the tables that differ from those that the migrations make."""
    with create_engine("sqlite://").begin() as connection:
        command.upgrade(migration_settings(connection), revision)
        expected = list_columns(connection)
    names = [name for name in {**expected, **columns} if expected.get(name) != columns.get(name)]
    first = names[0]
    return StartError(
        f"{settings.database_place} says that it has schema {revision}, but {len(names)} of its "
        f"tables differ, among them {first}: found {_difference(columns, expected, first)}, "
        f"expected {_difference(expected, columns, first)}",
        code="schema_other",
        hint="A version of poolctl in development made it, or it was changed by hand: put back a "
        "backup. The database was left as it is.",
    )


def _difference(some: dict[str, list[str]], others: dict[str, list[str]], name: str) -> str:
    if name not in some:
        return "no such table"
    return ", ".join(sorted({*some[name]} - {*others.get(name, ())})) or "nothing more"


def upgrade_database(settings: PoolSettings) -> SchemaChange:
    """Bring the database of a pool to the newest schema; a new one is made.

    The upgrade is one transaction: it happens as a whole or not at all. A SQLite file is first
    copied into the backup folder. On PostgreSQL, of several upgrades at once one does the work
    and the others wait for it.
    """
    if settings.uses_postgresql:
        return _upgrade_postgresql(settings)
    return _upgrade_sqlite(settings)


def _upgrade_postgresql(settings: PoolSettings) -> SchemaChange:
    newest = newest_revision()
    with usable_engine(settings) as engine, engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL lock_timeout = 0"))
        connection.execute(select(func.pg_advisory_xact_lock(advisory_key("schema"))))
        connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"))
        before = current_revision(connection)
        refuse_unknown_schema(connection, settings)
        if before is not None and before not in known_revisions():
            return SchemaChange(before, before)
        if before != newest:
            _require_utf8(connection, settings)
            _upgrade(connection, before, newest)
    return SchemaChange(before, newest)


def _upgrade_sqlite(settings: PoolSettings) -> SchemaChange:
    newest = newest_revision()
    existed = settings.database_file.exists() and settings.database_file.stat().st_size > 0
    # Hashes of tokens are in it; its companions (-wal, -shm) get the same permissions.
    if not settings.database_file.exists():
        settings.database_file.touch(mode=0o600)
    with usable_engine(settings) as engine:
        with engine.connect() as connection:
            before = current_revision(connection)
            refuse_unknown_schema(connection, settings)
        if before == newest or not (before is None or before in known_revisions()):
            return SchemaChange(before, before)
        backup = _back_up(settings, before) if existed else None
        with engine.execution_options(pool_writes=True).begin() as connection:
            _upgrade(connection, before, newest)
        return SchemaChange(before, newest, backup)


def _upgrade(connection: Connection, before: str | None, newest: str) -> None:
    """Bring the schema to the newest revision; the audit records it, except for a new pool."""
    migrate(connection, newest)
    if before is not None:
        act = local_act("pool.upgrade", FIRST_SITE, found=before, now=newest)
        connection.execute(insert(AuditRecord).values(**act))


def migrate(connection: Connection, revision: str) -> None:
    """Run the migrations up to a revision, and keep the digest of the tables."""
    command.upgrade(migration_settings(connection), revision)
    columns = list_columns(connection)
    if SchemaFactsRecord.__tablename__ in columns:
        connection.execute(delete(SchemaFactsRecord))
        connection.execute(
            insert(SchemaFactsRecord).values(
                revision=revision,
                digest=digest_columns(columns),
                oldest_program=migrations.OLDEST_PROGRAM,
            )
        )


@contextmanager
def usable_engine(settings: PoolSettings) -> Iterator[Engine]:
    """Open the database for a moment."""
    engine = open_engine(settings.engine_url)
    try:
        yield engine
    except DatabaseError as error:
        raise DatabaseUnusableError(
            f"{settings.database_place} cannot be used as the pool's database: {first_line(error)}",
            hint="Is it running, and are name and password right? They stand in "
            f"{setting_name('database_url')}."
            if settings.uses_postgresql
            else "Give another folder with --data, or put back a copy from the backup folder.",
        ) from error
    finally:
        engine.dispose()


def refuse_unknown_revision(revision: str, place: object) -> None:
    """Raise `StartError` for a revision that this program does not know."""
    oldest = min(known_revisions())
    if revision < oldest:
        raise StartError(
            f"{place} has schema {revision}, older than {oldest}, the first that this version of "
            "poolctl upgrades",
            code="schema_older",
            hint="Upgrade by the releases in between, one after the other; the database was left "
            "as it is.",
        )
    if revision not in known_revisions():
        raise StartError(
            f"{place} has schema {revision}, which this version of poolctl does "
            f"not know (its newest is {newest_revision()})",
            code="schema_newer",
            hint="Upgrade poolctl; the database was left as it is.",
        )


def _require_utf8(connection: Connection, settings: PoolSettings) -> None:
    encoding = connection.scalar(text("SHOW server_encoding"))
    if encoding != "UTF8":
        raise DatabaseUnusableError(
            f"{settings.database_place} has the encoding {encoding}; a pool needs UTF8",
            hint="Create it again: CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0",
        )


def _back_up(settings: PoolSettings, revision: str | None) -> Path:
    """Copy the database while it may be in use; return where the copy lies."""
    settings.backup_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = now_utc().strftime("%Y%m%dT%H%M%S%fZ")
    backup = settings.backup_folder / f"pool-{revision or 'empty'}-{stamp}.sqlite3"
    # Nobody else may read it from the first moment on, whatever the folder allows.
    backup.touch(mode=0o600, exist_ok=False)
    with (
        closing(sqlite3.connect(settings.database_file)) as source,
        closing(sqlite3.connect(backup)) as target,
    ):
        source.backup(target)
    return backup
