"""Searching on PostgreSQL.

Its planner knows how frequent each term is, but takes conditions for independent of each other.
Where they are not, it may walk through all versions in the order asked for, in the belief that a
page will soon be full. So a search is made in steps:

1. Walk through the first few versions of the order. Often they fill the page.
2. As many of those as were found, so many more are to be expected. Where the page would be full
   sooner than all that there is could be gathered, walk that far; once more where that was just
   not enough.
3. Otherwise what is asked for is rare, at least here: it is gathered by the indexes of the
   conditions, and put into order when all of it is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

from sqlalchemy.orm import Session

from pool_server.models.registry.search.plan import Counted, Found, RangeFilter, SearchPlan
from pool_server.models.registry.search.statements import (
    COUNT,
    FIND,
    Reading,
    Values,
    beside,
    range_columns,
    range_condition,
    turned,
)
from pool_server.models.registry.search.terms import CALLERS_LETTERS, number_of

FIRST_WALKED = 400
# How far it is worth to walk on, in a pool of a hundred thousand: while N versions are looked at,
# a share of (page / N) of all would be gathered, each so many times as dear. Therefore these are
# squares, of versions for each one of a page, as they were measured. Parts of words are dear to
# gather by, and most of all several conditions in several tables.
WORTH, WORTH_WITH_PARTS, WORTH_OF_SEVERAL = 500_000, 1_500_000, 5_000_000
MOST_WALKED = 25_000
MOST_WALKS = 3
MOST_LOOKED_UP = 1000

T = TypeVar("T")


class PostgresFinder:
    """Finds versions in a PostgreSQL database; see the module and `Finder`.

    Parameters
    ----------
    first : int
        How many versions the first query walks through; more for long pages, and where a range
        and something else are asked for.
    worth : int, optional
        Square of how many the next ones may walk through, for each version of a page; by default
        as it was measured.
    """

    def __init__(
        self, session: Session, first: int = FIRST_WALKED, worth: int | None = None
    ) -> None:
        self._session = session
        self._first = first
        self._worth = worth

    def find(self, plan: SearchPlan) -> list[Found]:
        return self._search(plan, FIND)

    def count(self, plan: SearchPlan) -> Counted:
        return self._search(plan, COUNT)

    def _search(self, plan: SearchPlan, reading: Reading[T]) -> T:
        # A little more than a page, for where nearly all will do.
        most = max(self._first * (3 if has_several(plan) else 1), math.ceil(1.25 * plan.limit))
        worth = min(MOST_WALKED, math.sqrt((self._worth or worth_of(plan)) * plan.limit))
        size = -1
        for _ in range(MOST_WALKS):
            found, before = self._walk(plan, most, reading), size
            size = reading.size(found)
            if size == plan.limit:
                return found
            # Further on there is nothing, or hardly anything.
            if size == before:
                break
            # With a margin for chance, which is the larger the fewer were found.
            margin = 1 + 2 / math.sqrt(max(size, 4))
            most = math.ceil(margin * most * plan.limit / max(size, 1))
            if most > worth:
                break
        values = Values()
        return reading.fetch(self._session, gathering(plan, reading.columns, values), values)

    def _walk(self, plan: SearchPlan, most: int, reading: Reading[T]) -> T:
        values = Values()
        statement = walking(plan, most, reading.columns, values)
        return reading.fetch(self._session, statement, values)


def has_several(plan: SearchPlan) -> bool:
    """Tell whether a range and something else are asked for: each is more frequent than both."""
    by_terms = any(group[0][0] not in CALLERS_LETTERS for group in plan.groups)
    return bool(plan.ranges) and len(plan.ranges) + bool(plan.parts) + by_terms > 1


def worth_of(plan: SearchPlan) -> int:
    if has_several(plan):
        return WORTH_OF_SEVERAL
    return WORTH_WITH_PARTS if plan.parts else WORTH


def walking(plan: SearchPlan, most: int, columns: str, values: Values) -> str:
    """Select, of the first `most` versions of the order, those for which all conditions hold."""
    rows, keys, conditions = "search_entries AS e", _entry_keys(plan), []
    if plan.order.by == "metric":
        rows, keys = "metrics AS e", ["e.value", "e.version_id"]
        conditions.append(f"e.name = {values.bind(plan.order.metric)}")
    if plan.after is not None:
        conditions.append(beside(plan, keys, ">", plan.after, values))
    first = (
        f"(SELECT e.* FROM {rows} WHERE {' AND '.join(conditions) or 'true'} "
        f"ORDER BY {turned(plan, keys)} LIMIT {values.bind(most)})"
    )
    source = f"{first} AS e"
    if plan.order.by == "metric":
        source = f"{first} AS o JOIN search_entries AS e ON e.version_id = o.version_id"
        keys = ["o.value", "o.version_id"]
    # Of a rare range it is quicker to make a set first than to look up thousands.
    is_rare = len(plan.ranges) == 1 and not has_several(plan) and most > MOST_LOOKED_UP
    ask = _is_within if is_rare else _holds
    conditions = _conditions(plan, values) + [ask(each, values) for each in plan.ranges]
    return (
        f"SELECT e.version_id, {keys[0]} AS key{columns} FROM {source} "
        f"WHERE {' AND '.join(conditions) or 'true'} "
        f"ORDER BY {turned(plan, keys)} LIMIT {values.bind(plan.limit)}"
    )


def gathering(plan: SearchPlan, columns: str, values: Values) -> str:
    """Select those for which all conditions hold, to be ordered when they are all there."""
    keys = _entry_keys(plan)
    conditions = _conditions(plan, values) + [_is_within(each, values) for each in plan.ranges]
    if plan.order.by == "created" and plan.after is not None:
        conditions.append(beside(plan, keys, ">", plan.after, values))
    # Materialized: how it is found does not depend on the order or the limit.
    gathered = (
        f"WITH e AS MATERIALIZED (SELECT e.version_id, {keys[0]} AS key{columns} "
        f"FROM search_entries AS e WHERE {' AND '.join(conditions) or 'true'})"
    )
    source, keys, conditions = "e", ["e.key"], []
    if plan.order.by == "metric":
        source += (
            " JOIN metrics AS o ON o.version_id = e.version_id "
            f"AND o.name = {values.bind(plan.order.metric)}"
        )
        keys = ["o.value", "o.version_id"]
    if plan.order.by != "created" and plan.after is not None:
        conditions.append(beside(plan, keys, ">", plan.after, values))
    key = keys[0]
    if plan.order.by == "metric":
        # A sum, so that it does not go through all metrics by their index after all.
        keys = ["o.value + 0", "o.version_id"]
    return (
        f"{gathered} SELECT e.version_id, {key} AS key{columns} FROM {source} "
        f"WHERE {' AND '.join(conditions) or 'true'} "
        f"ORDER BY {turned(plan, keys)} LIMIT {values.bind(plan.limit)}"
    )


def _entry_keys(plan: SearchPlan) -> list[str]:
    """Return columns of entries of which no two have the same, in the plan's order if they can."""
    return ["e.sort_name"] if plan.order.by == "name" else ["e.version_id"]


