"""The catalogue: models found by search, and by filters in the words of the API."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.responses import Response

from pool_server.pages import words
from pool_server.pages.showing import asking, page_router, show
from pool_server.pages.visitor import Anyone
from pool_server.wire.evaluations import HEADLINES, EvaluationSummaryList
from pool_server.wire.models import FacetCount, FacetsResponse, ModelPage

SINGLE = ("text", "kind", "site", "name", "state", "mergeable_with", "latest", "sort")
SEVERAL = ("label", "metric")
STATES = ("available", "draft", "quarantined", "withdrawn", "any")
SORTS = (
    ("-created", "Newest first"),
    ("name", "Name"),
    ("metric.mean_error", "Mean error, smallest first"),
    ("-metric.f1", "F1, largest first"),
)
_UNSHOWN = frozenset({"sort", "text", "latest"})
_TITLES = {"mergeable_with": "Fits together with", "name": "Name", "metric": "Score"}


@dataclass(frozen=True)
class Choice:
    """One value of a facet, and the address of the listing with it, or without it if chosen."""

    text: str
    address: str
    count: int | None = None
    is_chosen: bool = False


@dataclass(frozen=True)
class Facet:
    """One property by which a listing is narrowed down."""

    title: str
    choices: list[Choice]


class Filters:
    """The filters of a listing, from the query of its page; other parameters are dropped."""

    def __init__(self, parameters: Iterable[tuple[str, str]]) -> None:
        known = SINGLE + SEVERAL
        self._parameters = [(name, value) for name, value in parameters if name in known and value]

    def __getitem__(self, name: str) -> str:
        return next((value for key, value in self._parameters if key == name), "")

    def query(self) -> dict[str, Any]:
        """Return the filters as parameters of the API."""
        single: dict[str, Any] = {name: self[name] for name in SINGLE if self[name]}
        return single | {
            name: [value for key, value in self._parameters if key == name] for name in SEVERAL
        }

    def address(self) -> str:
        return f"/models?{urlencode(self._parameters)}" if self._parameters else "/models"

    def hidden(self, *without: str) -> list[tuple[str, str]]:
        """Return the filters that a form carries as hidden fields: all but its visible ones."""
        excluded = without or ("text", "sort", "latest")
        return [pair for pair in self._parameters if pair[0] not in excluded]

    def has(self, name: str, value: str) -> bool:
        return (name, value) in self._parameters

    def toggled(self, name: str, value: str) -> str:
        """Return the address of the listing with this filter, or without it where it is set."""
        if self.has(name, value):
            rest = [pair for pair in self._parameters if pair != (name, value)]
        else:
            key = value.partition("=")[0] + "="
            rest = [
                (other, old)
                for other, old in self._parameters
                if other != name or (name == "label" and not old.startswith(key))
            ] + [(name, value)]
        return Filters(rest).address()

    def chips(self) -> Iterator[Choice]:
        """Yield each filter that is set, with the address of the listing without it."""
        for name, value in self._parameters:
            if name in _UNSHOWN:
                continue
            title, shown = _TITLES.get(name, name.capitalize()), value
            if name == "label":
                key, equals, rest = value.partition("=")
                title, shown = (words.label(key), rest) if equals else ("Label", value)
            elif name == "kind":
                shown = words.kind(value)
            yield Choice(f"{title}: {shown}", self.toggled(name, value), is_chosen=True)

    def facets(self, counted: FacetsResponse) -> Iterator[Facet]:
        """Yield the facets of a listing, with the chosen values marked."""
        yield self._facet("Kind", "kind", counted.kinds, dict(words.KINDS))
        for key in ("population", "dataset_type", "lighting"):
            facet_counts = counted.labels.get(key, [])
            yield self._facet(words.label(key), "label", facet_counts, key=key)
        yield self._facet("Site", "site", counted.sites)
        for key, facet_counts in counted.labels.items():
            if key not in {"population", "dataset_type", "lighting"}:
                yield self._facet(words.label(key), "label", facet_counts, key=key)
        counts = {count.value: count.count for count in counted.states}
        states = [
            Choice(
                "any state" if state == "any" else state,
                self.toggled("state", state),
                counts.get(state),
                self.has("state", state),
            )
            for state in STATES
        ]
        yield Facet("State", states)

    def _facet(
        self,
        title: str,
        name: str,
        counts: list[FacetCount],
        shown: dict[str, str] | None = None,
        key: str = "",
    ) -> Facet:
        values = [
            (f"{key}={count.value}" if key else count.value, count.value, count.count)
            for count in counts
        ]
        choices = [
            Choice(
                (shown or {}).get(word, word),
                self.toggled(name, value),
                count,
                self.has(name, value),
            )
            for value, word, count in values
        ]
        return Facet(title, choices)


router = page_router()
ROWS = 30


@router.get("/models")
async def catalogue(visitor: Anyone, cursor: str = "") -> Response:
    """List the versions that pass all filters, newest first unless another order is asked for."""
    api = visitor.api
    filters = Filters(visitor.request.query_params.multi_items())
    query = filters.query()
    facets_query = {name: value for name, value in query.items() if name != "sort"}
    page, facets = await asyncio.gather(
        api.get(ModelPage, "/models", **query, limit=ROWS, cursor=cursor),
        api.get(FacetsResponse, "/models/facets", **facets_query),
    )
    digests = list(dict.fromkeys(version.digest for version in page.items))
    measured = (
        await asking(api.get(EvaluationSummaryList, "/evaluations/summaries", digest=digests))
        if digests
        else None
    )
    scores = {(row.digest, row.score): row for row in (measured.items if measured else [])}
    return await show(
        visitor,
        "catalogue.html",
        filters=filters,
        sorts=SORTS,
        versions=page.items,
        scores={
            version.address: scores.get((version.digest, HEADLINES.get(version.kind, "")))
            for version in page.items
        },
        counted=facets,
        facets=[facet for facet in filters.facets(facets) if facet.choices],
        chips=list(filters.chips()),
        next_address=visitor.next_page(page.next_cursor),
        is_first=not cursor,
    )
