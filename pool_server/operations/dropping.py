"""Dropping the oldest snapshots of a backup folder, and the files that only they had."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pool_server.operations.backup import MANIFEST, alone_in, list_snapshots, translated
from pool_server.storage.local import flush_folder

# A copy, or one that was not finished.
_COPY = re.compile(r"^([0-9a-f]{64})(\.[0-9a-f]+\.tmp)?$")


@dataclass(frozen=True)
class Dropped:
    """What `drop_snapshots` removed.

    Attributes
    ----------
    snapshots : tuple of str
        Names, oldest first.
    files : int
    size_bytes : int
        Of the files.
    """

    snapshots: tuple[str, ...]
    files: int
    size_bytes: int


def drop_snapshots(target: Path, keep: int) -> Dropped:
    """Keep the newest snapshots of a backup folder, and every file that one of them names.

    A snapshot goes before its files: whenever this ends early, those that are listed are whole,
    and the next call goes on. What an interrupted backup has left goes as well.

    Parameters
    ----------
    keep : int
        At least 1.

    Raises
    ------
    BackupUnusableError
        A backup is being made there at this moment, a manifest cannot be read, or the folder
        cannot be written.
    """
    with alone_in(target), translated(target):
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
