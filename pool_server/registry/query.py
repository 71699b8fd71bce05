"""Reading the query of a listing: its filters and its order, and the cursors of its pages.

A cursor holds the key of the last row, not its position: rows added meanwhile neither repeat nor
skip others.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from pool_server.errors import QueryError
from pool_server.wire.models import ModelFilters
from pool_server.wire.names import DIGEST_PATTERN, LABEL_KEY_PATTERN, ModelAddress

MOST_WORDS = 8
MOST_FILTERS = 32
_KEY = re.compile(LABEL_KEY_PATTERN)
_BOUND = re.compile(r"^([a-z][a-z0-9_.-]{0,63}?)\s*(<=|>=|<|>|=)\s*(\S+)$")
_SIGN = re.compile(r"[<>=]")
_DIGEST = re.compile(DIGEST_PATTERN)
T = TypeVar("T")


def read_conditions(filters: ModelFilters) -> "list[str | Range]":
    """Return the conditions on labels and metrics: ``KEY``, ``KEY=VALUE``, or a range."""
    labels = [read_label(label) for label in _limited("label", filters.label)]
    return [*labels, *(read_metric(metric) for metric in _limited("metric", filters.metric))]


def read_words(filters: ModelFilters) -> tuple[str, ...]:
    """Return the words that must all occur."""
    parts = tuple(filters.text.replace("\0", " ").split())
    if len(parts) > MOST_WORDS:
        raise QueryError(f"`text` has {len(parts)} words; at most {MOST_WORDS} are allowed")
    return parts


def read_merge_keys(filters: ModelFilters) -> "list[MergeKey]":
    return [
        read_merge_key(merge_key) for merge_key in _limited("mergeable_key", filters.mergeable_key)
    ]


class Position(NamedTuple):
    """The end of a page: the last row's key, and its id."""

    key: int | float | str
    version_id: int


@dataclass(frozen=True)
class Order:
    """The order of a listing.

    A listing ordered by a metric omits versions without it. Those with equal metrics are ordered by
    age.
    """

    by: Literal["created", "name", "metric"] = "created"
    descending: bool = True
    metric: str = ""

    @classmethod
    def parse(cls, text: str) -> "Order":
        """Read ``created``, ``name`` or ``metric.NAME``, with a ``-`` prefix for descending."""
        word = text.removeprefix("-")
        if word == "created":
            return cls("created", word != text)
        if word == "name":
            return cls("name", word != text)
        metric = word.removeprefix("metric.")
        if metric != word and _KEY.fullmatch(metric):
            return cls("metric", word != text, metric)
        raise QueryError(
            f"sort={text[:80]!r} is not an order; expected created, name or metric.NAME",
            hint="A - prefix reverses the order: sort=-created lists the newest first, "
            "sort=metric.mean_error the smallest error.",
        )

    def __str__(self) -> str:
        word = f"metric.{self.metric}" if self.by == "metric" else self.by
        return f"-{word}" if self.descending else word

    def write_cursor(self, position: Position) -> str:
        """Return a cursor for the rows after `position`."""
        return json.dumps([str(self), *position], separators=(",", ":"))

    def read_cursor(self, cursor: str) -> Position:
        """Return the end of the previous page, from a cursor of this order."""
        try:
            parts = json.loads(cursor)
        except (ValueError, RecursionError):
            parts = None
        if isinstance(parts, list) and len(parts) == 3 and parts[0] == str(self):
            key, version_id = parts[1:]
            if self._is_key(key) and _is_identifier(version_id):
                return Position(key, version_id)
        raise QueryError(
            "Invalid cursor: not issued by this pool for this order",
            hint="Send `next_cursor` of the previous page unchanged, with the same `sort`, or omit "
            "it.",
        )

    def _is_key(self, key: object) -> bool:
        if self.by == "name":
            return isinstance(key, str) and len(key) <= 160 and key.isascii() and key.isprintable()
        if self.by == "metric":
            return isinstance(key, float) and math.isfinite(key)
        return _is_identifier(key)


def _is_identifier(key: object) -> bool:
    return isinstance(key, int) and not isinstance(key, bool) and 0 < key < 10**18


class Range(NamedTuple):
    """A bound: the number called `name` in `table` must be in `relation` (``<=``) to `bound`."""

    table: Literal["labels", "metrics"]
    name: str
    relation: str
    bound: float


class MergeKey(NamedTuple):
    """The key of a model under one method."""

    method: str
    key: str


def read_label(text: str) -> str | Range:
    """Read ``KEY=VALUE``, ``KEY``, or a bound such as ``KEY<NUMBER``.

    The first sign decides: ``note=a<b`` asks for a value.
    """
    sign = _SIGN.search(text)
    if sign is not None and sign[0] != "=":
        range_ = _read_range("labels", text)
        if range_ is None or range_.relation == "=":
            raise QueryError(
                f"label={text!r} is not a filter; expected KEY>=NUMBER, or with >, < or <=",
                hint="For example label=images>=500; encode > as %3E in an address.",
            )
        return range_
    key, equals, value = text.partition("=")
    if not _KEY.fullmatch(key) or (equals and not value):
        raise QueryError(
            f"label={text!r} is not a filter; expected KEY=VALUE, or KEY alone for any value",
            hint="Keys begin with a letter and have only a-z, 0-9, '_', '.', '-'.",
        )
    return text


def read_metric(text: str) -> Range:
    """Read ``NAME<VALUE``, or with ``<=``, ``>``, ``>=``, ``=``."""
    range_ = _read_range("metrics", text)
    if range_ is None:
        raise QueryError(
            f"metric={text!r} is not a filter; expected NAME<VALUE, or with <=, >, >= or =",
            hint="For example metric=mean_error<0.08; encode < as %3C in an address.",
        )
    return range_


def _read_range(table: Literal["labels", "metrics"], text: str) -> Range | None:
    match = _BOUND.fullmatch(text)
    try:
        bound = float(match[3]) if match else math.nan
    except ValueError:
        return None
    return Range(table, match[1], match[2], bound) if match and math.isfinite(bound) else None


def read_merge_key(text: str) -> MergeKey:
    """Read ``METHOD:KEY``."""
    method, colon, key = text.partition(":")
    if not (method and colon and key):
        raise QueryError(
            f"mergeable_key={text[:80]!r} is not a filter; expected METHOD:KEY",
            hint="`aggregators.methods.merge_keys` gives the keys of a file.",
        )
    return MergeKey(method, key)


def read_address(text: str) -> ModelAddress:
    try:
        return ModelAddress.parse(text)
    except ValueError as error:
        raise QueryError(str(error)) from error


def read_digest(text: str) -> str:
    """Return `text` if it is a hexadecimal SHA-256."""
    if not _DIGEST.fullmatch(text):
        raise QueryError(f"{text!r} is not a SHA-256 digest; expected 64 characters of 0-9, a-f")
    return text


def _limited(name: str, filters: Sequence[T]) -> Sequence[T]:
    if len(filters) > MOST_FILTERS:
        raise QueryError(f"{len(filters)} filters `{name}`; at most {MOST_FILTERS} can be combined")
    return filters
