"""Query parameters that narrow and order a listing."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query

from pool_server.registry import filters
from pool_server.wire.models import StateChoice
from pool_server.wire.names import Name

Sort = Annotated[
    str,
    Query(
        description="`created`, `name` or `metric.NAME`, with `-` before it for descending: "
        "`-created` has the newest first. By a metric, only versions that have it are listed.",
        max_length=80,
        examples=["-created", "metric.mean_error"],
    ),
]
ListingCursor = Annotated[
    str | None,
    Query(
        description="`next_cursor` of the page before, with the same `sort`.",
        max_length=filters.MOST_CURSOR_CHARACTERS,
        examples=["WyJ2MiIsIi1jcmVhdGVkIiw0Miw0Ml0"],
    ),
]


async def read_filters(  # noqa: PLR0917 - FastAPI gives them by name
    kind: Annotated[
        str | None,
        Query(description="`hog-svm`, `ert` or `network`.", max_length=16, examples=["ert"]),
    ] = None,
    site: Annotated[
        Name | None, Query(description="Only of this site.", examples=["site-a"])
    ] = None,
    name: Annotated[
        Name | None, Query(description="Only models of this name.", examples=["face-68"])
    ] = None,
    label: Annotated[
        list[str],
        Query(
            description="`KEY=VALUE`, `KEY` alone for any value, or a bound such as "
            "`KEY>=NUMBER` (also `>`, `<`, `<=`) for labels that are numbers; repeat to demand "
            "several.",
            examples=[["population=infant", "images>=500"]],
        ),
    ] = [],  # noqa: B006 - copied by FastAPI for every request
    metric: Annotated[
        list[str],
        Query(
            description="`NAME<VALUE`, or with `<=`, `>`, `>=`, `=`; repeat to demand several.",
            examples=[["mean_error<0.08"]],
        ),
    ] = [],  # noqa: B006
    text: Annotated[
        str | None,
        Query(
            description="Words that must all occur in name, site, description or labels, also "
            "within other words; of one or two letters or digits, as a word.",
            max_length=200,
            examples=["air-puff hose"],
        ),
    ] = None,
    mergeable_with: Annotated[
        str | None,
        Query(
            description="Address or `sha256:DIGEST` of a model of the pool: only versions that "
            "some method can merge with it, itself left out.",
            max_length=300,
            examples=["pool://site-a/face-68@2"],
        ),
    ] = None,
    mergeable_key: Annotated[
        list[str],
        Query(
            description="`METHOD:KEY` of a file that need not be in the pool; repeat for each "
            "method. Only versions that have one of the keys.",
            examples=[["wba-cascade:ert/68"]],
        ),
    ] = [],  # noqa: B006
    state: Annotated[
        StateChoice | None,
        Query(
            description="Only versions in this state. When left out: all that are available, and "
            "drafts and quarantined versions of one's own site; `any` adds withdrawn ones.",
            examples=["available"],
        ),
    ] = None,
    latest: Annotated[
        bool,
        Query(
            description="Only the newest version of each model: of those available, or in `state`.",
            examples=[True],
        ),
    ] = False,
) -> filters.ModelQuery:
    """Return all filters of a request."""
    return filters.ModelQuery(
        kind=kind,
        site=site,
        name=name,
        labels=tuple(filters.read_label(each) for each in filters.limit_count("label", label)),
        metrics=tuple(
            filters.MetricFilter.parse(each) for each in filters.limit_count("metric", metric)
        ),
        words=filters.read_words(text),
        mergeable_with=None
        if mergeable_with is None
        else filters.ModelChoice.parse(mergeable_with),
        mergeable_keys=tuple(
            filters.MergeKey.parse(each)
            for each in filters.limit_count("mergeable_key", mergeable_key)
        ),
        state=state,
        latest=latest,
    )


ModelFilters = Annotated[filters.ModelQuery, Depends(read_filters)]


def page_query(
    query: filters.ModelQuery, sort: str, limit: int, cursor: str | None
) -> filters.ModelQuery:
    """Return `query` with its order, and where its page begins and ends."""
    order = filters.Order.parse(sort)
    after = None if cursor is None else order.read_cursor(cursor)
    return replace(query, order=order, limit=limit, after=after)
