"""Searching on SQLite.

Versions can be read from several *sources*: from the full-text indexes of terms and of parts of
words, in the order of ids; from a range, by its index; from the index of the order that is asked
for. SQLite has no statistics of full-text indexes, and asking one for a certain row takes long.
So a first query counts the versions of each source, up to a limit, and sees how far back that
went. A second one reads the source that is expected to be done soonest, and looks at the entry of
each of its versions for all the other conditions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import text
from sqlalchemy.orm import Session

from pool_server.registry.search.plan import Found, RangeFilter, SearchPlan
from pool_server.registry.search.terms import TermGroups

MOST_COUNTED = 2000
SMALLEST_SHARE = 1e-6

Place = Literal["terms", "parts", "order"] | RangeFilter


class Values(dict[str, Any]):
    """The values in a statement, each under a name of its own."""

    def bind(self, value: Any) -> str:
        """Return what stands for `value` in the statement."""
        name = f"v{len(self)}"
        self[name] = value
        return f":{name}"


@dataclass(frozen=True)
class Source:
    """Somewhere to read versions from.

    Attributes
    ----------
    place : Place
    count : int
        How many versions it has, up to one more than are counted.
    is_small : bool
        Whether `count` is all that it has.
    share : float
        Which part of all versions it has; at least that, for large ranges.
    """

    place: Place
    count: int
    is_small: bool
    share: float


class SqliteFinder:
    """Finds versions in a SQLite database; see the module and `Finder`.

    Parameters
    ----------
    most_counted : int
        How many versions of a source are counted before another is begun with.
    """

    def __init__(self, session: Session, most_counted: int = MOST_COUNTED) -> None:
        self._session = session
        self._most = most_counted

    def find(self, plan: SearchPlan) -> list[Found]:
        if not plan.parts and not plan.ranges and plan.order.by == "created":
            return self._read(plan, "terms")
        sources, total = self._count(plan)
        if any(source.count == 0 for source in sources):
            return []
        return self._read(plan, choose_place(plan, sources, total))

    def _count(self, plan: SearchPlan) -> tuple[list[Source], int]:
        """Return the sources of a plan, and how many versions there are to go through."""
        values = Values()
        has_parts = any(map(_is_indexed, plan.parts))
        places: list[Place] = ["terms", *(("parts",) if has_parts else ()), *plan.ranges]
        counts = [
            f"(SELECT count(*) AS count, {'min' if plan.order.descending else 'max'}(id) AS edge "
            f"FROM ({_counted(plan, place, values, self._most)})) AS s{number}"
            for number, place in enumerate(places)
        ]
        columns = [f"s{number}.count, s{number}.edge" for number in range(len(places))]
        newest = "(SELECT max(version_id) AS id FROM search_entries) AS newest"
        row = self._session.execute(
            text(f"SELECT newest.id, {', '.join(columns)} FROM {', '.join([newest, *counts])}"),
            values,
        ).one()
        start, total = _way_to_go(plan, row[0] or 0)
        sources = [
            Source(
                place,
                count,
                count <= self._most,
                _share(count, total if count <= self._most else _span(start, edge, total)),
            )
            for place, count, edge in zip(places, row[1::2], row[2::2], strict=True)
        ]
        return sources, total

    def _read(self, plan: SearchPlan, place: Place) -> list[Found]:
        """Return the first versions of the plan's order, read from one of its sources."""
        values = Values()
        tables, conditions = _tables(plan, place, values)
        conditions += _entry_conditions(plan, place, values)
        key, identifier = _order_columns(plan)
        if plan.after is not None:
            relation = "<" if plan.order.descending else ">"
            after = values.bind(plan.after.key), values.bind(plan.after.version_id)
            if plan.order.by == "metric":
                conditions.append(f"({key}, {identifier}) {relation} ({', '.join(after)})")
            elif plan.order.by == "created" and place in {"terms", "parts"}:
                conditions.append(f"s.rowid {relation} {after[0]}")
            else:
                conditions.append(f"{key} {relation} {after[0]}")
        turn = "DESC" if plan.order.descending else "ASC"
        if plan.order.by == "created" and place in {"terms", "parts"}:
            ordered = f"s.rowid {turn}"
        else:
            ordered = f"{key} {turn}, {identifier} {turn}"
        rows = self._session.execute(
            text(
                f"SELECT e.version_id, {key}, {'e.terms' if plan.wants_terms else 'NULL'} "
                f"FROM {tables} WHERE {' AND '.join(conditions) or '1'} "
                f"ORDER BY {ordered} LIMIT {values.bind(plan.limit)}"
            ),
            values,
        )
        return [Found(*row) for row in rows]


