"""Finding versions among hundreds of thousands, on both databases.

1. Walk: check the first versions of the order one by one. Often they fill the page; if not,
   and the page is likely to be full soon, walk further once. Skipped if the query names a model,
   which has few versions among many.
2. Gather: matches are rare, so read them from the indexes of the conditions and sort them.
   PostgreSQL plans that from its statistics. SQLite has none of full-text indexes, so the finder
   counts the versions in each index, up to a limit, and reads the shortest.

Statements are text: SQLAlchemy would take longer to build one of its expressions than the databases
take to answer it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from pool_server.registry.query import Range
from pool_server.registry.search import Hit, SearchPlan, number_of

FIRST_WALKED = 1000
MOST_WALKED = 10_000
# SQLite takes 1 microsecond a version, and 30 ms and more to gather thousands.
MOST_WALKED_SQLITE = 25_000
MOST_COUNTED = 5000
# A sample for facets: this number of versions is as informative as a thousand.
SAMPLE_SIZE = 50


class Values(dict[str, object]):
    """The values in a statement, each under its own name."""

    def bind(self, value: object) -> str:
        """Return the placeholder of `value` in the statement."""
        name = f"v{len(self)}"
        self[name] = value
        return f":{name}"


class Finder:
    """Finds the versions of a plan.

    - It finds exactly the versions for which all conditions hold, each once.
    - They come in the plan's order, which is total: the key first, then the version's id.
    - It makes at most four queries, regardless of the number of versions.

    The first query checks `first_walked` versions, more for long pages; SQLite counts the versions
    of an index up to `most_counted`.
    """

    def __init__(
        self, session: Session, first_walked: int = FIRST_WALKED, most_counted: int = MOST_COUNTED
    ) -> None:
        self._session = session
        self._is_sqlite = session.get_bind().dialect.name == "sqlite"
        self._first = first_walked
        self._most_counted = most_counted
        self._most_walked = MOST_WALKED_SQLITE if self._is_sqlite else MOST_WALKED

    def find(self, plan: SearchPlan) -> list[Hit]:
        """Return the first versions of the plan's order."""
        return self._find(plan, plan.limit)[0]

    def find_sample(self, plan: SearchPlan) -> tuple[list[Hit], bool]:
        """Return some of the first versions of the plan's order, and whether those are all.

        If one walk meets at least `SAMPLE_SIZE` of them, return those, otherwise the result of
        `find`.
        """
        return self._find(plan, SAMPLE_SIZE)

    def _find(self, plan: SearchPlan, enough: int) -> tuple[list[Hit], bool]:
        if not plan.names_model:
            most = max(self._first, 2 * plan.limit)
            hits, is_all = self._walk(plan, most)
            if len(hits) < enough and not is_all:
                enough = plan.limit
                further = math.ceil(1.25 * most * plan.limit / max(len(hits), 1))
                if further <= self._most_walked:
                    hits, is_all = self._walk(plan, further)
            if len(hits) >= enough or is_all:
                return hits, is_all and len(hits) < plan.limit
        hits = self._gather_sqlite(plan) if self._is_sqlite else self._gather_postgresql(plan)
        return hits, len(hits) < plan.limit

    def _walk(self, plan: SearchPlan, most: int) -> tuple[list[Hit], bool]:
        """Check the first `most` versions of the order; return also whether those are all."""
        values = Values()
        if plan.order.by == "metric":
            table, keys = "metrics AS e", ["e.value", "e.version_id"]
            conditions = [f"e.name = {values.bind(plan.order.metric)}"]
        else:
            table, keys, conditions = "search_entries AS e", _entry_keys(plan), []
        conditions += _after(plan, keys, values)
        source = (
            f"(SELECT e.* FROM {table} WHERE {_all(conditions)} ORDER BY {_order(plan, keys)} "
            f"LIMIT {values.bind(most)})"
        )
        if plan.order.by == "metric":
            source += " AS o JOIN search_entries AS e ON e.version_id = o.version_id"
            keys = ["o.value", "o.version_id"]
        else:
            source += " AS e"
        conditions = [*self._conditions(plan, values), *_compare_ranges(plan.ranges, values)]
        # One walk covers a small pool completely.
        there = f"(SELECT count(*) FROM (SELECT 1 FROM search_entries LIMIT {values.bind(most)}) w)"
        rows = self._read(plan, source, conditions, keys, values, there)
        return [Hit(*row) for *row, _ in rows], bool(rows) and rows[0][-1] < most

    def _gather_postgresql(self, plan: SearchPlan) -> list[Hit]:
        values = Values()
        conditions = [*self._conditions(plan, values), *_match_ranges(plan.ranges, values)]
        # Materialized: its plan must not depend on the order or the limit.
        gathered = (
            f"(WITH g AS MATERIALIZED (SELECT e.* FROM search_entries AS e "
            f"WHERE {_all(conditions)}) SELECT * FROM g) AS e"
        )
        source, keys = _with_metric(plan, gathered, values)
        rows = self._read(plan, source, _after(plan, keys, values), keys, values)
        return [Hit(*row) for *row, _ in rows]

    def _gather_sqlite(self, plan: SearchPlan) -> list[Hit]:
        sources = _sources(plan)
        chosen, others = sources[0], sources[1:]
        is_long = False
        if others:
            counts = self._count(sources)
            shortest = min(range(len(sources)), key=counts.__getitem__)
            chosen = sources[shortest]
            others = sources[:shortest] + sources[shortest + 1 :]
            is_long = counts[shortest] == self._most_counted
        values = Values()
        # CROSS JOIN is an inner join that SQLite does not reorder.
        source = f"({chosen(values)}) AS s CROSS JOIN search_entries AS e ON e.version_id = s.id"
        source, keys = _with_metric(plan, source, values)
        conditions = [*self._conditions(plan, values), *_after(plan, keys, values)]
        if is_long:
            # All are long, yet few versions are in all of them: look them up in sets.
            conditions += [f"(s.id + 0) IN ({source_query(values)})" for source_query in others]
        conditions += _compare_ranges(plan.ranges, values)
        rows = self._read(plan, source, conditions, keys, values)
        return [Hit(*row) for *row, _ in rows]

    def _count(self, sources: "Sequence[Source]") -> list[int]:
        values = Values()
        columns = [
            f"(SELECT count(*) FROM ({source_query(values)} LIMIT {self._most_counted}))"
            for source_query in sources
        ]
        row = self._session.execute(text(f"SELECT {', '.join(columns)}"), values).one()
        return list(row)

    def _conditions(self, plan: SearchPlan, values: Values) -> list[str]:
        """Return all conditions on an entry except ranges."""
        if self._is_sqlite:
            conditions = [
                "({})".format(
                    " OR ".join(f"instr(e.terms, {values.bind(f' {term} ')})" for term in group)
                )
                for group in plan.groups
            ]
            conditions += [f"instr(e.words, lower({values.bind(part)}))" for part in plan.parts]
        else:
            # One array for all: the index then reads no version that lacks one of them.
            all_of = [group[0] for group in plan.groups if len(group) == 1]
            conditions = [f"e.terms @> {_numbers(all_of, values)}"] if all_of else []
            conditions += [
                f"e.terms && {_numbers(group, values)}" for group in plan.groups if len(group) > 1
            ]
            conditions += [
                f"e.words LIKE lower({values.bind(_pattern(part))})" for part in plan.parts
            ]
        if plan.other_than is not None:
            digest = values.bind(plan.other_than)
            conditions.append(
                f"e.version_id NOT IN (SELECT id FROM model_versions WHERE digest = {digest})"
            )
        return conditions

    def _read(  # noqa: PLR0917
        self,
        plan: SearchPlan,
        source: str,
        conditions: Sequence[str],
        keys: Sequence[str],
        values: Values,
        there: str = "0",
    ) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return rows with the fields of `Hit` and the number `there`."""
        facets = "e.facets" if plan.with_facets else "''"
        statement = (
            f"SELECT e.version_id, {keys[0]}, {facets}, {there} FROM {source} WHERE "
            f"{_all(conditions)} ORDER BY {_order(plan, keys)} LIMIT {values.bind(plan.limit)}"
        )
        # The best plan depends on how frequent the values are.
        options = {"plans_anew": True}
        return (
            self._session.connection()
            .execute(text(statement), values, execution_options=options)
            .all()
        )


Source = Callable[[Values], str]
"""A query for the ids of a plan's versions in one index of SQLite."""


