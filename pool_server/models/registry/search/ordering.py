"""In which order a listing comes, and the cursors that go on where a page has ended.

A cursor holds the key of the last row, not its place: rows that are added meanwhile neither push
others onto the next page again nor off it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from dataclasses import dataclass
from typing import Literal

from pool_server.errors import QueryError
from pool_server.wire.names import LABEL_KEY_PATTERN

_METRIC_NAME = re.compile(LABEL_KEY_PATTERN)
_METRIC_PREFIX = "metric."
MOST_CURSOR_CHARACTERS = 400


@dataclass(frozen=True)
class Position:
    """Where a page has ended: the last row's key, and its id."""

    key: int | float | str
    version_id: int


@dataclass(frozen=True)
class Order:
    """By what versions are ordered.

    Versions without the metric are not in a listing that is ordered by it. Those with equal
    metrics follow each other by age.
    """

    by: Literal["created", "name", "metric"] = "created"
    descending: bool = True
    metric: str = ""

    @classmethod
    def parse(cls, text: str) -> Order:
        """Read ``created``, ``name`` or ``metric.NAME``, with a ``-`` before it for descending."""
        word = text.removeprefix("-")
        descending = word != text
        if word == "created":
            return cls("created", descending)
        if word == "name":
            return cls("name", descending)
        metric = word.removeprefix(_METRIC_PREFIX)
        if metric != word and _METRIC_NAME.fullmatch(metric):
            return cls("metric", descending, metric)
        raise QueryError(
            f"sort={text[:80]!r} is not an order; expected created, name or metric.NAME",
            hint="A - before it turns it round: sort=-created has the newest first, "
            "sort=metric.mean_error the smallest error.",
        )

    def __str__(self) -> str:
        word = f"{_METRIC_PREFIX}{self.metric}" if self.by == "metric" else self.by
        return f"-{word}" if self.descending else word

    def write_cursor(self, position: Position) -> str:
        """Return an opaque cursor for what comes after `position`."""
        parts = ["v2", str(self), position.key, position.version_id]
        text = json.dumps(parts, separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def read_cursor(self, cursor: str) -> Position:
        """Return where the page before has ended, from a cursor of this order."""
        try:
            text = base64.b64decode(
                cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True
            ).decode("ascii")
            parts = json.loads(text)
        except (binascii.Error, ValueError, RecursionError):
            parts = None
        if isinstance(parts, list) and len(parts) == 4 and parts[:2] == ["v2", str(self)]:
            key, version_id = parts[2:]
            if self._is_key(key) and _is_identifier(version_id):
                return Position(key, version_id)
        raise QueryError(
            "Invalid cursor: not issued by this pool for this order",
            hint="Give back `next_cursor` of the page before as it was, with the same `sort`, "
            "or leave it out.",
        )

    def _is_key(self, key: object) -> bool:
        if self.by == "name":
            return isinstance(key, str) and len(key) <= 160 and key.isascii() and key.isprintable()
        if self.by == "metric":
            return isinstance(key, float) and math.isfinite(key)
        return _is_identifier(key)


def _is_identifier(key: object) -> bool:
    return isinstance(key, int) and not isinstance(key, bool) and 0 < key < 10**18


NEWEST_FIRST = Order()
