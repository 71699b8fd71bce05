"""Statements as text, and the two ways to read what they find.

They differ with what is asked for; SQLAlchemy would take longer to make one of its expressions
than the databases take to answer it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Row, text
from sqlalchemy.orm import Session

from pool_server.models.registry.search.ordering import Position
from pool_server.models.registry.search.plan import Counted, Found, RangeFilter, SearchPlan

T = TypeVar("T")


class Values(dict[str, Any]):
    """The values in a statement, each under a name of its own."""

    def bind(self, value: Any) -> str:
        """Return what stands for `value` in the statement."""
        name = f"v{len(self)}"
        self[name] = value
        return f":{name}"


@dataclass(frozen=True)
class Reading(Generic[T]):
    """How the versions that a statement finds are read.

    Attributes
    ----------
    columns : str
        What the statement selects of an entry ``e``, beside its id and its key.
    fetch : callable
        Runs a statement with its values.
    size : callable
        Tells how many versions there are in what was read.
    """

    columns: str
    fetch: Callable[[Session, str, Values], T]
    size: Callable[[T], int]


def fetch_found(session: Session, statement: str, values: Values) -> list[Found]:
    return [Found(*row) for row in _run(session, statement, values)]


def fetch_counted(session: Session, statement: str, values: Values) -> Counted:
    # To read a thousand rows takes longer than to have them put together.
    add = {"sqlite": "group_concat", "postgresql": "string_agg"}[session.get_bind().dialect.name]
    statement = (
        f"SELECT count(*), {add}(facets, {values.bind(chr(10))}) FROM ({statement}) AS found"
    )
    ((count, facets),) = _run(session, statement, values)
    return Counted(count, facets or "")


def _run(session: Session, statement: str, values: Values) -> Sequence[Row[*tuple[Any, ...]]]:
    connection = session.connection()
    # Where to begin depends on how frequent is what is asked for.
    options = {"plans_anew": True}
    return connection.execute(text(statement), values, execution_options=options).all()


FIND = Reading("", fetch_found, len)
COUNT = Reading(", e.facets AS facets", fetch_counted, lambda counted: counted.versions)


def turned(plan: SearchPlan, columns: Sequence[str]) -> str:
    """Return columns as what the plan orders by."""
    turn = "DESC" if plan.order.descending else "ASC"
    return ", ".join(f"{column} {turn}" for column in columns)


def beside(
    plan: SearchPlan, columns: Sequence[str], relation: str, position: Position, values: Values
) -> str:
    """Return the condition to be behind a position (``>``) or not behind it (``<=``)."""
    if plan.order.descending:
        relation = {">": "<", "<=": ">="}[relation]
    key = values.bind(position.key)
    if len(columns) == 1:
        return f"{columns[0]} {relation} {key}"
    return f"({', '.join(columns)}) {relation} ({key}, {values.bind(position.version_id)})"


def range_columns(wanted: RangeFilter) -> tuple[str, str, str]:
    """Return the table of a range, and its columns with the name and with the number."""
    return {
        "metric": ("metrics", "name", "value"),
        "label": ("labels", "key", "number"),
    }[wanted.of]


def range_condition(wanted: RangeFilter, alias: str, values: Values) -> tuple[str, str]:
    """Return the table of a range, and the condition on its rows, which are called `alias`."""
    table, name, number = range_columns(wanted)
    return table, (
        f"{alias}.{name} = {values.bind(wanted.name)} "
        f"AND {alias}.{number} {wanted.relation} {values.bind(wanted.bound)}"
    )
