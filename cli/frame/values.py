"""Parse the values of options: pairs, lists of numbers, moments, and sizes with a unit."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, time, timedelta

from cli.frame.errors import UsageError


def key_value_pairs(entries: Sequence[str], option: str) -> dict[str, str]:
    """Parse ``KEY=VALUE`` pairs."""
    pairs: dict[str, str] = {}
    for word in entries:
        key, separator, value = word.partition("=")
        if not separator or not key or not value:
            raise UsageError(f"{option} {word!r}: expected KEY=VALUE")
        if key in pairs:
            raise UsageError(f"{option} {key}: given twice ({pairs[key]!r} and {value!r})")
        pairs[key] = value
    return pairs


def numbers(text: str, option: str) -> list[float]:
    """Parse numbers separated by commas (``1.5,1,1``)."""
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: expected numbers separated by commas, for example 1.5,1,1"
        ) from None


_SIZE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SPAN = re.compile(r"([0-9]{1,4})([mhdw])")
_SPAN_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_moment(text: str, option: str, now: datetime, *, ahead: bool = False) -> datetime:
    """Parse a duration before or after `now` (``12h``, ``30d``), a day, or a time (default: UTC).

    A day ahead means its end.
    """
    text = text.strip()
    if match := _SPAN.fullmatch(text):
        span = timedelta(**{_SPAN_UNITS[match[2]]: int(match[1])})
        return now + span if ahead else now - span
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r}: expected a duration such as 7d or 12h, or a day such as 2026-12-01"
        ) from None
    if ahead and len(text) <= len("2026-12-01"):
        moment = datetime.combine(moment.date(), time(23, 59, 59))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read_size(text: str, option: str) -> int:
    """Parse a number of bytes with its unit, such as ``50GB``."""
    number = text.strip().lower().rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = text.strip().lower()[len(number) :].strip()
    try:
        size = int(float(number) * _SIZE_UNITS[unit])
    except (ValueError, KeyError, OverflowError):
        size = -1
    if size < 0:
        raise UsageError(
            f"{option} {text!r}: expected a number with one of {', '.join(_SIZE_UNITS)}"
        )
    return size


def site_names(entries: Iterable[str], option: str = "--sites") -> list[str]:
    """Parse the sites of an option that may be repeated or hold several, separated by commas."""
    names = [name.strip() for entry in entries for name in entry.split(",") if name.strip()]
    if not names:
        raise UsageError(f"{option}: expected names of sites, for example site-a,site-b")
    return names
