"""Rows of all tables as lines of JSON, alike for every database.

::

    tables/<table>.jsonl.gz     one row a line: {"column": value, ...}

Times are ISO 8601 in UTC, JSON columns are nested as they are. Drawings of models are left out, as
they can be made again, and so are browser sessions and log-in links: nobody must be able to log in
to a copy of the pool with them.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import JSON, Connection, DateTime, MetaData, Table, func, insert, select, text

from pool_server.database.records import (
    BrowserSessionRecord,
    DeviceLoginRecord,
    LoginLinkRecord,
    Record,
)
from pool_server.errors import BackupUnusableError

ROWS_AT_ONCE = 1000
_SHORT_LIVED = frozenset(
    record.__tablename__ for record in (BrowserSessionRecord, LoginLinkRecord, DeviceLoginRecord)
)


@dataclass(frozen=True)
class TableFile:
    """One written table."""

    name: str
    rows: int
    sha256: str


def tables_of(connection: Connection) -> list[Table]:
    """Return the pool's tables as the database has them, referred-to before referring."""
    metadata = MetaData()
    # Also those that only a newer server knows, which may have upgraded the database.
    others = {"alembic_version", *_SHORT_LIVED} | {
        name for name, table in Record.metadata.tables.items() if table.info.get("is_derived")
    }
    metadata.reflect(connection, only=lambda name, _: name not in others)
    for table in metadata.tables.values():
        for column in table.columns:
            if isinstance(column.type, JSON):
                # Otherwise no value at all would become the JSON word null.
                column.type.none_as_null = True
    return list(metadata.sorted_tables)


def open_private(path: Path) -> BinaryIO:
    """Open a new file for writing that only its owner may read, wherever the folder lies."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_table(connection: Connection, table: Table, folder: Path) -> TableFile:
    """Write one table, row by row, in the order of its key."""
    path = folder / f"{table.name}.jsonl.gz"
    count = 0
    result = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(
        select(table).order_by(*table.primary_key.columns)
    )
    # Without a name or a time in it, equal rows make equal files.
    with open_private(path) as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        for row in result.mappings():
            line = {name: _plain(value) for name, value in row.items()}
            file.write(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n")
            count += 1
    return TableFile(table.name, count, file_sha256(path))


def read_table(path: Path, expected: TableFile) -> Iterator[dict[str, object]]:
    """Yield the rows of a written table."""
    try:
        digest = file_sha256(path)
        if digest != expected.sha256:
            raise BackupUnusableError(
                f"{path} has SHA-256 {digest}, the manifest says {expected.sha256}",
                hint="Use another snapshot or another copy of the backup.",
            )
        with gzip.open(path, "rb") as file:
            for line in file:
                yield json.loads(line)
    except (OSError, EOFError, ValueError) as error:
        raise BackupUnusableError(f"{path} cannot be read: {error}") from error


def fill_table(connection: Connection, table: Table, rows: Iterable[Mapping[str, Any]]) -> int:
    """Insert rows; return how many."""
    moments = [column.name for column in table.columns if isinstance(column.type, DateTime)]
    keeps_zones = connection.dialect.name != "sqlite"
    waiting: list[dict[str, Any]] = []
    count = 0
    for row in rows:
        values = dict(row)
        for name in moments:
            if values.get(name) is not None:
                moment = datetime.fromisoformat(values[name])
                values[name] = moment if keeps_zones else moment.replace(tzinfo=None)
        waiting.append(values)
        if len(waiting) == ROWS_AT_ONCE:
            count += _insert(connection, table, waiting)
    return count + _insert(connection, table, waiting)


def set_counters(connection: Connection, tables: Iterable[Table]) -> None:
    """Let new rows be counted on from the highest key; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in tables:
        [*key] = table.primary_key.columns
        if len(key) != 1:
            continue
        name = connection.scalar(select(func.pg_get_serial_sequence(table.name, key[0].name)))
        highest = connection.scalar(select(func.max(key[0]))) if name else None
        if highest is not None:
            connection.execute(
                text("SELECT setval(:name, :highest)"), {"name": name, "highest": highest}
            )


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _insert(connection: Connection, table: Table, rows: list[dict[str, object]]) -> int:
    if rows:
        connection.execute(insert(table), rows)
    count = len(rows)
    rows.clear()
    return count


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return moment.isoformat()
    return value
