"""Backups: a snapshot of the database, and every file that it refers to.

::

    blobs/ab/ab12...                        files, shared by all snapshots
    snapshots/20260301T120000Z/tables/      `pool_server.operations.restore`
    snapshots/20260301T120000Z/manifest.json   written last: it completes the snapshot
    backup.lock                             held while snapshots are written or dropped

A file is copied once; further snapshots into the same folder copy only new files. Servers may
keep running. The database is read first, in one transaction; files never change, so they can be
copied afterwards. A file that `poolctl admin gc` removes meanwhile is missing.
"""

import fcntl
import gzip
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from sqlalchemy import Connection, text

from pool_server.database.records import now_utc
from pool_server.database.schema import current_revision
from pool_server.errors import BackupUnusableError, ContentMissingError
from pool_server.operations.maintenance import Pool, Progress, known_files, no_progress
from pool_server.operations.tables import (
    TableFile,
    open_private,
    read_table,
    tables_of,
    write_table,
)
from pool_server.storage.local import flush_folder

SCHEMA = "poolctl-backup/1"
MANIFEST = "manifest.json"
CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Snapshot:
    """A backup as described by its manifest, named by its time (UTC)."""

    folder: Path
    name: str
    revision: str
    tables: tuple[TableFile, ...]
    files: dict[str, int]
    """Sizes of the pool's files, by digest."""
    missing: tuple[str, ...] = ()
    """Digests of files that the storage had lost or damaged, which the backup lacks."""

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def gaps(self) -> list[str]:
        """Name the parts of the pool that the snapshot lacks."""
        return [f"the pool's file {digest} was missing or damaged" for digest in self.missing]


@dataclass(frozen=True)
class BackupMade:
    """The outcome of `make_backup`."""

    snapshot: Snapshot
    copied_files: int
    copied_bytes: int


def make_backup(pool: Pool, target: Path, *, progress: Progress = no_progress) -> BackupMade:
    """Add a snapshot of a pool to a folder of snapshots.

    Missing or damaged files do not prevent copying the others; `Snapshot.missing` lists them.
    """
    with translate_errors(target):
        target.mkdir(parents=True, exist_ok=True, mode=0o700)
        for folder in (target / "snapshots", target / "blobs"):
            folder.mkdir(exist_ok=True, mode=0o700)
            # `target` may be a folder that all can read.
            folder.chmod(0o700)
    with alone_in(target):
        return _make_backup(pool, target, progress)


def _make_backup(pool: Pool, target: Path, progress: Progress) -> BackupMade:
    name = now_utc().strftime("%Y%m%dT%H%M%S%fZ")
    with translate_errors(target):
        folder = target / "snapshots" / name
        # One by one, because `parents=True` would ignore the mode for parents.
        for made in (folder, folder / "tables"):
            made.mkdir(mode=0o700)
    progress(0.0, "reading the database")
    with _database_snapshot(pool) as connection, translate_errors(target):
        revision = current_revision(connection)
        files = known_files(connection)
        written = tuple(
            write_table(connection, table, folder / "tables") for table in tables_of(connection)
        )
        _require_one_pool(folder, target)
    copied, missing = _copy_files(pool, files, target / "blobs", progress)
    snapshot = Snapshot(folder, name, str(revision), written, files, tuple(missing))
    with translate_errors(target):
        _write_manifest(snapshot)
    return BackupMade(snapshot, len(copied), sum(files[digest] for digest in copied))


def _require_one_pool(folder: Path, target: Path) -> None:
    """Raise for earlier snapshots of another pool: in time `drop_snapshots` would drop them all.

    So it is where a pool was lost, and its service began an empty one in its place.
    """
    for manifest in sorted(target.glob(f"snapshots/*/{MANIFEST}"))[-1:]:
        began, other = _beginning(folder), _beginning(manifest.parent)
        if other and began != other:
            shutil.rmtree(folder)
            raise BackupUnusableError(
                f"{target} has snapshots of another pool: it began at {other}, this one at {began}",
                hint="Give each pool a folder of its own. If this should be the other pool: is its "
                "disk mounted? `poolctl admin restore` puts it into an empty folder.",
            )


