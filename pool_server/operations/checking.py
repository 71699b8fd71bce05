"""Whether database and storage agree, and each with itself."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, and_, case, or_, select, text

from pool_server.database.records import (
    AliasRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RoundContributionRecord,
    RoundRecord,
    SiteRecord,
    WithdrawalRecord,
)
from pool_server.errors import ContentMissingError, StorageFailedError
from pool_server.models.states import WITHDRAWN
from pool_server.operations.inventory import DELETED, Pool, arriving_files, known_files
from pool_server.operations.search_check import find_wrong_entries, write_entries

Progress = Callable[[float, str], None]
ProblemKind = Literal[
    "file-missing", "file-damaged", "file-unreadable", "file-unknown", "lineage", "alias",
    "withdrawal", "database", "search",
]  # fmt: skip
CHUNK_BYTES = 1024 * 1024
_OPEN_ROUND = "open"


@dataclass(frozen=True)
class Problem:
    """Something that is not as it should be.

    Attributes
    ----------
    kind : str
    subject : str
        Address or digest.
    text : str
        What was found, what was expected, what to do.
    is_damage : bool
        False for what costs only room, or was mended.
    """

    kind: ProblemKind
    subject: str
    text: str
    is_damage: bool = True


@dataclass(frozen=True)
class KnownFile:
    """A file that the records speak of.

    Attributes
    ----------
    name : str
        Address of a version that has it, or its round and site.
    state : str
        Of the version, or of the round.
    is_of_round : bool
        It is a contribution, and no version has it.
    """

    name: str
    state: str
    is_of_round: bool = False

    @property
    def is_needed(self) -> bool:
        """Contributions can still be downloaded when their round is over; nothing needs them."""
        return not self.is_of_round or self.state == _OPEN_ROUND


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
    pool: Pool, *, read_files: bool = True, progress: Progress | None = None
) -> PoolCheck:
    """Hold every record against its file and every file against the records.

    What versions are found by can be told from the records, so where it is wrong, it is mended.

    Parameters
    ----------
    read_files : bool
        Compute the SHA-256 of every file; otherwise only whether the storage has it.
    """
    tell = progress or (lambda _fraction, _text: None)
    tell(0.0, "reading the database")
    there = set(pool.storage.published_digests())
    with pool.engine.connect() as connection:
        known = known_files(connection)
        arriving = arriving_files(connection)
        names = _names_of_files(connection)
        problems = [
            *_database_problems(connection),
            *_lineage_problems(connection),
            *_alias_problems(connection),
            *_withdrawal_problems(connection),
        ]
        versions = len(connection.scalars(select(ModelVersionRecord.id)).all())
        unfound = find_wrong_entries(connection)
    problems += _mended_entries(pool, unfound)
    # The storage is asked for each: what is listed may have lost its bytes, and what came in while
    # the list was made is not on it. What is not there may have been deleted since.
    whole = {digest for digest in known if pool.storage.has_content(digest)}
    missing = _still_known(pool, known.keys() - whole)
    problems += _missing_files(pool, missing, names)
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
        problems += _damaged_files(pool, known, whole, names, tell)
    return PoolCheck(versions, len(there), sum(known.values()), tuple(problems))


def _mended_entries(pool: Pool, versions: list[int]) -> Iterator[Problem]:
    if versions:
        write_entries(pool.database, versions)
        yield Problem(
            "search",
            f"{len(versions)} versions",
            f"{len(versions)} versions could not be found by what the records say of them; they "
            "can again",
            is_damage=False,
        )


def _names_of_files(connection: Connection) -> dict[str, KnownFile]:
    """Return what each file is called: the address of one version that has it, or its round."""
    rounds = connection.execute(
        select(RoundContributionRecord.digest, RoundRecord.key, SiteRecord.name, RoundRecord.state)
        .join(RoundRecord, RoundRecord.id == RoundContributionRecord.round_id)
        .join(SiteRecord, SiteRecord.id == RoundContributionRecord.site_id)
    )
    names = {
        digest: KnownFile(f"round {key}, contribution of {site}", state, is_of_round=True)
        for digest, key, site, state in rounds
    }
    versions = connection.execute(
        select(
            ModelVersionRecord.digest,
            SiteRecord.name,
            ModelRecord.name,
            ModelVersionRecord.number,
            ModelVersionRecord.state,
        )
        .join(ModelRecord, ModelRecord.id == ModelVersionRecord.model_id)
        .join(SiteRecord, SiteRecord.id == ModelRecord.site_id)
        # What comes later counts: versions that are not deleted, and the first of them.
        .order_by(
            case((ModelVersionRecord.state == DELETED, 0), else_=1), ModelVersionRecord.id.desc()
        )
    )
    names |= {
        digest: KnownFile(f"{site}/{name}@{number}", state)
        for digest, site, name, number, state in versions
    }
    return names


def _still_known(pool: Pool, digests: Set[str]) -> set[str]:
    """Return those of some files that the database still speaks of."""
    if not digests:
        return set()
    with pool.engine.connect() as connection:
        return digests & known_files(connection).keys()


def _missing_files(pool: Pool, missing: set[str], names: dict[str, KnownFile]) -> Iterator[Problem]:
    for digest in sorted(missing):
        file = names[digest]
        yield Problem(
            "file-missing",
            file.name,
            f"the file {digest} is not in the storage, or not all of it; "
            f"{_remedy(pool, digest, file)}",
            is_damage=file.is_needed,
        )


def _remedy(pool: Pool, digest: str, file: KnownFile) -> str:
    """Say how a file comes back to where the storage has none."""
    if not file.is_needed:
        return f"the round is {file.state}, and nothing needs it any more"
    if file.is_of_round:
        way = (
            "the round cannot be finished without it: have its site contribute the same file "
            "again (poolctl rounds contribute), or cancel the round and hold it again"
        )
    elif file.state == WITHDRAWN:
        # Its bytes may be refused to everybody, also to its own site.
        way = f"it was withdrawn: if nobody needs it, delete it (poolctl models rm {file.name})"
    else:
        address = file.name.rpartition("@")[0]
        way = f"have its site upload the file again: poolctl upload FILE --name {address}"
    place = pool.storage.place_of(digest)
    copy = f"; or copy blobs/{digest[:2]}/{digest} of a backup to {place}" if place else ""
    return way + copy


def _damaged_files(
    pool: Pool, known: dict[str, int], whole: set[str], names: dict[str, KnownFile], tell: Progress
) -> Iterator[Problem]:
    total, done = max(1, sum(known.values())), 0
    for digest, size_bytes in known.items():
        if digest not in whole:
            continue
        tell(done / total, f"reading {names[digest].name}")
        done += size_bytes
        try:
            found, count = _hash_file(pool, digest)
        except (ContentMissingError, StorageFailedError, OSError) as error:
            if _still_known(pool, {digest}):
                yield Problem("file-unreadable", names[digest].name, f"{error}")
            continue
        if (found, count) != (digest, size_bytes):
            yield Problem(
                "file-damaged",
                names[digest].name,
                f"the file has {count:,} bytes and SHA-256 {found}, expected {size_bytes:,} "
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
    """What SQLite finds in its own file; PostgreSQL does not let such things happen."""
    if connection.dialect.name != "sqlite":
        return
    for (line,) in connection.execute(text("PRAGMA integrity_check(20)")):
        if line != "ok":
            yield Problem("database", "SQLite", f"{line}; put a backup back")
    for table, row, other, _ in connection.execute(text("PRAGMA foreign_key_check")).fetchmany(20):
        yield Problem("database", table, f"row {row} refers to a row of {other} that is not there")


def _lineage_problems(connection: Connection) -> Iterator[Problem]:
    wrong = (
        select(ParentRecord.version_id, ParentRecord.child_digest, ModelVersionRecord.digest)
        .join(ModelVersionRecord, ModelVersionRecord.id == ParentRecord.version_id)
        .where(ParentRecord.child_digest != ModelVersionRecord.digest)
    )
    for version_id, written, digest in connection.execute(wrong):
        yield Problem(
            "lineage",
            digest,
            f"the parents of version {version_id} are written down for another file, {written}",
        )


def _alias_problems(connection: Connection) -> Iterator[Problem]:
    strays = (
        select(ModelRecord.name, AliasRecord.name)
        .join(ModelRecord, ModelRecord.id == AliasRecord.model_id)
        .join(ModelVersionRecord, ModelVersionRecord.id == AliasRecord.version_id)
        .where(ModelVersionRecord.model_id != AliasRecord.model_id)
    )
    for model, alias in connection.execute(strays):
        yield Problem("alias", f"{model}@{alias}", "the alias means a version of another model")


def _withdrawal_problems(connection: Connection) -> Iterator[Problem]:
    unlike = (
        select(ModelVersionRecord.digest, ModelVersionRecord.state)
        .outerjoin(WithdrawalRecord, WithdrawalRecord.version_id == ModelVersionRecord.id)
        .where(
            or_(
                and_(ModelVersionRecord.state == WITHDRAWN, WithdrawalRecord.id.is_(None)),
                and_(
                    ModelVersionRecord.state.not_in((WITHDRAWN, DELETED)),
                    WithdrawalRecord.id.is_not(None),
                ),
            )
        )
    )
    for digest, state in connection.execute(unlike):
        yield Problem(
            "withdrawal", digest, f"the version is {state}, and its withdrawal says otherwise"
        )
