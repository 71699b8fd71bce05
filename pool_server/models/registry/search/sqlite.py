"""Searching on SQLite.

Versions can be read from several *places*: from the full-text indexes of terms and of parts of
words, by id; from a range, by its index; from the index of the order that is asked for. SQLite
has no statistics of full-text indexes, and asking one for a certain row takes long. So searches
by more than terms are made in steps:

1. Look at the first few versions that have all terms. If those are all, or a page is full, done.
2. Count what each place has, up to some thousands. Where one has no more than that, all of its
   versions are read, and their entries looked at for the other conditions.
3. Where all have more, go through the order that is asked for as far as was counted; nearly
   always a page is full by then.
4. Where it is not, conditions are common that hardly ever come together. All places are read, and
   what they have in common is put into order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from sqlalchemy import text
from sqlalchemy.orm import Session

from pool_server.models.registry.search.ordering import Position
from pool_server.models.registry.search.plan import Counted, Found, RangeFilter, SearchPlan
from pool_server.models.registry.search.statements import (
    COUNT,
    FIND,
    Reading,
    Values,
    beside,
    range_condition,
    turned,
)
from pool_server.models.registry.search.terms import TermGroups

MOST_COUNTED = 2000
# So many are looked at sooner than it is counted what there is.
FEW = 400

T = TypeVar("T")
Parts = tuple[str, ...]
Place = Literal["terms", "order"] | Parts | RangeFilter


@dataclass(frozen=True)
class Count:
    """How many versions a place has.

    Attributes
    ----------
    place : Place
    count : int
        Up to one more than are counted.
    edge : int or None
        The last id that was counted; None for ranges, which are not read by id.
    """

    place: Place
    count: int
    edge: int | None


class SqliteFinder:
    """Finds versions in a SQLite database; see the module and `Finder`.

    Parameters
    ----------
    most_counted : int
        How many versions of each place are counted, and of the order gone through; more where a
        page is long.
    """

    def __init__(self, session: Session, most_counted: int = MOST_COUNTED) -> None:
        self._session = session
        self._most = most_counted
        self._few = min(FEW, most_counted)

    def find(self, plan: SearchPlan) -> list[Found]:
        if not _is_by_terms_alone(plan) and plan.limit <= self._few:
            found = self._probe(plan)
            if found is not None:
                return found
        return self._search(plan, FIND)

    def count(self, plan: SearchPlan) -> Counted:
        return self._search(plan, COUNT)

    def _search(self, plan: SearchPlan, reading: Reading[T]) -> T:
        if _is_by_terms_alone(plan):
            return self._read(plan, "terms", reading)
        # One by one: of words that are all there, the index would go through every one's versions.
        words = [(part,) for part in plan.parts if _is_indexed(part)]
        most = max(self._most, 2 * plan.limit)
        counts, end = self._count(plan, ["terms", *words, *plan.ranges], most)
        smallest = min(counts, key=lambda each: each.count)
        if smallest.count <= most:
            return self._read(plan, smallest.place, reading)
        if plan.order.by == "created":
            place, end = _sparsest(plan, counts)
        else:
            place = "order"
        found = self._read(plan, place, reading, end)
        if reading.size(found) == plan.limit or end is None:
            return found
        return self._gather(plan, reading)

    def _probe(self, plan: SearchPlan) -> list[Found] | None:
        """Look at the first few versions that have all terms; None if more must be looked at."""
        values = Values()
        first = f"{_ids(plan, 'terms', values)} LIMIT {self._few + 1}"
        conditions = _entry_conditions(plan, "terms", values)
        columns = _order_columns(plan)
        metric = ""
        if plan.order.by == "metric":
            name = values.bind(plan.order.metric)
            metric = f" LEFT JOIN metrics AS o ON o.version_id = e.version_id AND o.name = {name}"
            conditions.append("o.version_id IS NOT NULL")
        if plan.order.by != "created" and plan.after is not None:
            conditions.append(beside(plan, columns, ">", plan.after, values))
        rows = self._session.execute(
            text(
                f"SELECT e.version_id, {columns[0]}, "
                f"{' AND '.join(conditions) or '1'} "
                f"FROM ({first}) AS s CROSS JOIN search_entries AS e ON e.version_id = s.id"
                f"{metric} ORDER BY {turned(plan, columns)}"
            ),
            values,
        ).all()
        found = [Found(*row) for *row, holds in rows if holds][: plan.limit]
        is_full = plan.order.by == "created" and len(found) == plan.limit
        return found if is_full or len(rows) <= self._few else None

    def _count(
        self, plan: SearchPlan, places: Sequence[Place], most: int
    ) -> tuple[list[Count], Position | None]:
        """Count places up to `most`; gives also where counting the order as far would end."""
        values = Values()
        edge = "min(id)" if plan.order.descending else "max(id)"
        counted = [
            f"(SELECT count(*) AS count, {edge} AS edge "
            f"FROM ({_ids(plan, place, values)} LIMIT {most + 1})) AS s{number}"
            for number, place in enumerate(places)
        ]
        columns = [f"s{number}.count, s{number}.edge" for number in range(len(places))]
        columns += _end_of_order(plan, values, most) or ["NULL", "NULL"]
        row = self._session.execute(
            text(f"SELECT {', '.join(columns)} FROM {', '.join(counted)}"), values
        ).one()
        *numbers, key, version_id = row
        counts = map(Count, places, numbers[::2], numbers[1::2])
        return list(counts), None if key is None else Position(key, version_id)

    def _read(
        self, plan: SearchPlan, place: Place, reading: Reading[T], end: Position | None = None
    ) -> T:
        """Read the first versions of the order, of those that one place has up to `end`."""
        values = Values()
        tables, conditions = _tables(plan, place, values)
        conditions += _entry_conditions(plan, place, values)
        columns = _order_columns(plan, by_index=_is_full_text(place))
        if end is not None:
            conditions.append(beside(plan, columns, "<=", end, values))
        return self._run(plan, reading, (tables, conditions), columns, values)

    def _gather(self, plan: SearchPlan, reading: Reading[T]) -> T:
        """Read the first versions of the order, of those that all places have."""
        values = Values()
        tables, conditions = _tables(plan, "terms", values)
        words = tuple(part for part in plan.parts if _is_indexed(part))
        # A sum is no row that the index could be asked for: the others become a set.
        conditions += [
            f"(s.rowid + 0) IN ({_ids(plan, place, values, in_order=False)})"
            for place in [*([words] if words else ()), *plan.ranges]
        ]
        conditions += _entry_conditions(plan, "terms", values, ranges=())
        columns = _order_columns(plan, by_index=True)
        return self._run(plan, reading, (tables, conditions), columns, values)

    def _run(
        self,
        plan: SearchPlan,
        reading: Reading[T],
        source: tuple[str, list[str]],
        columns: Sequence[str],
        values: Values,
    ) -> T:
        tables, conditions = source
        if plan.after is not None:
            conditions.append(beside(plan, columns, ">", plan.after, values))
        statement = (
            f"SELECT e.version_id, {columns[0]} AS key{reading.columns} FROM {tables} "
            f"WHERE {' AND '.join(conditions) or '1'} "
            f"ORDER BY {turned(plan, columns)} "
            f"LIMIT {values.bind(plan.limit)}"
        )
        return reading.fetch(self._session, statement, values)


def _is_by_terms_alone(plan: SearchPlan) -> bool:
    return plan.order.by == "created" and not plan.parts and not plan.ranges


def terms_expression(groups: TermGroups) -> str:
    """Return groups of terms in the language of SQLite's full-text search.

    The index goes through all versions that have the first and looks for the others among them:
    states and sites, which come first in a plan and which nearly all have, are said last.
    """
    return " AND ".join(f"({' OR '.join(group)})" for group in reversed(groups))


def parts_expression(parts: Parts) -> str:
    """Return parts of words in the language of SQLite's full-text search."""
    return " AND ".join('"' + part.replace('"', '""') + '"' for part in parts)


