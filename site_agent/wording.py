"""Counts in sentences."""

from __future__ import annotations


def count_words(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun (``1 model``, ``2 models``)."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
