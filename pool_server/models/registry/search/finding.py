"""From what is asked for to what the databases are asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from pool_server.http.identity import Caller
from pool_server.models.registry.filters import LabelBound, MergeKey, ModelQuery
from pool_server.models.registry.search.plan import Finder, RangeFilter, SearchPlan
from pool_server.models.registry.search.postgres import PostgresFinder
from pool_server.models.registry.search.sqlite import SqliteFinder
from pool_server.models.registry.search.terms import is_short, terms_of

_FINDERS: dict[str, Any] = {"sqlite": SqliteFinder, "postgresql": PostgresFinder}


def finder_of(session: Session) -> Finder:
    """Return the finder for the database of a session."""
    finder: Finder = _FINDERS[session.get_bind().dialect.name](session)
    return finder


def plan_search(
    caller: Caller,
    query: ModelQuery,
    merge_groups: Sequence[Sequence[MergeKey]] = (),
    *,
    other_than: str | None = None,
    limit: int,
) -> SearchPlan:
    """Return what a query asks the database for: what passes every filter, of what is seen.

    Parameters
    ----------
    merge_groups : sequence of sequences of MergeKey
        Of each group, a version must have at least one key.
    other_than : str, optional
        A digest to leave out.
    limit : int
        Most versions to find.
    """
    ranges = [
        RangeFilter("label", each.key, each.relation, each.bound)
        for each in query.labels
        if isinstance(each, LabelBound)
    ]
    ranges += [
        RangeFilter("metric", each.name, each.relation, each.bound) for each in query.metrics
    ]
    return SearchPlan(
        groups=terms_of(caller, query, merge_groups),
        parts=tuple(word for word in query.words if not is_short(word)),
        ranges=tuple(ranges),
        order=query.order,
        after=query.after,
        other_than=other_than,
        limit=limit,
    )