def _sources(plan: SearchPlan) -> list[Source]:
    def by_terms(values: Values) -> str:
        # The index reads all versions of the first group and searches them for the others;
        # states and sites, first in a plan and common to nearly all versions, go last.
        groups = " AND ".join(f"({' OR '.join(group)})" for group in reversed(plan.groups))
        return (
            f"SELECT rowid AS id FROM search_terms WHERE search_terms MATCH {values.bind(groups)}"
        )

    def by_part(part: str) -> Source:
        quoted = '"' + part.replace('"', '""') + '"'
        return lambda values: (
            f"SELECT rowid AS id FROM search_words WHERE search_words MATCH {values.bind(quoted)}"
        )

    def by_range(range_: Range) -> Source:
        return lambda values: (
            f"SELECT version_id AS id FROM {range_.table} WHERE {_in_range(range_, values)}"
        )

    # The index of words has groups of three characters.
    parts = [by_part(part) for part in plan.parts if len(part) >= 3]
    return [by_terms, *parts, *map(by_range, plan.ranges)]


def _compare_ranges(ranges: Sequence[Range], values: Values) -> list[str]:
    """Return ranges as conditions that are evaluated for one version after the other."""
    return [
        f"(SELECT r.{number} FROM {range_.table} AS r WHERE r.version_id = e.version_id "
        f"AND r.{key} = {values.bind(range_.name)}) {range_.relation} {values.bind(range_.bound)}"
        for range_ in ranges
        for key, number in [range_.columns]
    ]


