"""Work on a pool without a server: unused files, an admin's lost token, the search entries.

Triggers of the database keep the search entries (`pool_server.database.records`) for every program
that writes. They are found to differ only where somebody switched the triggers off, or a file was
damaged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, func, insert, or_, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session, joinedload

from pool_server.database import records
from pool_server.database.engine import Database, advisory_key, write_with_retry
from pool_server.database.schema import LOCK_TIMEOUT_MS, require_newest_schema, usable_engine
from pool_server.errors import StartError
from pool_server.http.identity import find_token
from pool_server.people.browser_sessions import make_login_link
from pool_server.people.tokens import recover_admin, with_secret
from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage
from pool_server.wire.people import TokenCreatedResponse

DELETED = "deleted"
OPEN_UPLOADS = ("receiving", "checking")
Progress = Callable[[float, str], None]
"""Takes the share done, from 0 to 1, and the present activity."""


def no_progress(_fraction: float, _text: str) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Pool:
    """Database and storage of a pool, opened without a server."""

    settings: PoolSettings
    database: Database
    storage: Storage

    @property
    def engine(self) -> Engine:
        return self.database.engine


@contextmanager
def open_pool_offline(settings: PoolSettings) -> Iterator[Pool]:
    """Open a pool that is there."""
    require_newest_schema(settings)
    database = Database.open(settings)
    try:
        yield Pool(settings, database, open_storage(settings))
    finally:
        database.close()


def known_files(connection: Connection) -> dict[str, int]:
    """Return the size of every file that must be there, by digest.

    Those of versions that are not deleted, of rounds, and of secure sessions.
    """
    rows = connection.execute(records.kept_files())
    return {row.digest: row.size_bytes for row in rows}


def arriving_files(connection: Connection) -> set[str]:
    """Return the digests of files that are on their way in."""
    return set(
        connection.scalars(
            select(records.UploadRecord.digest).where(records.UploadRecord.state.in_(OPEN_UPLOADS))
        )
    )


AT_ONCE = 50


@dataclass(frozen=True)
class Garbage:
    """Files that no record speaks of, those removed, and those needed again since."""

    digests: tuple[str, ...]
    removed: tuple[str, ...]


def collect_garbage(pool: Pool, *, remove: bool, progress: Progress = no_progress) -> Garbage:
    """Find files without a record, and remove them if asked to.

    They come about when versions are deleted, and when a server dies between keeping a file and
    writing its record. Servers may run meanwhile: a file that is on its way in again is spared.
    """
    progress(0.0, "listing files")
    # In this order: what is published after the listing is not in it.
    there = list(pool.storage.published_digests())
    with pool.engine.connect() as connection:
        needed = known_files(connection).keys() | arriving_files(connection)
    digests = tuple(digest for digest in there if digest not in needed)
    removed: list[str] = []
    if remove:
        for first in range(0, len(digests), AT_ONCE):
            progress(first / len(digests), f"removing {len(digests)} files")
            removed += _remove(pool, digests[first : first + AT_ONCE])
    return Garbage(digests, tuple(removed))


def _remove(pool: Pool, digests: Sequence[str]) -> list[str]:
    """Remove files while no upload can begin, so that none comes to rely on one of them.

    The audit names those that go.
    """
    with pool.database.writing_engine.begin() as connection:
        _hold_back_uploads(connection)
        needed = known_files(connection).keys() | arriving_files(connection)
        chosen = [digest for digest in digests if digest not in needed]
        if chosen:
            act = records.local_act("pool.collect-garbage", records.FIRST_SITE, removed=chosen)
            connection.execute(insert(records.AuditRecord).values(**act))
        for digest in chosen:
            pool.storage.remove_content(digest)
    return chosen


def _hold_back_uploads(connection: Connection) -> None:
    # SQLite lets one transaction write at a time anyway.
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE uploads, model_versions IN SHARE MODE"))


def make_admin_token(settings: PoolSettings) -> TokenCreatedResponse:
    """Make another admin token of the whole pool; those that are there stay as they are.

    Anyone with access to the database could change it anyway, so nothing more is required. The
    audit records it. Servers may run meanwhile, and take the token at once.
    """
    require_newest_schema(settings)
    database = Database.open(settings)
    try:
        token, secret = write_with_retry(database, recover_admin)
    finally:
        database.close()
    return with_secret(token, secret)


def login_link(settings: PoolSettings, url: str, secret: str) -> str:
    """Return an address that logs a browser in once, with the rights of the token."""
    database = Database.open(settings)
    try:
        link = write_with_retry(
            database, lambda session: make_login_link(session, find_token(session, secret))
        )
    finally:
        database.close()
    return f"{url}/login?link={link}"


def admin_login_link(settings: PoolSettings, url: str) -> str:
    """Return an address that logs a browser in once, as the oldest valid admin of the pool.

    Raises `StartError`: no admin's token is valid.
    """
    require_newest_schema(settings)
    database = Database.open(settings)
    try:
        link = write_with_retry(database, _make_admin_link)
    finally:
        database.close()
    return f"{url}/login?link={link}"


def _make_admin_link(session: Session) -> str:
    token = session.scalar(
        select(records.TokenRecord)
        .options(joinedload(records.TokenRecord.site))
        .where(
            records.TokenRecord.pool_wide,
            records.TokenRecord.role == "admin",
            records.TokenRecord.kind == "program",
            records.TokenRecord.scopes.is_(None),
            records.TokenRecord.revoked_at.is_(None),
            or_(
                records.TokenRecord.expires_at.is_(None),
                records.TokenRecord.expires_at > records.now_utc(),
            ),
        )
        .order_by(records.TokenRecord.created_at)
        .limit(1)
    )
    if token is None:
        raise StartError(
            "no admin's token of the whole pool is valid",
            code="no_admin",
            hint="Make one with `poolctl admin recover`.",
        )
    act = records.local_act("admin.show-login", token.site.name, token=token.name)
    session.add(records.AuditRecord(**act))
    return make_login_link(session, token)


_COLUMNS = ("sort_name", "facets", "terms", "words")
_AT_A_TIME = 500


def find_wrong_entries(connection: Connection) -> list[int]:
    """Return the versions with entries that are missing, wrong, or left over.

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
    """Rewrite the entries of some versions; the pool may go on serving."""
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
