"""What an analysis was made from: its files, and when the recording began."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aggregators.formats import file_digest


@dataclass(frozen=True)
class SourceFile:
    """A file that went into an analysis.

    The name is without the folder: paths often hold names of persons. What is no file (dlib's stock
    detector) has no digest; a model of a pool has an address.
    """

    role: str
    name: str
    sha256: str | None
    address: str | None = None


def source_file(role: str, path: Path, address: str | None = None) -> SourceFile:
    """Describe a file by its name and digest."""
    return SourceFile(role, path.name, file_digest(path), address)


@dataclass(frozen=True)
class RecordingStart:
    """When a recording began, and how that is known."""

    time: datetime
    known_from: str
