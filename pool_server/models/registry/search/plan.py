"""From what a listing asks for to what the database is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pool_server.http.identity import Caller
from pool_server.models.registry.filters import LabelBound, MergeKey, MetricRelation, ModelQuery
from pool_server.models.registry.search.ordering import Order, Position
from pool_server.models.registry.search.terms import TermGroups, is_short, terms_of


@dataclass(frozen=True)
class RangeFilter:
    """The number called `name` in `table` stands in `relation` to `bound`.

    `key` and `number` are the columns with the name and the number.
    """

    table: Literal["metrics", "labels"]
    key: Literal["name", "key"]
    number: Literal["value", "number"]
    name: str
    relation: MetricRelation
    bound: float


@dataclass(frozen=True)
class SearchPlan:
    """One search: every condition holds for each version that is found.

    Attributes
    ----------
    groups : tuple of tuples of str
        Of each group, one of the terms.
    parts : tuple of str
        What the words contain, in upper or lower case.
    after : Position, optional
        Where the page before ended.
    other_than : str, optional
        A digest that is left out.
    with_facets : bool
        Return the terms that are counted.
    """

    groups: TermGroups
    parts: tuple[str, ...]
    ranges: tuple[RangeFilter, ...]
    order: Order
    limit: int
    after: Position | None = None
    other_than: str | None = None
    with_facets: bool = False


class Found(NamedTuple):
    """One version that was found; `key` is what it was ordered by."""

    version_id: int
    key: int | float | str
    facets: str = ""


def plan_search(
    caller: Caller,
    query: ModelQuery,
    merge_groups: Sequence[Sequence[MergeKey]] = (),
    *,
    other_than: str | None = None,
    limit: int,
    with_facets: bool = False,
) -> SearchPlan:
    """Return what finds the versions that pass every filter and that the caller may see.

    A version must have at least one key of each of `merge_groups`.
    """
    ranges = [
        RangeFilter("labels", "key", "number", each.key, each.relation, each.bound)
        for each in query.labels
        if isinstance(each, LabelBound)
    ]
    ranges += [
        RangeFilter("metrics", "name", "value", each.name, each.relation, each.bound)
        for each in query.metrics
    ]
    return SearchPlan(
        groups=terms_of(caller, query, merge_groups),
        parts=tuple(word for word in query.words if not is_short(word)),
        ranges=tuple(ranges),
        order=query.order,
        after=query.after,
        other_than=other_than,
        limit=limit,
        with_facets=with_facets,
    )
