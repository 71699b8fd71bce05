"""Counts in sentences."""


def count_words(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun (``1 model``, ``2 models``)."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def duration_words(seconds: float) -> str:
    """Return a length of time for people ("40 s", "3 min", "2.5 h")."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"
