"""Restore a backup into an empty pool, on any database and storage.

A backup of a pool on SQLite and a folder can be put back into one on PostgreSQL and S3, and the
other way round: so an embedded pool grows into a consortium's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Table, func, insert, inspect, select, table, text

from pool_server.database import schema
from pool_server.database.engine import Database
from pool_server.database.records import FIRST_SITE, AuditRecord, SiteRecord, local_act
from pool_server.errors import BackupUnusableError, DigestMismatchError, StartError
from pool_server.operations.backup import Snapshot, blob_path
from pool_server.operations.maintenance import Progress, no_progress
from pool_server.operations.tables import fill_table, read_table, set_counters, tables_of
from pool_server.settings import PoolSettings
from pool_server.storage import Storage, open_storage


@dataclass(frozen=True)
class Restored:
    """The outcome of `restore_snapshot`."""

    rows: int
    files: int
    size_bytes: int


def restore_snapshot(
    settings: PoolSettings, snapshot: Snapshot, *, progress: Progress = no_progress
) -> Restored:
    """Put a snapshot into a pool that has nothing yet.

    Files come first, then all rows in one transaction: whenever this ends early, nothing is
    listed, and the same call goes on. Tokens, users and the audit come back as they were; one
    entry in the audit more records it.
    """
    schema.refuse_unknown_revision(snapshot.revision, snapshot.folder)
    with schema.usable_engine(settings) as engine, engine.connect() as connection:
        _require_no_records(connection, settings)
    storage = open_storage(settings)
    files = {
        digest: size for digest, size in snapshot.files.items() if digest not in snapshot.missing
    }
    _require_no_other_files(storage, files)
    _restore_files(storage, snapshot, files, progress)
    progress(0.9, "writing the database")
    rows = _restore_rows(settings, snapshot)
    schema.upgrade_database(settings)
    return Restored(rows, len(files), sum(files.values()))


def _require_no_records(connection: Connection, settings: PoolSettings) -> None:
    sites = SiteRecord.__tablename__
    if inspect(connection).has_table(sites) and connection.scalar(
        select(func.count()).select_from(table(sites))
    ):
        raise StartError(
            f"the database {settings.database_place} has a pool in it already",
            code="pool_not_empty",
            hint="Restore into an empty data folder or database.",
        )


def _require_no_other_files(storage: Storage, files: dict[str, int]) -> None:
    strangers = [digest for digest in storage.published_digests() if digest not in files]
    if strangers:
        raise StartError(
            f"the storage has {len(strangers)} files that are not of this backup, among them "
            f"{strangers[0]}",
            code="pool_not_empty",
            hint="Restore into an empty folder, bucket, or prefix.",
        )


def _restore_files(
    storage: Storage, snapshot: Snapshot, files: dict[str, int], progress: Progress
) -> None:
    blobs = snapshot.folder.parent.parent / "blobs"
    total, done_bytes = max(1, sum(files.values())), 0
    for digest, size_bytes in files.items():
        progress(0.9 * done_bytes / total, f"writing {len(files)} files")
        done_bytes += size_bytes
        if not storage.has_content(digest):
            _restore_file(storage, blob_path(blobs, digest), digest, size_bytes)


def _restore_file(storage: Storage, source: Path, digest: str, size_bytes: int) -> None:
    """Store one file; its digest is verified on the way."""
    try:
        actual_bytes = source.stat().st_size
        source.open("rb").close()
    except OSError as error:
        raise BackupUnusableError(
            f"{source} cannot be read: {error.strerror}",
            hint="Use another copy of the backup; the files written so far stay.",
        ) from error
    if actual_bytes != size_bytes:
        raise BackupUnusableError(f"{source} has {actual_bytes:,} bytes, expected {size_bytes:,}")
    try:
        storage.store(source, digest)
    except DigestMismatchError as error:
        raise BackupUnusableError(f"{source} is damaged: {error.message}") from error


def require_columns(
    table_: Table, rows: Iterator[dict[str, object]], snapshot: Snapshot
) -> Iterator[dict[str, object]]:
    """Yield rows; raise for one with other columns than its table."""
    expected = set(table_.columns.keys())
    for row in rows:
        if row.keys() != expected:
            raise BackupUnusableError(
                f"{snapshot.folder} has schema {snapshot.revision}, but rows of its table "
                f"{table_.name} differ: found {_names(row.keys() - expected)}, "
                f"expected {_names(expected - row.keys())}",
                code="schema_other",
                hint="A version of poolctl in development wrote it: use that one.",
            )
        yield row


def _names(columns: Iterable[str]) -> str:
    return ", ".join(sorted(columns)) or "nothing more"


def _restore_rows(settings: PoolSettings, snapshot: Snapshot) -> int:
    """Make the schema that the snapshot has and fill it, all in one transaction."""
    database = Database.open(settings)
    try:
        with database.writing_engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL statement_timeout = 0"))
            if schema.current_revision(connection) is None:
                schema.migrate(connection, snapshot.revision)
            elif schema.current_revision(connection) != snapshot.revision:
                raise StartError(
                    f"the database {settings.database_place} has schema "
                    f"{schema.current_revision(connection)}, the backup {snapshot.revision}",
                    code="pool_not_empty",
                    hint="Restore into an empty database.",
                )
            tables = {table_.name: table_ for table_ in tables_of(connection)}
            written = {table_.name: table_ for table_ in snapshot.tables}
            rows = expected = 0
            for name, table_ in tables.items():
                if name in written:
                    path = snapshot.folder / "tables" / f"{name}.jsonl.gz"
                    read = require_columns(table_, read_table(path, written[name]), snapshot)
                    rows += fill_table(connection, table_, read)
                    expected += written[name].rows
            set_counters(connection, tables.values())
            if rows != expected:
                raise BackupUnusableError(
                    f"{snapshot.folder} has {rows} rows, expected {expected} as in the manifest"
                )
            act = local_act("pool.restore", FIRST_SITE, snapshot=snapshot.name, rows=rows)
            connection.execute(insert(AuditRecord).values(**act))
            return rows
    finally:
        database.close()