def _beginning(snapshot: Path) -> str:
    """Return when the first site was made, which no restore changes; empty if unreadable."""
    with (
        suppress(OSError, EOFError, ValueError),
        gzip.open(snapshot / "tables" / "sites.jsonl.gz") as file,
    ):
        return str(json.loads(file.readline())["created_at"])
    return ""


def list_snapshots(target: Path) -> list[Snapshot]:
    """Return the complete snapshots of a backup folder, oldest first."""
    snapshots = [
        read_snapshot(manifest.parent)
        for manifest in sorted(target.glob(f"snapshots/*/{MANIFEST}"))
    ]
    if not snapshots:
        raise BackupUnusableError(
            f"{target} has no whole snapshot of a pool",
            hint="Name a folder that `poolctl admin backup` has written.",
        )
    return snapshots


def read_snapshot(folder: Path) -> Snapshot:
    """Read a snapshot's manifest."""
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA:
            raise BackupUnusableError(
                f"{folder} was written as {document['schema']}, this version reads {SCHEMA}",
                hint="Use the poolctl that wrote it, or a newer one.",
            )
        return Snapshot(
            folder,
            document["name"],
            document["revision"],
            tuple(TableFile(**table) for table in document["tables"]),
            document["files"],
            tuple(document["missing"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BackupUnusableError(f"{folder / MANIFEST} cannot be read: {error}") from error


def blob_path(blobs: Path, digest: str) -> Path:
    return blobs / digest[:2] / digest


def check_snapshot(snapshot: Snapshot, *, progress: Progress = no_progress) -> list[str]:
    """Verify a whole snapshot and return its problems as sentences."""
    problems = snapshot.gaps
    for table in snapshot.tables:
        try:
            rows = sum(
                1 for _ in read_table(snapshot.folder / "tables" / f"{table.name}.jsonl.gz", table)
            )
        except BackupUnusableError as error:
            problems.append(error.message)
            continue
        if rows != table.rows:
            problems.append(f"table {table.name} has {rows} rows, expected {table.rows}")
    blobs = snapshot.folder.parent.parent / "blobs"
    copied = [digest for digest in snapshot.files if digest not in snapshot.missing]
    for number, digest in enumerate(copied):
        progress(number / len(copied), f"reading {digest[:12]}")
        try:
            with blob_path(blobs, digest).open("rb") as file:
                stored_digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            problems.append(f"file {digest}: {error.strerror}")
            continue
        if stored_digest != digest:
            problems.append(f"file {digest} has SHA-256 {stored_digest}")
    return problems


@contextmanager
def _database_snapshot(pool: Pool) -> Iterator[Connection]:
    """Open a connection to a snapshot of the database, however long it reads."""
    engine = pool.engine
    if pool.database.is_shared:
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as connection:
        if pool.database.is_shared:
            connection.execute(text("SET TRANSACTION READ ONLY"))
            connection.execute(text("SET LOCAL statement_timeout = 0"))
        yield connection


def _copy_files(
    pool: Pool, files: dict[str, int], blobs: Path, progress: Progress
) -> tuple[list[str], list[str]]:
    """Copy new files; return the copied ones, and those missing or damaged in the pool."""
    copied: list[str] = []
    missing: list[str] = []
    total, done_bytes = max(1, sum(files.values())), 0
    for digest, size_bytes in files.items():
        progress(done_bytes / total, f"copying {len(files)} files")
        done_bytes += size_bytes
        place = blob_path(blobs, digest)
        if place.is_file() and place.stat().st_size == size_bytes:
            continue
        try:
            with pool.storage.open_content(digest) as source, translate_errors(blobs):
                (copied if _copy_whole(source, place, digest) else missing).append(digest)
        except ContentMissingError:
            missing.append(digest)
    return copied, missing


def _copy_whole(source: BinaryIO, place: Path, digest: str) -> bool:
    """Copy a file, renaming it to its final name when complete; return False for a wrong digest."""
    place.parent.mkdir(exist_ok=True, mode=0o700)
    temporary = place.with_name(f"{place.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open_private(temporary) as file:
            if _copy_bytes(source, file) != digest:
                return False
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(place)
        flush_folder(place.parent)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _copy_bytes(source: BinaryIO, target: BinaryIO) -> str | None:
    """Copy a file and return its SHA-256, or None if the pool's disk cannot read all of it."""
    hashed = hashlib.sha256()
    while True:
        try:
            chunk = source.read(CHUNK_BYTES)
        except OSError:
            return None
        if not chunk:
            return hashed.hexdigest()
        hashed.update(chunk)
        target.write(chunk)


def _write_manifest(snapshot: Snapshot) -> None:
    document = {
        "schema": SCHEMA,
        "name": snapshot.name,
        "revision": snapshot.revision,
        "tables": [asdict(table) for table in snapshot.tables],
        "files": snapshot.files,
        "missing": list(snapshot.missing),
    }
    path = snapshot.folder / MANIFEST
    temporary = path.with_suffix(".tmp")
    with open_private(temporary) as file:
        file.write(json.dumps(document, indent=1, sort_keys=True).encode())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    flush_folder(snapshot.folder)


@contextmanager
def alone_in(target: Path) -> Iterator[None]:
    """Lock a backup folder against other writers.

    The operating system releases the lock when the process ends, however it ends.
    """
    with (
        translate_errors(target),
        os.fdopen(os.open(target / "backup.lock", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file,
    ):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupUnusableError(
                f"another backup to {target} is under way", hint="Wait for it to end."
            ) from error
        yield


@contextmanager
def translate_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        free = shutil.disk_usage(place).free if place.exists() else 0
        raise BackupUnusableError(
            f"the backup {place} cannot be written: {error.strerror or error}",
            hint=f"{free:,} bytes are free there." if free else "Name another folder.",
        ) from error


# A copy, finished or not.
_COPY = re.compile(r"^([0-9a-f]{64})(\.[0-9a-f]+\.tmp)?$")


@dataclass(frozen=True)
class Dropped:
    """The snapshots, oldest first, and the files that `drop_snapshots` removed."""

    snapshots: tuple[str, ...]
    files: int
    size_bytes: int


def drop_snapshots(target: Path, keep: int) -> Dropped:
    """Drop all but the newest `keep` snapshots of a backup folder, and files that only they use.

    Snapshots are removed before their files, so if this is interrupted, the listed snapshots are
    complete and the next call continues. Leftovers of interrupted backups are removed, too.
    """
    with alone_in(target), translate_errors(target):
        whole = list_snapshots(target)
        kept, old = whole[-keep:], whole[:-keep]
        for snapshot in old:
            (snapshot.folder / MANIFEST).unlink()
            flush_folder(snapshot.folder)
        names = {snapshot.name for snapshot in kept}
        for folder in (target / "snapshots").iterdir():
            if folder.name not in names and not (folder / MANIFEST).exists():
                shutil.rmtree(folder)
        needed = {digest for snapshot in kept for digest in snapshot.files}
        sizes = [_remove(path) for path in _copies_without(target / "blobs", needed)]
    return Dropped(tuple(snapshot.name for snapshot in old), len(sizes), sum(sizes))


def _copies_without(blobs: Path, needed: set[str]) -> Iterator[Path]:
    for path in list(blobs.glob("[0-9a-f][0-9a-f]/*")):
        match = _COPY.fullmatch(path.name)
        if match is not None and (match[2] or match[1] not in needed):
            yield path


def _remove(path: Path) -> int:
    size_bytes = path.stat().st_size
    path.unlink()
    return size_bytes
