"""Work on a pool without a server: unused files, and an admin's lost token."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, insert, or_, select, text
from sqlalchemy.orm import Session, joinedload

from pool_server.database import records
from pool_server.database.engine import Database, write_with_retry
from pool_server.database.schema import require_served_schema
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
    require_served_schema(settings)
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
    """Remove files while no upload can begin, so that none can come to rely on one of them.

    The audit lists the removed files.
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
    """Create another admin token of the whole pool; existing ones stay valid.

    Anyone with access to the database could change it anyway, so nothing more is required. The
    audit records it. Running servers accept the token at once.
    """
    require_served_schema(settings)
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
    require_served_schema(settings)
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
