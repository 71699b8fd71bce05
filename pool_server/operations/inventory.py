"""Which files the database speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, select

from pool_server.database.engine import Database
from pool_server.database.kept_files import kept_files
from pool_server.database.records import UploadRecord
from pool_server.database.schema import require_newest_schema
from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage

DELETED = "deleted"
OPEN_UPLOADS = ("receiving", "checking")


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
def opened_pool(settings: PoolSettings) -> Iterator[Pool]:
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
    rows = connection.execute(kept_files())
    return {row.digest: row.size_bytes for row in rows}


def arriving_files(connection: Connection) -> set[str]:
    """Return the digests of files that are on their way in."""
    return set(
        connection.scalars(select(UploadRecord.digest).where(UploadRecord.state.in_(OPEN_UPLOADS)))
    )