def _conditions(plan: SearchPlan, values: Values) -> list[str]:
    """Return all conditions on an entry but ranges."""
    all_of = [group[0] for group in plan.groups if len(group) == 1]
    conditions = [f"e.terms @> {_numbers(all_of, values)}"] if all_of else []
    conditions += [
        f"e.terms && {_numbers(group, values)}" for group in plan.groups if len(group) > 1
    ]
    conditions += [f"e.words LIKE lower({values.bind(_pattern(part))})" for part in plan.parts]
    if plan.other_than is not None:
        digest = values.bind(plan.other_than)
        conditions.append(
            f"e.version_id NOT IN (SELECT id FROM model_versions WHERE digest = {digest})"
        )
    return conditions


def _numbers(terms: Iterable[str], values: Values) -> str:
    return f"CAST({values.bind([number_of(term) for term in terms])} AS bigint[])"


def _pattern(part: str) -> str:
    """Return the pattern of what contains a text, whose own % and _ mean themselves."""
    for sign in "\\%_":
        part = part.replace(sign, f"\\{sign}")
    return f"%{part}%"


def _is_within(wanted: RangeFilter, values: Values) -> str:
    """Return a range as a condition that the database may begin with, or make a set of."""
    table, condition = range_condition(wanted, "r", values)
    return f"EXISTS (SELECT 1 FROM {table} AS r WHERE r.version_id = e.version_id AND {condition})"


def _holds(wanted: RangeFilter, values: Values) -> str:
    """Return a range as a condition that the database asks of one version after the other."""
    table, name, number = range_columns(wanted)
    return (
        f"(SELECT r.{number} FROM {table} AS r WHERE r.version_id = e.version_id "
        f"AND r.{name} = {values.bind(wanted.name)}) {wanted.relation} {values.bind(wanted.bound)}"
    )
