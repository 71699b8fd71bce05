"""Check and rebuild the search entries, and make the text index of PostgreSQL.

Triggers of the database keep the entries (`pool_server.database.records`), whatever program
writes.
They are found to differ only where somebody switched the triggers off, or a file was damaged.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from pool_server.database.engine import Database, advisory_key
from pool_server.database.schema import LOCK_TIMEOUT_MS, usable_engine
from pool_server.settings import PoolSettings

_COLUMNS = ("sort_name", "facets", "terms", "words")
_AT_A_TIME = 500


def find_wrong_entries(connection: Connection) -> list[int]:
    """Return the versions whose entries are missing, differ from the records, or are left over.

    Reads all records that versions are found by; part of the caller's transaction.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
    shown = ", ".join(f"s.{name} AS {name}, e.{name} AS kept_{name}" for name in _COLUMNS)
    unlike = " OR ".join(f"e.{name} <> s.{name}" for name in _COLUMNS)
    rows = connection.execute(
        text(
            f"SELECT s.version_id AS version_id, e.version_id AS kept, {shown} "
            "FROM search_sources s LEFT JOIN search_entries e ON e.version_id = s.version_id "
            f"WHERE e.version_id IS NULL OR {unlike}"
        )
    )
    wrong = [row["version_id"] for row in rows.mappings() if _differs(row)]
    left_over = text(
        "SELECT version_id FROM search_entries "
        "WHERE version_id NOT IN (SELECT id FROM model_versions)"
    )
    return sorted([*wrong, *connection.scalars(left_over)])


def _differs(row: Any) -> bool:
    if row["kept"] is None or row["sort_name"] != row["kept_sort_name"]:
        return True
    # Labels come in any order.
    return any(
        sorted(_pieces(row[name])) != sorted(_pieces(row[f"kept_{name}"])) for name in _COLUMNS[1:]
    )


def _pieces(value: str | list[int]) -> Sequence[str | int]:
    return value.replace("\n", " \n ").split(" ") if isinstance(value, str) else value


def write_entries(database: Database, versions: Sequence[int]) -> None:
    """Write the entries of some versions anew; the pool may go on serving."""
    for start in range(0, len(versions), _AT_A_TIME):
        with database.write() as session:
            _write_some(session, versions[start : start + _AT_A_TIME])


def _write_some(session: Session, versions: Sequence[int]) -> None:
    left_over = text(
        "DELETE FROM search_entries WHERE version_id NOT IN (SELECT id FROM model_versions)"
    )
    session.execute(left_over)
    if session.get_bind().dialect.name == "postgresql":
        # As the triggers do it: other changes of these models wait.
        refresh = text("SELECT refresh_search_entries(CAST(:versions AS bigint[]), '{}')")
        session.execute(refresh, {"versions": list(versions)})
        return
    for version in versions:
        session.execute(
            text(
                "INSERT OR REPLACE INTO search_entries "
                "(version_id, sort_name, facets, terms, words) "
                "SELECT version_id, sort_name, facets, terms, words FROM search_sources "
                "WHERE version_id = :version"
            ),
            {"version": version},
        )
    for index in ("search_terms", "search_words"):
        # They may have missed a change of an entry as well.
        session.execute(text(f"INSERT INTO {index} ({index}) VALUES ('rebuild')"))


# The text index of PostgreSQL, which needs the extension pg_trgm.
#
# The baseline migration makes it where it can. An extension may be installed later, so it can be
# made at any time.
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
    """Return whether a pool of the newest schema on PostgreSQL has the index."""
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
