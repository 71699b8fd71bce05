"""Files that no record speaks of any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, insert, text

from pool_server.database.records import AuditRecord
from pool_server.database.records.audit import FIRST_SITE, local_act
from pool_server.operations.inventory import Pool, arriving_files, known_files

Progress = Callable[[float, str], None]
AT_ONCE = 50


@dataclass(frozen=True)
class Garbage:
    """What was found.

    Attributes
    ----------
    digests : tuple of str
        Files that no record speaks of.
    removed : tuple of str
        Those that were removed; the others are needed again since.
    """

    digests: tuple[str, ...]
    removed: tuple[str, ...]


def collect_garbage(pool: Pool, *, remove: bool, progress: Progress | None = None) -> Garbage:
    """Find files without a record, and remove them if asked to.

    They come about when versions are deleted, and when a server dies between keeping a file and
    writing its record. Servers may run meanwhile: a file that is on its way in again is spared.
    """
    tell = progress or (lambda _fraction, _text: None)
    tell(0.0, "listing files")
    # In this order: what is published after the listing is not in it.
    there = list(pool.storage.published_digests())
    with pool.engine.connect() as connection:
        needed = known_files(connection).keys() | arriving_files(connection)
    digests = tuple(digest for digest in there if digest not in needed)
    removed: list[str] = []
    if remove:
        for first in range(0, len(digests), AT_ONCE):
            tell(first / len(digests), f"removing {len(digests)} files")
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
            act = local_act("pool.collect-garbage", FIRST_SITE, removed=chosen)
            connection.execute(insert(AuditRecord).values(**act))
        for digest in chosen:
            pool.storage.remove_content(digest)
    return chosen


def _hold_back_uploads(connection: Connection) -> None:
    # SQLite lets one transaction write at a time anyway.
    if connection.dialect.name == "postgresql":
        connection.execute(text("LOCK TABLE uploads, model_versions IN SHARE MODE"))
