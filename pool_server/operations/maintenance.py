"""Work on a pool without a server: unused files, an admin's lost token, and checks of all files."""

import hashlib
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, TypeVar

from sqlalchemy import Connection, Engine, case, insert, or_, select, text
from sqlalchemy.orm import Session, joinedload

from pool_server.database import records
from pool_server.database.engine import Database, write_with_retry
from pool_server.database.records import (
    OPEN_UPLOADS,
    ModelRecord,
    ModelVersionRecord,
    RoundContributionRecord,
    RoundRecord,
    SecureFileRecord,
    SecureSessionRecord,
    SiteRecord,
    UploadRecord,
    kept_files,
)
from pool_server.database.schema import require_served_schema
from pool_server.errors import ContentMissingError, StartError, StorageFailedError
from pool_server.http.identity import find_token
from pool_server.people.browser_sessions import make_login_link
from pool_server.people.tokens import recover_admin, with_secret
from pool_server.registry.access import DELETED
from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage
from pool_server.wire.people import TokenCreatedResponse

T = TypeVar("T")
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
    rows = connection.execute(kept_files())
    return {row.digest: row.size_bytes for row in rows}


def arriving_files(connection: Connection) -> set[str]:
    """Return the digests of files that are on their way in."""
    return set(
        connection.scalars(select(UploadRecord.digest).where(UploadRecord.state.in_(OPEN_UPLOADS)))
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
    return with_secret(*_write_offline(settings, recover_admin))


def login_link(settings: PoolSettings, url: str, secret: str) -> str:
    """Return an address that logs a browser in once, with the rights of the token."""
    link = _write_offline(settings, lambda s: make_login_link(s, find_token(s, secret)))
    return f"{url}/login?link={link}"


def admin_login_link(settings: PoolSettings, url: str) -> str:
    """Return an address that logs a browser in once, as the oldest valid admin of the pool.

    Raises `StartError`: no admin's token is valid.
    """
    return f"{url}/login?link={_write_offline(settings, _make_admin_link)}"


def _write_offline(settings: PoolSettings, act: Callable[[Session], T]) -> T:
    require_served_schema(settings)
    database = Database.open(settings)
    try:
        return write_with_retry(database, act)
    finally:
        database.close()


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


ProblemKind = Literal["file-missing", "file-damaged", "file-unreadable", "file-unknown", "database"]
CHUNK_BYTES = 1024 * 1024
_STATE = "optimiser's state"


@dataclass(frozen=True)
class Problem:
    """A problem of an address or a digest: found, expected, and advice.

    Waste of room is no damage.
    """

    kind: ProblemKind
    subject: str
    text: str
    is_damage: bool = True


@dataclass(frozen=True)
class PoolCheck:
    """The outcome of `check_pool`."""

    versions: int
    files: int
    size_bytes: int
    problems: tuple[Problem, ...]

    @property
    def is_sound(self) -> bool:
        return not any(problem.is_damage for problem in self.problems)


def check_pool(
    pool: Pool, *, read_files: bool = True, progress: Progress = no_progress
) -> PoolCheck:
    """Hold every record against its file and every file against the records.

    Without `read_files` a file's SHA-256 is not computed.
    """
    progress(0.0, "reading the database")
    there = set(pool.storage.published_digests())
    with pool.engine.connect() as connection:
        known = known_files(connection)
        arriving = arriving_files(connection)
        names = _names_of_files(connection)
        problems = list(_database_problems(connection))
        kept = ModelVersionRecord.state != DELETED
        versions = len(connection.scalars(select(ModelVersionRecord.id).where(kept)).all())
    # The storage is asked for each: what is listed may have lost its bytes, and what came in while
    # the list was made is not on it. What is not there may have been deleted since.
    whole = {digest for digest in known if pool.storage.has_content(digest)}
    missing = _keep_known(pool, known.keys() - whole)
    problems += _find_missing_files(pool, missing, names)
    problems += [
        Problem(
            "file-unknown",
            digest,
            f"no record speaks of the file {digest}; `poolctl admin gc` removes it",
            is_damage=False,
        )
        for digest in sorted(there - known.keys() - arriving)
    ]
    if read_files:
        problems += _find_damaged_files(pool, known, whole, names, progress)
    return PoolCheck(versions, len(there), sum(known.values()), tuple(problems))


def _names_of_files(connection: Connection) -> dict[str, str]:
    """Return a name for each file: the address of one of its versions, or its session."""
    rounds = connection.execute(
        select(RoundContributionRecord.digest, RoundRecord.key, SiteRecord.name)
        .join(RoundRecord, RoundRecord.id == RoundContributionRecord.round_id)
        .join(SiteRecord, SiteRecord.id == RoundContributionRecord.site_id)
    )
    names = {digest: f"round {key}, contribution of {site}" for digest, key, site in rounds}
    sessions = connection.execute(
        select(SecureFileRecord.digest, SecureSessionRecord.key, SiteRecord.name)
        .join(SecureSessionRecord, SecureSessionRecord.id == SecureFileRecord.session_id)
        .join(SiteRecord, SiteRecord.id == SecureFileRecord.site_id)
    )
    names |= {digest: f"session {key}, file of {site}" for digest, key, site in sessions}
    states = select(RoundRecord.state_digest, RoundRecord.key)
    names |= {
        digest: f"round {key}, {_STATE}"
        for digest, key in connection.execute(states)
        if digest is not None
    }
    versions = connection.execute(
        select(
            ModelVersionRecord.digest, SiteRecord.name, ModelRecord.name, ModelVersionRecord.number
        )
        .join(ModelRecord, ModelRecord.id == ModelVersionRecord.model_id)
        .join(SiteRecord, SiteRecord.id == ModelRecord.site_id)
        # Later entries count: versions that are not deleted, and the first of them.
        .order_by(
            case((ModelVersionRecord.state == DELETED, 0), else_=1), ModelVersionRecord.id.desc()
        )
    )
    names |= {digest: f"{site}/{name}@{number}" for digest, site, name, number in versions}
    return names


def _keep_known(pool: Pool, digests: Set[str]) -> set[str]:
    """Return those of some files that the database still speaks of."""
    if not digests:
        return set()
    with pool.engine.connect() as connection:
        return digests & known_files(connection).keys()


def _find_missing_files(pool: Pool, missing: set[str], names: dict[str, str]) -> Iterator[Problem]:
    for digest in sorted(missing):
        yield Problem(
            "file-missing",
            names[digest],
            f"the file {digest} is not in the storage, or not all of it; "
            f"{_remedy(pool, digest, names[digest])}",
        )


def _remedy(pool: Pool, digest: str, name: str) -> str:
    """Tell how to restore a file that the storage has lost."""
    address, _, number = name.partition("@")
    if number:
        way = f"have its site upload it again: poolctl upload FILE --name {address}"
    elif name.endswith(_STATE):
        way = "without it the next round cannot be combined; put a backup back"
    else:
        way = "have its site contribute the same file again (poolctl rounds contribute)"
    place = pool.storage.place_of(digest)
    copy = f"; or copy blobs/{digest[:2]}/{digest} of a backup to {place}" if place else ""
    return way + copy


def _find_damaged_files(
    pool: Pool, known: dict[str, int], whole: set[str], names: dict[str, str], progress: Progress
) -> Iterator[Problem]:
    total, done_bytes = max(1, sum(known.values())), 0
    for digest, size_bytes in known.items():
        if digest not in whole:
            continue
        progress(done_bytes / total, f"reading {names[digest]}")
        done_bytes += size_bytes
        try:
            actual, count = _hash_file(pool, digest)
        except (ContentMissingError, StorageFailedError, OSError) as error:
            if _keep_known(pool, {digest}):
                yield Problem("file-unreadable", names[digest], f"{error}")
            continue
        if (actual, count) != (digest, size_bytes):
            yield Problem(
                "file-damaged",
                names[digest],
                f"the file has {count:,} bytes and SHA-256 {actual}, expected {size_bytes:,} "
                f"bytes and {digest}; remove {pool.storage.place_of(digest)}, then "
                f"{_remedy(pool, digest, names[digest])}",
            )


def _hash_file(pool: Pool, digest: str) -> tuple[str, int]:
    hashed, count = hashlib.sha256(), 0
    with pool.storage.open_content(digest) as file:
        while chunk := file.read(CHUNK_BYTES):
            hashed.update(chunk)
            count += len(chunk)
    return hashed.hexdigest(), count


def _database_problems(connection: Connection) -> Iterator[Problem]:
    """Return the damage that SQLite finds in its own file; PostgreSQL has no such check."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.execute(text("PRAGMA integrity_check(20)")):
        if line != "ok":
            yield Problem("database", "SQLite", f"{line}; put a backup back")
    for table, row, other, _ in connection.execute(text("PRAGMA foreign_key_check")).fetchmany(20):
        yield Problem("database", table, f"row {row} refers to a row of {other} that is not there")