def _match_ranges(ranges: Sequence[Range], values: Values) -> list[str]:
    """Return ranges as conditions that the database may begin with."""
    return [
        f"e.version_id IN (SELECT version_id FROM {range_.table} WHERE {_in_range(range_, values)})"
        for range_ in ranges
    ]


def _in_range(range_: Range, values: Values) -> str:
    key, number = range_.columns
    return (
        f"{key} = {values.bind(range_.name)} AND {number} {range_.relation} "
        f"{values.bind(range_.bound)}"
    )


def _with_metric(plan: SearchPlan, source: str, values: Values) -> tuple[str, list[str]]:
    """Return a source of entries and its sort keys, joined with the metric of the order."""
    if plan.order.by != "metric":
        return source, _entry_keys(plan)
    metric = values.bind(plan.order.metric)
    source += f" JOIN metrics AS o ON o.version_id = e.version_id AND o.name = {metric}"
    # A sum, so that the database does not read all metrics in their order instead.
    return source, ["o.value + 0", "o.version_id"]


def _entry_keys(plan: SearchPlan) -> list[str]:
    """Return columns of entries in the plan's order; no two entries have the same values."""
    return ["e.sort_name"] if plan.order.by == "name" else ["e.version_id"]


def _after(plan: SearchPlan, keys: Sequence[str], values: Values) -> list[str]:
    """Return the condition that excludes the previous pages."""
    if plan.after is None:
        return []
    relation = "<" if plan.order.descending else ">"
    key = values.bind(plan.after.key)
    if len(keys) == 1:
        return [f"{keys[0]} {relation} {key}"]
    return [f"({', '.join(keys)}) {relation} ({key}, {values.bind(plan.after.version_id)})"]


def _order(plan: SearchPlan, keys: Sequence[str]) -> str:
    turn = "DESC" if plan.order.descending else "ASC"
    return ", ".join(f"{key} {turn}" for key in keys)


def _all(conditions: Sequence[str]) -> str:
    return " AND ".join(conditions) or "true"


def _numbers(terms: Sequence[str], values: Values) -> str:
    return f"CAST({values.bind([number_of(term) for term in terms])} AS bigint[])"


def _pattern(part: str) -> str:
    """Return the pattern that matches texts containing `part`, with % and _ taken literally."""
    for sign in "\\%_":
        part = part.replace(sign, f"\\{sign}")
    return f"%{part}%"