def _is_indexed(part: str) -> bool:
    """Tell whether the index, which has groups of three characters, can find a part."""
    return len(part) >= 3


def _sparsest(plan: SearchPlan, counts: Sequence[Count]) -> tuple[Place, Position | None]:
    """Return the index by id in which as many versions reach furthest, and how far that is."""
    by_id = [each for each in counts if each.edge is not None]
    chosen = (min if plan.order.descending else max)(by_id, key=lambda each: each.edge or 0)
    edge = chosen.edge or 0
    return chosen.place, Position(edge, edge)


def _ids(plan: SearchPlan, place: Place, values: Values, *, in_order: bool = True) -> str:
    """Return a query for the ids of a place, if that reads by id in the order of the plan."""
    if isinstance(place, RangeFilter):
        table, condition = range_condition(place, "r", values)
        column = "NULL" if in_order else "r.version_id"
        return f"SELECT {column} AS id FROM {table} AS r WHERE {condition}"
    index, condition = _index(plan, place, values)
    query = f"SELECT s.rowid AS id FROM {index} AS s WHERE {condition}"
    if plan.order.by == "created" and plan.after is not None:
        query += f" AND {beside(plan, ['s.rowid'], '>', plan.after, values)}"
    return f"{query} ORDER BY {turned(plan, ['s.rowid'])}" if in_order else query


