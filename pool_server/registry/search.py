"""Search of versions: the terms of the index, the plan of a query, and rebuilding the index.

A *term* is one word that a version has or has not; the view ``search_sources`` of the baseline
migration writes the same. Texts are in it as hexadecimal UTF-8, so that a term is letters and
digits only.

============================  =======================================================
``k`` KIND                    it is of that kind
``s`` SITE, ``n`` NAME        its model is of that site, has that name
``x`` state                   it is in that state
``y`` site number, state      it is in that state and of that site
``newest``                    no version of its model and state has a higher number; versions that
                              contain a withdrawn file count only if all do
``a`` site number             that site may see its model; ``aall``: every site may
``l`` KEY, ``l`` KEY=VALUE    it has that label, with that value
``m`` METHOD:KEY              it has that merge key
``w`` WORD                    its text has that word, of one or two letters or digits
============================  =======================================================

`plan_search` turns a listing's filters into ranges and groups of terms; a version must have at
least one term from each group. `pool_server.registry.finder` runs the plan on either database.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, inspect, text

from pool_server.http.identity import Caller
from pool_server.registry import query
from pool_server.registry.access import access_terms
from pool_server.wire.models import ModelFilters, ModelQuery

NEWEST = "newest"
_SHORT_WORD = re.compile(r"^[a-z0-9\x80-\U0010FFFF]{1,2}$")
# Tables with triggers (of the baseline migration) that update the index.
FOLLOWED = ("labels", "merge_keys", "grants", "models", "sites", "model_versions")


@dataclass(frozen=True)
class SearchPlan:
    """One search; all its conditions must hold for a version."""

    groups: "TermGroups"
    """A version must have at least one term of each group."""
    parts: tuple[str, ...]
    """A version's text must contain all of them, ignoring case."""
    ranges: tuple[query.Range, ...]
    order: query.Order
    limit: int
    after: query.Position | None = None
    """The end of the previous page."""
    other_than: str | None = None
    """Digest to exclude."""
    with_facets: bool = False
    names_model: bool = False


class Hit(NamedTuple):
    """A version that matches a search; `key` is its sort key."""

    version_id: int
    key: int | float | str
    facets: str = ""


def plan_search(
    caller: Caller,
    filters: ModelFilters,
    merge_groups: Sequence[Sequence[query.MergeKey]] = (),
    *,
    other_than: str | None = None,
    limit: int,
    with_facets: bool = False,
) -> SearchPlan:
    """Return the plan that finds the visible versions that pass every filter.

    A version must have at least one key of each of `merge_groups`.
    """
    sort, cursor = "-created", None
    if isinstance(filters, ModelQuery):
        sort, cursor = filters.sort, filters.cursor
    order = query.Order.parse(sort)
    return SearchPlan(
        groups=terms_of(caller, filters, merge_groups),
        parts=tuple(word for word in query.read_words(filters) if not is_short(word)),
        ranges=tuple(
            condition
            for condition in query.read_conditions(filters)
            if isinstance(condition, query.Range)
        ),
        order=order,
        after=None if cursor is None else order.read_cursor(cursor),
        other_than=other_than,
        limit=limit,
        with_facets=with_facets,
        names_model=filters.name is not None,
    )


TermGroups = tuple[tuple[str, ...], ...]


def text_term(letter: str, value: str) -> str:
    """Return the term of a text."""
    return letter + value.encode("utf-8").hex()


def text_of(term: str) -> str:
    """Return the text of a term made by `text_term`."""
    return bytes.fromhex(term[1:]).decode("utf-8")


def number_of(term: str) -> int:
    """Return the number of a term in PostgreSQL: 64 bits of its MD5, signed."""
    digest = hashlib.md5(term.encode("ascii"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def terms_of(
    caller: Caller, filters: ModelFilters, merge_groups: Sequence[Sequence[query.MergeKey]] = ()
) -> TermGroups:
    """Return groups of search terms for a query's filters and its caller."""
    groups = access_terms(caller, filters.state, latest=filters.latest)
    if filters.latest:
        groups.append((NEWEST,))
    for letter, name in (("k", filters.kind), ("s", filters.site), ("n", filters.name)):
        if name is not None:
            groups.append((text_term(letter, name),))
    groups += [
        (text_term("l", condition),)
        for condition in query.read_conditions(filters)
        if isinstance(condition, str)
    ]
    groups += [
        tuple(
            dict.fromkeys(
                text_term("m", f"{merge_key.method}:{merge_key.key}") for merge_key in group
            )
        )
        for group in merge_groups
    ]
    groups += [short_word_terms(word) for word in query.read_words(filters) if is_short(word)]
    return tuple(dict.fromkeys(groups))


def is_short(word: str) -> bool:
    """Return whether a word must match a whole word, by its term, and not a part of one."""
    return _SHORT_WORD.fullmatch(word.lower()) is not None


def short_word_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a short word, also as lowered by SQLite, which knows ASCII only."""
    ascii_lower = "".join(letter.lower() if letter.isascii() else letter for letter in word)
    return tuple(
        dict.fromkeys(text_term("w", spelling) for spelling in (word.lower(), ascii_lower))
    )


def rebuild_search(connection: Connection) -> None:
    """Rewrite the entries of all versions; part of the caller's transaction."""
    if connection.dialect.name == "postgresql":
        _without_limits(connection)
        # The planner still takes tables that were just filled for empty ones.
        for table in FOLLOWED:
            connection.execute(text(f"ANALYZE {table}"))
    connection.execute(text("DELETE FROM search_entries"))
    connection.execute(
        text(
            "INSERT INTO search_entries (version_id, sort_name, facets, terms, words) "
            "SELECT version_id, sort_name, facets, terms, words FROM search_sources"
        )
    )


@contextmanager
def loading_in_bulk(connection: Connection) -> Iterator[None]:
    """Fill tables in the block without updating the index for each row; rebuild it at the end.

    Part of the caller's transaction, which must be rolled back if the block raises. A schema
    without entries is filled like any other.
    """
    if not inspect(connection).has_table("search_entries"):
        yield
        return
    if connection.dialect.name == "sqlite":
        triggers = connection.execute(
            text(
                "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' "
                "AND name LIKE 'search\\_%' ESCAPE '\\' AND tbl_name <> 'search_entries'"
            )
        ).all()
        for name, _ in triggers:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        yield
        for _, statement in triggers:
            connection.exec_driver_sql(statement)
    else:
        _without_limits(connection)
        for table in FOLLOWED:
            connection.execute(text(f"ALTER TABLE {table} DISABLE TRIGGER USER"))
        yield
        for table in FOLLOWED:
            connection.execute(text(f"ALTER TABLE {table} ENABLE TRIGGER USER"))
    rebuild_search(connection)


def _without_limits(connection: Connection) -> None:
    for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(text(f"SET LOCAL {limit} = 0"))
