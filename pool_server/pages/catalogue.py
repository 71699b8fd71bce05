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

    words: str
    address: str
    count: int | None = None
    is_chosen: bool = False


@dataclass(frozen=True)
class Facet:
    """One property by which a listing is narrowed down."""

    title: str
    choices: list[Choice]


class Filters:
    """The filters of a listing.

    `given`: The query of the page; names that are no filter are dropped.
    """

    def __init__(self, given: Iterable[tuple[str, str]]) -> None:
        known = SINGLE + SEVERAL
        self._given = [(name, value) for name, value in given if name in known and value]

    def __getitem__(self, name: str) -> str:
        return next((value for key, value in self._given if key == name), "")

    def query(self) -> dict[str, Any]:
        """Return the filters as parameters of the API."""
        found: dict[str, Any] = {name: self[name] for name in SINGLE if self[name]}
        return found | {
            name: [value for key, value in self._given if key == name] for name in SEVERAL
        }

    def address(self) -> str:
        return f"/models?{urlencode(self._given)}" if self._given else "/models"

    def hidden(self, *without: str) -> list[tuple[str, str]]:
        """Return what a form sends along: all but its own fields."""
        own = without or ("text", "sort", "latest")
        return [each for each in self._given if each[0] not in own]

    def has(self, name: str, value: str) -> bool:
        return (name, value) in self._given

    def toggled(self, name: str, value: str) -> str:
        """Return the address of the listing with this filter, or without it where it is set."""
        if self.has(name, value):
            rest = [each for each in self._given if each != (name, value)]
        else:
            key = value.partition("=")[0] + "="
            rest = [
                (other, old)
                for other, old in self._given
                if other != name or (name == "label" and not old.startswith(key))
            ] + [(name, value)]
        return Filters(rest).address()

    def chips(self) -> Iterator[Choice]:
        """Yield each filter that is set, with the address of the listing without it."""
        for name, value in self._given:
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
        """Yield the facets of a listing, with what is chosen of each."""
        yield self._facet("Kind", "kind", counted.kinds, dict(words.KINDS))
        for key in ("population", "dataset_type", "lighting"):
            found = counted.labels.get(key, [])
            yield self._facet(words.label(key), "label", found, key=key)
        yield self._facet("Site", "site", counted.sites)
        for key, found in counted.labels.items():
            if key not in {"population", "dataset_type", "lighting"}:
                yield self._facet(words.label(key), "label", found, key=key)
        counts = {each.value: each.count for each in counted.states}
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
            (f"{key}={each.value}" if key else each.value, each.value, each.count)
            for each in counts
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
    digests = list(dict.fromkeys(each.digest for each in page.items))
    measured = (
        await asking(api.get(EvaluationSummaryList, "/evaluations/summaries", digest=digests))
        if digests
        else None
    )
    scores = {(each.digest, each.score): each for each in (measured.items if measured else [])}
    return await show(
        visitor,
        "catalogue.html",
        filters=filters,
        sorts=SORTS,
        versions=page.items,
        scores={
            each.address: scores.get((each.digest, HEADLINES.get(each.kind, "")))
            for each in page.items
        },
        counted=facets,
        facets=[each for each in filters.facets(facets) if each.choices],
        chips=list(filters.chips()),
        next_address=visitor.next_page(page.next_cursor),
        is_first=not cursor,
    )
