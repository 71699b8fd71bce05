"""Append-only files of JSON objects that survive a crash."""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aggregators.whole_file import private_opener, sync_folder
from site_agent.errors import InvalidInputError
from site_agent.work.locks import locked

Entry = dict[str, Any]


class Ledger:
    """An append-only file of JSON objects, one a line; each is on disk when `append` returns.

    Only the process that holds `at_work` may append. A last line without its end was never
    acknowledged and is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.entries: list[Entry] = []

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Exclude other processes of this party, and read their entries."""
        with locked(self.path.with_name(f".{self.path.name}.lock")):
            self._read()
            yield

    def append(self, entry: Entry) -> None:
        """Write an entry and wait until it is on disk."""
        is_new = not self.path.exists()
        with open(self.path, "ab", opener=private_opener) as file:
            file.write(json.dumps(entry, sort_keys=True).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_folder(self.path.parent)
        self.entries.append(entry)

    def find(self, kind: str, **fields: str) -> list[Entry]:
        """Return the entries of a kind with these fields."""
        return [
            entry
            for entry in self.entries
            if entry["kind"] == kind and all(entry.get(name) == fields[name] for name in fields)
        ]

    def _read(self) -> None:
        content = b""
        with contextlib.suppress(FileNotFoundError):
            content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        try:
            self.entries = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise InvalidInputError(
                f"{self.path}: the ledger is damaged: {error}",
                hint="its counts are lost: take part under a new key, and with other data",
            ) from error
