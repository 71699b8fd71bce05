"""Numbers with a unit: those of the command line (``10GB``, ``30d``), and counts in sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta

from cli.frame.errors import UsageError
from site_agent.wording import count_words

__all__ = ["SIZE_UNITS", "age_words", "count_words", "first_lines", "read_moment", "read_quantity"]

SIZE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SPAN = re.compile(r"([0-9]{1,4})([mhdw])")
_SPAN_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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


def read_moment(text: str, option: str, now: datetime, *, ahead: bool = False) -> datetime:
    """Read a span before or after `now` (``12h``, ``30d``), a day, or a moment, by default in UTC.

    A day ahead lasts to its end.
    """
    text = text.strip()
    if match := _SPAN.fullmatch(text):
        span = timedelta(**{_SPAN_UNITS[match[2]]: int(match[1])})
        return now + span if ahead else now - span
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: expected a span such as 7d or 12h, or a day such as 2026-12-01"
        ) from None
    if ahead and len(text) <= len("2026-12-01"):
        moment = datetime.combine(moment.date(), time(23, 59, 59))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_quantity(text: str, units: Mapping[str, int], option: str) -> float:
    """Read a number with one of `units`."""
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
