"""Searching on PostgreSQL.

Its planner knows how frequent each term is, but takes conditions for independent of each other.
Where they are not, it may walk through all versions in the order asked for, in the belief that a
page will soon be full. So a first query walks through a limited number of versions. If that does
not fill the page, but some times as many versions should, a second one walks that far. Otherwise
what is asked for is rare, at least here, and is gathered by the indexes of the conditions, and put
into order when all of it is there.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    exists,
    func,
    literal,
    null,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Session, aliased

from pool_server.records import (
    LabelRecord,
    MetricRecord,
    ModelVersionRecord,
    SearchEntryRecord,
)
from pool_server.registry.filters import MetricRelation
from pool_server.registry.search.plan import Found, RangeFilter, SearchPlan
from pool_server.registry.search.terms import number_of

MOST_WALKED = 1500
# To walk on is quicker than to gather, up to so many times as far; less where each version on the
# way is looked up in another table.
MOST_TIMES, MOST_TIMES_WITH_RANGES = 5, 2

RELATIONS: dict[MetricRelation, Callable[[Any, Any], ColumnElement[bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


class PostgresFinder:
    """Finds versions in a PostgreSQL database; see the module and `Finder`.

    Parameters
    ----------
    most_walked : int
        How many versions the first query walks through.
    """

    def __init__(self, session: Session, most_walked: int = MOST_WALKED) -> None:
        self._session = session
        self._most = most_walked

    def find(self, plan: SearchPlan) -> list[Found]:
        if plan.limit > self._most:
            # So many that the planner's guess of how far it has to walk is hardly ever wrong.
            return self._run(walk(plan, None))
        most = max(self._most, 2 * plan.limit)
        found = self._run(walk(plan, most))
        # Half as far again as is needed if they go on to come as often.
        times = 1.5 * plan.limit / max(len(found), 1)
        most_times = MOST_TIMES_WITH_RANGES if plan.ranges else MOST_TIMES
        if len(found) < plan.limit and times <= most_times:
            found = self._run(walk(plan, math.ceil(most * times)))
        return found if len(found) == plan.limit else self._run(gather(plan))

    def _run(self, statement: Select[Any]) -> list[Found]:
        return [Found(*row) for row in self._session.execute(statement).all()]


def walk(plan: SearchPlan, most: int | None) -> Select[Any]:
    """Select, of the first `most` versions of the order, those for which all conditions hold.

    Of all versions if None; the database then decides where to begin.
    """
    if plan.order.by == "metric":
        value, version_id = MetricRecord.value, MetricRecord.version_id
        rows = select(MetricRecord).where(MetricRecord.name == plan.order.metric)
        first: Any = aliased(MetricRecord, _ordered(plan, rows, value, version_id, most).subquery())
        entry: Any = SearchEntryRecord
        key = first.value
        statement = select(entry.version_id, key, _facets(plan, entry)).join(
            first, first.version_id == entry.version_id
        )
    else:
        rows = select(SearchEntryRecord)
        own = _own_key(plan, SearchEntryRecord)
        identifier = SearchEntryRecord.version_id
        entry = first = aliased(
            SearchEntryRecord, _ordered(plan, rows, own, identifier, most).subquery()
        )
        key = _own_key(plan, entry)
        statement = select(entry.version_id, key, _facets(plan, entry))
    statement = statement.where(
        *_conditions(plan, entry), *(_holds(wanted, entry) for wanted in plan.ranges)
    )
    return statement.order_by(*_turned(plan, key, first.version_id)).limit(plan.limit)


def gather(plan: SearchPlan) -> Select[Any]:
    """Select those for which all conditions hold, to be ordered when they are all there."""
    entry: Any = SearchEntryRecord
    conditions = [*_conditions(plan, entry), *(_within(wanted, entry) for wanted in plan.ranges)]
    key = _own_key(plan, entry)
    if plan.order.by == "created":
        conditions += _beyond(plan, key, entry.version_id)
    # Materialized: how it is found does not depend on the order or the limit.
    found = (
        select(entry.version_id, key.label("key"), _facets(plan, entry).label("facets"))
        .where(*conditions)
        .cte("found")
        .prefix_with("MATERIALIZED")
    )
    columns = found.c
    if plan.order.by != "metric":
        statement = select(columns.version_id, columns.key, columns.facets)
        if plan.order.by == "name":
            statement = statement.where(*_beyond(plan, columns.key, columns.version_id))
        turned = _turned(plan, columns.key, columns.version_id)
        return statement.order_by(*turned).limit(plan.limit)
    value, version_id = MetricRecord.value, MetricRecord.version_id
    return (
        select(columns.version_id, value, columns.facets)
        .join(MetricRecord, version_id == columns.version_id)
        .where(MetricRecord.name == plan.order.metric, *_beyond(plan, value, version_id))
        # A sum, so that it does not go through all metrics by their index after all.
        .order_by(*_turned(plan, value + 0, version_id))
        .limit(plan.limit)
    )


def _own_key(plan: SearchPlan, entry: Any) -> Any:
    return entry.sort_name if plan.order.by == "name" else entry.version_id


def _turned(plan: SearchPlan, *columns: Any) -> list[Any]:
    return [each.desc() if plan.order.descending else each for each in columns]


def _ordered(
    plan: SearchPlan, rows: Select[Any], key: Any, identifier: Any, most: int | None
) -> Select[Any]:
    """Return the first rows of the order, behind where the page before has ended."""
    columns = (key,) if plan.order.by == "created" else (key, identifier)
    turned = _turned(plan, *columns)
    return rows.where(*_beyond(plan, key, identifier)).order_by(*turned).limit(most)


def _beyond(plan: SearchPlan, key: Any, identifier: Any) -> list[ColumnElement[bool]]:
    if plan.after is None:
        return []
    relation = RELATIONS["<" if plan.order.descending else ">"]
    if plan.order.by == "metric":
        after = tuple_(literal(plan.after.key), literal(plan.after.version_id))
        return [relation(tuple_(key, identifier), after)]
    return [relation(key, plan.after.key)]


def _facets(plan: SearchPlan, entry: Any) -> Any:
    return entry.facets if plan.wants_facets else null()


def _conditions(plan: SearchPlan, entry: Any) -> list[ColumnElement[bool]]:
    """Return all conditions but ranges."""
    all_of = [group[0] for group in plan.groups if len(group) == 1]
    conditions = [entry.terms.op("@>")(_numbers(all_of))] if all_of else []
    conditions += [entry.terms.op("&&")(_numbers(group)) for group in plan.groups if len(group) > 1]
    conditions += [
        entry.words.like(func.lower(literal(_escaped(part))), escape="\\") for part in plan.parts
    ]
    if plan.other_than is not None:
        same = select(ModelVersionRecord.id).where(ModelVersionRecord.digest == plan.other_than)
        conditions.append(entry.version_id.not_in(same))
    return conditions


def _numbers(terms: Iterable[str]) -> ColumnElement[Any]:
    return literal([number_of(term) for term in terms], ARRAY(BigInteger()))


def _escaped(part: str) -> str:
    """Return the pattern of what contains a text, whose own % and _ mean themselves."""
    for sign in "\\%_":
        part = part.replace(sign, f"\\{sign}")
    return f"%{part}%"


def _range(wanted: RangeFilter) -> tuple[Any, Any, Any]:
    """Return the table of a range, under a name of its own, with its columns name and number."""
    if wanted.of == "metric":
        row: Any = aliased(MetricRecord)
        return row, row.name, row.value
    row = aliased(LabelRecord)
    return row, row.key, row.number


def _within(wanted: RangeFilter, entry: Any) -> ColumnElement[bool]:
    """Return a range as a condition that the database may begin with."""
    row, name, number = _range(wanted)
    in_bounds = RELATIONS[wanted.relation](number, wanted.bound)
    return exists().where(row.version_id == entry.version_id, name == wanted.name, in_bounds)


def _holds(wanted: RangeFilter, entry: Any) -> ColumnElement[bool]:
    """Return a range as a condition that the database asks of one version after the other."""
    row, name, number = _range(wanted)
    value = select(number).where(row.version_id == entry.version_id, name == wanted.name)
    return RELATIONS[wanted.relation](value.scalar_subquery(), wanted.bound)
