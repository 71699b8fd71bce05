"""Counting what the versions of a listing have in common.

Versions are looked at up to a limit, the newest first: whatever is counted, it takes no longer
than that. The answer says whether it was all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from pool_server.http.identity import Caller
from pool_server.models.registry.filters import MergeKey, ModelQuery
from pool_server.models.registry.search.finder import Finder
from pool_server.models.registry.search.plan import plan_search
from pool_server.models.registry.search.terms import text_of, text_term
from pool_server.wire.models.facets import FacetCount, FacetsResponse
from pool_server.wire.models.labels import CORE_LABELS

MOST_COUNTED = 1000
MOST_VALUES = 20
_FACET_KEYS = [each.key for each in CORE_LABELS if each.type in {"choice", "text"}]
_LABEL_STARTS = tuple(text_term("l", f"{key}=") for key in _FACET_KEYS)


def count_facets(
    session: Session,
    caller: Caller,
    query: ModelQuery,
    merge_groups: Sequence[Sequence[MergeKey]] = (),
    *,
    other_than: str | None = None,
) -> FacetsResponse:
    """Count kinds, sites, states and core labels of the versions that pass every filter."""
    # One more tells whether those are all.
    plan = plan_search(
        caller,
        query,
        merge_groups,
        other_than=other_than,
        limit=MOST_COUNTED + 1,
        with_facets=True,
    )
    found = Finder(session).find(plan)
    counted = found[:MOST_COUNTED]
    facets = _by_facet(Counter(" ".join(each.facets for each in counted).split()))
    return FacetsResponse(
        counted=len(counted),
        complete=len(found) <= MOST_COUNTED,
        kinds=_most_frequent(facets["k"]),
        sites=_most_frequent(facets["s"]),
        states=_most_frequent(facets["x"]),
        labels={key: _most_frequent(facets[key]) for key in _FACET_KEYS if key in facets},
    )


def _by_facet(terms: Counter[str]) -> defaultdict[str, dict[str, int]]:
    """Return the values of each facet, which is called by its letter, or by the label's key."""
    facets = defaultdict[str, dict[str, int]](dict)
    for term, count in terms.items():
        letter = term[0]
        if letter == "x":
            facets[letter][term[1:]] = count
        elif letter != "l":
            facets[letter][text_of(term)] = count
        elif term.startswith(_LABEL_STARTS):
            key, _, value = text_of(term).partition("=")
            facets[key][value] = count
    return facets


def _most_frequent(values: Mapping[str, int]) -> list[FacetCount]:
    ordered = sorted(values.items(), key=lambda item: (-item[1], item[0]))
    return [FacetCount(value=value, count=count) for value, count in ordered[:MOST_VALUES]]
