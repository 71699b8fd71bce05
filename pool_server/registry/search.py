"""Search of versions: the terms of the index, the plan of a query, and rebuilding the index.

A *term* is one word that a version has or has not; the view ``search_sources`` of the baseline
migration writes the same. Texts are in it as hexadecimal UTF-8, so that a term is letters and
digits only.

============================  =======================================================
``k`` KIND                    it is of that kind
``s`` SITE, ``n`` NAME        its model is of that site, has that name
``x`` state                   it is in that state
``y`` site number, state      it is in that state and of that site
``newest``                    no version of its model and state has a higher number, of those that
                              hold nothing withdrawn where there are any
``a`` site number             that site may see its model; ``aall``: every site may
``l`` KEY, ``l`` KEY=VALUE    it has that label, with that value
``m`` METHOD:KEY              it has that merge key
``w`` WORD                    its text has that word, of one or two letters or digits
============================  =======================================================

`plan_search` turns a listing's filters into groups of terms, of each of which a version must have
at least one, and into ranges; `pool_server.registry.finder` runs the plan on either database.
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
# Tables whose changes the triggers of the baseline migration follow.
FOLLOWED = ("labels", "merge_keys", "grants", "models", "sites", "model_versions")


@dataclass(frozen=True)
class SearchPlan:
    """One search: every condition holds for each version that is found.

    Of each group it has one of the terms; its words contain all `parts`, in upper or lower case. It
    comes `after` where the page before ended, and has another digest than `other_than`.
    """

    groups: "TermGroups"
    parts: tuple[str, ...]
    ranges: tuple[query.Range, ...]
    order: query.Order
    limit: int
    after: query.Position | None = None
    other_than: str | None = None
    with_facets: bool = False
    names_model: bool = False


class Found(NamedTuple):
    """One version that was found; `key` is what it was ordered by."""

    version_id: int
    key: int | float | str
    facets: str = ""


def plan_search(
    caller: Caller,
    wanted: ModelFilters,
    merge_groups: Sequence[Sequence[query.MergeKey]] = (),
    *,
    other_than: str | None = None,
    limit: int,
    with_facets: bool = False,
) -> SearchPlan:
    """Return what finds the versions that pass every filter and that the caller may see.

    A version must have at least one key of each of `merge_groups`.
    """
    sort, cursor = "-created", None
    if isinstance(wanted, ModelQuery):
        sort, cursor = wanted.sort, wanted.cursor
    order = query.Order.parse(sort)
    return SearchPlan(
        groups=terms_of(caller, wanted, merge_groups),
        parts=tuple(word for word in query.read_words(wanted) if not is_short(word)),
        ranges=tuple(
            each for each in query.read_conditions(wanted) if isinstance(each, query.Range)
        ),
        order=order,
        after=None if cursor is None else order.read_cursor(cursor),
        other_than=other_than,
        limit=limit,
        with_facets=with_facets,
        names_model=wanted.name is not None,
    )


TermGroups = tuple[tuple[str, ...], ...]


def text_term(letter: str, words: str) -> str:
    """Return the term of a text."""
    return letter + words.encode("utf-8").hex()


def text_of(term: str) -> str:
    """Return the text in a term that `text_term` made."""
    return bytes.fromhex(term[1:]).decode("utf-8")


def number_of(term: str) -> int:
    """Return the number that stands for a term in PostgreSQL: 64 bits of its MD5, signed."""
    digest = hashlib.md5(term.encode("ascii"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def terms_of(
    caller: Caller, wanted: ModelFilters, merge_groups: Sequence[Sequence[query.MergeKey]] = ()
) -> TermGroups:
    """Return what a query asks of a version's terms, and who asks."""
    groups = access_terms(caller, wanted.state, latest=wanted.latest)
    if wanted.latest:
        groups.append((NEWEST,))
    for letter, name in (("k", wanted.kind), ("s", wanted.site), ("n", wanted.name)):
        if name is not None:
            groups.append((text_term(letter, name),))
    groups += [
        (text_term("l", each),) for each in query.read_conditions(wanted) if isinstance(each, str)
    ]
    groups += [
        tuple(dict.fromkeys(text_term("m", f"{each.method}:{each.key}") for each in group))
        for group in merge_groups
    ]
    groups += [short_word_terms(word) for word in query.read_words(wanted) if is_short(word)]
    return tuple(dict.fromkeys(groups))


def is_short(word: str) -> bool:
    """Return whether a word is looked for as a whole, by its term, not within other words."""
    return _SHORT_WORD.fullmatch(word.lower()) is not None


def short_word_terms(word: str) -> tuple[str, ...]:
    """Return the terms of a short word: SQLite knows upper and lower case of ASCII only."""
    ascii_lower = "".join(each.lower() if each.isascii() else each for each in word)
    return tuple(dict.fromkeys(text_term("w", each) for each in (word.lower(), ascii_lower)))


def rebuild_search(connection: Connection) -> None:
    """Rewrite the entries of all versions; part of the caller's transaction."""
    if connection.dialect.name == "postgresql":
        _without_limits(connection)
        # Just filled, the tables look empty to the planner.
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
    """Fill tables in the block without following each row; the entries are written at its end.

    Part of the caller's transaction: where the block raises, that must be rolled back. A schema
    from before there were entries is filled like any other.
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
