"""The catalogue: models found by search and facets."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from pool_server.pages.filters import SORTS, Filters
from pool_server.pages.page_route import page_router
from pool_server.pages.showing import asking, show
from pool_server.pages.visitor import Anyone
from pool_server.wire.evaluations import HEADLINES, EvaluationSummaryList
from pool_server.wire.models import FacetsResponse, ModelPage

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
