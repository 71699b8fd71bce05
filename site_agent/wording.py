"""Counts, sizes and spans of time in sentences."""

from collections.abc import Sequence
from datetime import UTC, datetime


def count_words(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun (``1 model``, ``2 models``)."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def duration_words(seconds: float) -> str:
    """Return a length of time for people ("40 s", "3 min", "2.5 h")."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def size_words(size_bytes: float) -> str:
    """Return a size for people (``132.1 MB``)."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def first_lines(lines: Sequence[str], most: int = 20) -> list[str]:
    """Return the first lines, and how many more there are."""
    more = len(lines) - most
    return [*lines[:most], *([f"... and {more} more"] if more > 0 else [])]


def age_words(since: datetime, now: datetime | None = None) -> str:
    """Return how long ago a moment was, in its largest unit (``5 min``, ``3 h``, ``12 d``)."""
    minutes = max(0, int(((now or datetime.now(UTC)) - since).total_seconds() // 60))
    if minutes < 60:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h" if hours < 48 else f"{hours // 24} d"
