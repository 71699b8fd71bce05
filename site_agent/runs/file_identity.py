"""Which file a path leads to, under whatever name."""

from __future__ import annotations

from pathlib import Path


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return what tells the file at a path from all others; None where there is none.

    Links and names that differ in case lead to the same one. For many paths at once; two are
    compared by `Path.samefile`.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
