"""Filters and orders of listings, read from the query of a request, and the cursors of their pages.

A cursor holds the key of the last row, not its place: rows that are added meanwhile neither push
others onto the next page again nor off it.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pool_server.errors import QueryError
from pool_server.wire.models import StateChoice
from pool_server.wire.names import DIGEST_PATTERN, LABEL_KEY_PATTERN, ModelAddress

_METRIC_NAME = re.compile(LABEL_KEY_PATTERN)
_METRIC_PREFIX = "metric."
MOST_CURSOR_CHARACTERS = 400

_LABEL_KEY = re.compile(LABEL_KEY_PATTERN)
_BOUND = re.compile(r"^([a-z][a-z0-9_.-]{0,63}?)\s*(<=|>=|<|>|=)\s*(\S+)$")
_SIGN = re.compile(r"[<>=]")
_DIGEST = re.compile(DIGEST_PATTERN)
_RELATIONS: dict[str, MetricRelation] = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "=": "="}
MOST_WORDS = 8
MOST_FILTERS = 32


@dataclass(frozen=True)
class Position:
    """The end of a page: the last row's key, and its id."""

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

MetricRelation = Literal["<", "<=", ">", ">=", "="]


@dataclass(frozen=True)
class LabelFilter:
    """The label `key` is there, and has `value` unless that is None."""

    key: str
    value: str | None

    @classmethod
    def parse(cls, text: str) -> LabelFilter:
        """Read ``KEY=VALUE`` or ``KEY``."""
        key, equals, value = text.partition("=")
        if not _LABEL_KEY.fullmatch(key) or (equals and not value):
            raise QueryError(
                f"label={text!r} is not a filter; expected KEY=VALUE, or KEY alone for any value",
                hint="Keys begin with a letter and have only a-z, 0-9, '_', '.', '-'.",
            )
        return cls(key, value if equals else None)


@dataclass(frozen=True)
class LabelBound:
    """The label `key` is a number that stands in `relation` to `bound`."""

    key: str
    relation: MetricRelation
    bound: float

    @classmethod
    def parse(cls, text: str) -> LabelBound:
        """Read ``KEY<NUMBER``, or with ``<=``, ``>``, ``>=``."""
        match = _BOUND.fullmatch(text)
        bound = _read_number(match[3]) if match else None
        if match is None or bound is None or match[2] == "=":
            raise QueryError(
                f"label={text!r} is not a filter; expected KEY>=NUMBER, or with >, < or <=",
                hint="For example label=images>=500; encode > as %3E in an address.",
            )
        return cls(match[1], _RELATIONS[match[2]], bound)


@dataclass(frozen=True)
class MetricFilter:
    """The metric `name` stands in `relation` to `bound`."""

    name: str
    relation: MetricRelation
    bound: float

    @classmethod
    def parse(cls, text: str) -> MetricFilter:
        """Read ``NAME<VALUE``, or with ``<=``, ``>``, ``>=``, ``=``."""
        match = _BOUND.fullmatch(text)
        bound = _read_number(match[3]) if match else None
        if match is None or bound is None:
            raise QueryError(
                f"metric={text!r} is not a filter; expected NAME<VALUE, or with <=, >, >= or =",
                hint="For example metric=mean_error<0.08; encode < as %3C in an address.",
            )
        return cls(match[1], _RELATIONS[match[2]], bound)


@dataclass(frozen=True)
class MergeKey:
    """The key of some model under one method."""

    method: str
    key: str

    @classmethod
    def parse(cls, text: str) -> MergeKey:
        """Read ``METHOD:KEY``."""
        method, colon, key = text.partition(":")
        if not (method and colon and key):
            raise QueryError(
                f"mergeable_key={text[:80]!r} is not a filter; expected METHOD:KEY",
                hint="`aggregators.methods.merge_keys` gives the keys of a file.",
            )
        return cls(method, key)


@dataclass(frozen=True)
class ModelChoice:
    """One model, by address or by digest alone."""

    address: ModelAddress | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> ModelChoice:
        """Read a model address or ``sha256:DIGEST``."""
        if text.startswith("sha256:"):
            return cls(None, read_digest(text.removeprefix("sha256:")))
        try:
            return cls(ModelAddress.parse(text), None)
        except ValueError as error:
            raise QueryError(str(error)) from error


@dataclass(frozen=True)
class ModelQuery:
    """All filters of a listing; a version must pass every one."""

    kind: str | None = None
    site: str | None = None
    name: str | None = None
    labels: tuple[LabelFilter | LabelBound, ...] = ()
    metrics: tuple[MetricFilter, ...] = ()
    words: tuple[str, ...] = ()
    mergeable_with: ModelChoice | None = None
    mergeable_keys: tuple[MergeKey, ...] = ()
    state: StateChoice | None = None
    latest: bool = False
    limit: int = 50
    order: Order = NEWEST_FIRST
    after: Position | None = None


def read_label(text: str) -> LabelFilter | LabelBound:
    """Read one filter on labels, by value or by bound.

    What comes first decides: ``note=a<b`` asks for a value.
    """
    sign = _SIGN.search(text)
    by_bound = sign is not None and sign[0] != "="
    return LabelBound.parse(text) if by_bound else LabelFilter.parse(text)


def read_digest(text: str) -> str:
    """Return `text` if it is a SHA-256 in hexadecimal."""
    if not _DIGEST.fullmatch(text):
        raise QueryError(f"{text!r} is not a SHA-256 digest; expected 64 characters of 0-9, a-f")
    return text


def read_words(text: str | None) -> tuple[str, ...]:
    """Return the words that must all occur."""
    words = tuple((text or "").replace("\0", " ").split())
    if len(words) > MOST_WORDS:
        raise QueryError(f"`text` has {len(words)} words; at most {MOST_WORDS} are looked for")
    return words


def limit_count(name: str, filters: Sequence[str]) -> Sequence[str]:
    """Return `filters` unless they are too many for one query."""
    if len(filters) > MOST_FILTERS:
        raise QueryError(f"{len(filters)} filters `{name}`; at most {MOST_FILTERS} can be combined")
    return filters


def _read_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
