"""Joining the parts of an upload to one file, while later ones are still being sent."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from pathlib import Path

from pool_server.storage.scratch import write_all

log = logging.getLogger("pool_server.uploads")

BUFFER_BYTES = 1024 * 1024


def part_file(folder: Path, number: int) -> Path:
    """Return where a part of an upload lies that has arrived."""
    return folder / f"{number:06d}"


class PartJoiner:
    """A file that grows by the parts of one upload in their order, and its SHA-256.

    Nothing rests on it: it may be behind, or have a part that was sent again since. What has the
    wrong digest in the end is joined anew.
    """

    def __init__(self, folder: Path, target: Path) -> None:
        self.target = target
        self._folder = folder
        self._count = 0
        self._size_bytes = 0
        self._hash = hashlib.sha256()
        self._lock = threading.Lock()
        self._is_over = False

    def join_ahead(self) -> None:
        """Append the parts that are there by now, unless it is over; failures are for later."""
        try:
            with self._lock:
                self._join()
        except OSError as error:
            self._is_over = True
            log.info("parts of %s are joined when all are there: %s", self._folder, error)

    def finish(self, part_count: int) -> str | None:
        """Append the parts that are left and return the SHA-256; None where one was missing."""
        with self._lock:
            self._join()
            is_whole = self._count == part_count and not self._is_over
            self._is_over = True
            return self._hash.hexdigest() if is_whole else None

    def end(self) -> None:
        """Append no more, and remove the file."""
        self._is_over = True
        with self._lock:
            self.target.unlink(missing_ok=True)

    def _join(self) -> None:
        if self._is_over:
            return
        buffer = memoryview(bytearray(BUFFER_BYTES))
        with self.target.open("ab", buffering=0) as output:
            if output.tell() != self._size_bytes:
                # A sweep took it for left over.
                self._is_over = True
                return
            while not self._is_over and part_file(self._folder, self._count + 1).exists():
                with part_file(self._folder, self._count + 1).open("rb", buffering=0) as source:
                    while count := source.readinto(buffer):
                        self._hash.update(buffer[:count])
                        write_all(output, buffer[:count])
                        self._size_bytes += count
                self._count += 1
            os.fdatasync(output.fileno())