def _index(plan: SearchPlan, place: Place, values: Values) -> tuple[str, str]:
    if isinstance(place, tuple):
        return "search_words", f"s.search_words MATCH {values.bind(parts_expression(place))}"
    return "search_terms", f"s.search_terms MATCH {values.bind(terms_expression(plan.groups))}"


def _is_full_text(place: Place) -> bool:
    return place == "terms" or isinstance(place, tuple)


def _end_of_order(plan: SearchPlan, values: Values, most: int) -> list[str] | None:
    """Return two queries, for the key and the id of the last version to be gone through."""
    if plan.order.by == "created":
        return None
    tables, conditions = _tables(plan, "order", values)
    columns = _order_columns(plan)
    if plan.order.by == "metric":
        tables = "metrics AS o"
    if plan.after is not None:
        conditions.append(beside(plan, columns, ">", plan.after, values))
    rest = (
        f"FROM {tables} WHERE {' AND '.join(conditions) or '1'} "
        f"ORDER BY {turned(plan, columns)} LIMIT 1 OFFSET {most}"
    )
    identifier = columns[1] if len(columns) > 1 else "0"
    return [f"(SELECT {columns[0]} {rest})", f"(SELECT {identifier} {rest})"]


def _tables(plan: SearchPlan, place: Place, values: Values) -> tuple[str, list[str]]:
    """Return the tables in the order in which they are read, and what the first is read by.

    CROSS JOIN is an inner join whose order SQLite keeps.
    """
    entry = "CROSS JOIN search_entries AS e ON e.version_id = "
    ordering = ""
    if plan.order.by == "metric":
        metric = values.bind(plan.order.metric)
        if place == "order":
            return f"metrics AS o {entry} o.version_id", [f"o.name = {metric}"]
        ordering = f" CROSS JOIN metrics AS o ON o.version_id = e.version_id AND o.name = {metric}"
    if place == "order":
        return "search_entries AS e", []
    if isinstance(place, RangeFilter):
        table, condition = range_condition(place, "s", values)
        return f"{table} AS s {entry} s.version_id{ordering}", [condition]
    index, condition = _index(plan, place, values)
    return f"{index} AS s {entry} s.rowid{ordering}", [condition]


def _entry_conditions(
    plan: SearchPlan, place: Place, values: Values, ranges: Sequence[RangeFilter] | None = None
) -> list[str]:
    """Return the conditions on an entry that the place it was read from has not answered."""
    conditions = []
    if place != "terms":
        for group in plan.groups:
            among = [f"instr(e.terms, {values.bind(f' {term} ')})" for term in group]
            conditions.append(f"({' OR '.join(among)})")
    # The index folds the case of all letters, SQLite elsewhere that of ASCII: this decides.
    conditions += [f"instr(e.words, lower({values.bind(part)}))" for part in plan.parts]
    for wanted in plan.ranges if ranges is None else ranges:
        if wanted is not place:
            table, condition = range_condition(wanted, "r", values)
            conditions.append(
                f"EXISTS (SELECT 1 FROM {table} AS r WHERE r.version_id = e.version_id "
                f"AND {condition})"
            )
    if plan.other_than is not None:
        digest = values.bind(plan.other_than)
        conditions.append(
            f"e.version_id NOT IN (SELECT id FROM model_versions WHERE digest = {digest})"
        )
    return conditions


def _order_columns(plan: SearchPlan, *, by_index: bool = False) -> list[str]:
    """Return what versions are ordered by: columns of which no two versions have the same.

    Parameters
    ----------
    by_index : bool
        They are read from a full-text index, whose own order needs no sorting.
    """
    if plan.order.by == "metric":
        return ["o.value", "o.version_id"]
    if plan.order.by == "name":
        return ["e.sort_name"]
    return ["s.rowid"] if by_index else ["e.version_id"]
