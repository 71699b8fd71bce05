"""Numbers with a unit: those of the command line (``10GB``, ``30d``), and counts in sentences."""

from __future__ import annotations

from collections.abc import Mapping

from cli.frame.errors import UsageError

SIZE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}


def count_words(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun (``1 model``, ``2 models``)."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def read_quantity(text: str, units: Mapping[str, int], option: str) -> float:
    """Read a number with one of `units`.

    Raises
    ------
    UsageError
        Naming `option` and the units that there are.
    """
    number = text.strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text.strip().lower()[len(number) :].strip()
    try:
        value = float(number) * units[unit]
    except (ValueError, KeyError):
        raise UsageError(
            f"{option} {text!r}: expected a number with one of {', '.join(units)}"
        ) from None
    if not 0 <= value < float("inf"):
        raise UsageError(f"{option} {text!r}: expected a number of 0 or more")
    return value