def choose_place(plan: SearchPlan, sources: Sequence[Source], total: int) -> Place:
    """Return where to begin: where the fewest rows are expected to be looked at."""
    combined = math.prod(source.share for source in sources)
    costs: list[tuple[float, int]] = []
    places: list[Place] = []
    for source in sources:
        whole = float(source.count) if source.is_small else source.share * total
        is_range = isinstance(source.place, RangeFilter)
        if plan.order.by == "created" and not is_range:
            # They come in the order asked for: the page may be full before the source is done.
            whole = min(whole, plan.limit * source.share / max(combined, SMALLEST_SHARE))
        elif is_range and not source.is_small:
            # How large it is was not found out.
            whole = float(total)
        costs.append((whole, len(places)))
        places.append(source.place)
    if plan.order.by != "created":
        costs.append((plan.limit / max(combined, SMALLEST_SHARE), len(places)))
        places.append("order")
    return places[min(costs)[1]]


def terms_expression(groups: TermGroups) -> str:
    """Return groups of terms in the language of SQLite's full-text search."""
    return " AND ".join(f"({' OR '.join(group)})" for group in groups)


def parts_expression(parts: Sequence[str]) -> str:
    """Return parts of words in the language of SQLite's full-text search."""
    return " AND ".join('"' + part.replace('"', '""') + '"' for part in parts if _is_indexed(part))


def _is_indexed(part: str) -> bool:
    """Tell whether the index, which has groups of three characters, can find a part."""
    return len(part) >= 3


def _way_to_go(plan: SearchPlan, newest: int) -> tuple[int, int]:
    """Return the id at which the order begins, and how many are to come, if it goes by id."""
    start = newest if plan.order.descending else 0
    if plan.after is not None and plan.order.by == "created":
        start = int(plan.after.key)
    return start, max(start if plan.order.descending else newest - start, 1)


def _span(start: int, edge: int | None, total: int) -> int:
    """Return how many versions were passed while those of a source were counted."""
    return total if edge is None else abs(start - edge) + 1


def _share(count: int, span: int) -> float:
    """Return which part of all versions a source has, taking it for even throughout."""
    return min(max(count / span, SMALLEST_SHARE), 1.0)


def _counted(plan: SearchPlan, place: Place, values: Values, most_counted: int) -> str:
    """Return a query for the ids of a source, as far as they are counted."""
    most = f"LIMIT {most_counted + 1}"
    if isinstance(place, RangeFilter):
        table, condition = _range(place, "r", values)
        return f"SELECT NULL AS id FROM {table} AS r WHERE {condition} {most}"
    index, conditions = _index(plan, place, values)
    turn, relation = ("DESC", "<") if plan.order.descending else ("ASC", ">")
    if plan.order.by == "created" and plan.after is not None:
        conditions.append(f"s.rowid {relation} {values.bind(plan.after.key)}")
    return (
        f"SELECT s.rowid AS id FROM {index} AS s WHERE {' AND '.join(conditions)} "
        f"ORDER BY s.rowid {turn} {most}"
    )


def _index(plan: SearchPlan, place: Place, values: Values) -> tuple[str, list[str]]:
    if place == "terms":
        matched = values.bind(terms_expression(plan.groups))
        return "search_terms", [f"s.search_terms MATCH {matched}"]
    return "search_words", [f"s.search_words MATCH {values.bind(parts_expression(plan.parts))}"]


def _range(wanted: RangeFilter, alias: str, values: Values) -> tuple[str, str]:
    table, name, number = {
        "metric": ("metrics", "name", "value"),
        "label": ("labels", "key", "number"),
    }[wanted.of]
    return table, (
        f"{alias}.{name} = {values.bind(wanted.name)} "
        f"AND {alias}.{number} {wanted.relation} {values.bind(wanted.bound)}"
    )


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
        table, condition = _range(place, "s", values)
        return f"{table} AS s {entry} s.version_id{ordering}", [condition]
    index, conditions = _index(plan, place, values)
    return f"{index} AS s {entry} s.rowid{ordering}", conditions


def _entry_conditions(plan: SearchPlan, place: Place, values: Values) -> list[str]:
    """Return the conditions on an entry that its source has not answered."""
    conditions = []
    if place != "terms":
        for group in plan.groups:
            among = [f"instr(e.terms, {values.bind(f' {term} ')})" for term in group]
            conditions.append(f"({' OR '.join(among)})")
    # The index folds the case of all letters, SQLite elsewhere that of ASCII: this decides.
    conditions += [f"instr(e.words, lower({values.bind(part)}))" for part in plan.parts]
    for wanted in plan.ranges:
        if wanted is not place:
            table, condition = _range(wanted, "r", values)
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


def _order_columns(plan: SearchPlan) -> tuple[str, str]:
    """Return what versions are ordered by, and by what among those that are equal in it."""
    if plan.order.by == "metric":
        return "o.value", "o.version_id"
    return ("e.sort_name" if plan.order.by == "name" else "e.version_id"), "e.version_id"
