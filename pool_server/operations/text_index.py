"""The index that PostgreSQL finds text by; it wants the extension pg_trgm.

The baseline migration makes it where it can. An extension may be installed later, so it can be
made at any time.
"""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import DBAPIError

from pool_server.database.engine import advisory_key
from pool_server.database.schema import LOCK_TIMEOUT_MS, usable_engine
from pool_server.settings import PoolSettings

NO_TEXT_INDEX = (
    "text is searched without an index, slowly in a large pool: the database lacks the extension "
    "pg_trgm. Install PostgreSQL's contrib package, as superuser run CREATE EXTENSION pg_trgm in "
    "the database, then `poolctl db upgrade`, which makes the index"
)
_INDEX = "ix_search_entries_terms_words"
# As the baseline migration does it.
_MAKE = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    f"CREATE INDEX {_INDEX} ON search_entries USING gin (terms, words gin_trgm_ops)",
    "DROP INDEX IF EXISTS ix_search_entries_terms",
)
# Of PostgreSQL: insufficient_privilege, undefined_file, feature_not_supported, undefined_object.
_CANNOT_HAVE = frozenset({"42501", "58P01", "0A000", "42704"})


def find_text_index(settings: PoolSettings) -> bool:
    """Tell whether a pool of the newest schema on PostgreSQL has the index."""
    with usable_engine(settings) as engine, engine.connect() as connection:
        return _is_there(connection)


def make_text_index(settings: PoolSettings) -> bool:
    """Make the index where it is missing; False where the extension cannot be had.

    Writers wait while it is made. SQLite has one always.
    """
    if not settings.uses_postgresql:
        return True
    with usable_engine(settings) as engine, engine.connect() as connection:
        if _is_there(connection):
            return True
        connection.rollback()
        try:
            with connection.begin():
                _make(connection)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) in _CANNOT_HAVE:
                return False
            raise
    return True


def _make(connection: Connection) -> None:
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(select(func.pg_advisory_xact_lock(advisory_key("schema"))))
    connection.execute(text(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}"))
    if not _is_there(connection):
        for statement in _MAKE:
            connection.execute(text(statement))


def _is_there(connection: Connection) -> bool:
    return connection.scalar(select(func.to_regclass(_INDEX))) is not None
