"""The first page, the addresses of all pages, and the endpoints for monitoring."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from pool_server.database.schema import newest_revision
from pool_server.errors import ServerStoppingError
from pool_server.http.identity import SignedIn, needs
from pool_server.http.metrics import CONTENT_TYPE
from pool_server.http.paths import API_PREFIX
from pool_server.http.session import Parts, ProcessReadiness, ProcessTraffic, server_parts
from pool_server.pages import (
    admin,
    catalogue,
    comparing,
    describing,
    login,
    model,
    rendering,
    rounds,
    sign_on,
    uploading,
)
from pool_server.pages.showing import asking, page_router, show
from pool_server.pages.signing import find_unsigned
from pool_server.pages.visitor import Anyone, pinned_address
from pool_server.people.sites import pool_version
from pool_server.wire.activity import EventPage
from pool_server.wire.models import ModelPage, ModelVersionResponse
from pool_server.wire.people import SiteList
from pool_server.wire.rounds import RoundPage
from pool_server.wire.versions import ApiResponse

router = APIRouter()
pages = page_router()


class HealthResponse(BaseModel):
    """The server is there."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", tags=["operations"], summary="Check that the server runs")
async def healthz() -> HealthResponse:
    """Answer as long as the process runs. Needs no token."""
    return HealthResponse()


@router.get(API_PREFIX, tags=["operations"], summary="Say which versions fit this pool")
async def describe_api() -> ApiResponse:
    """Return the versions of the program, the schema and the API. Needs no token."""
    return ApiResponse(program=pool_version(), database_schema=newest_revision())


@router.get("/readyz", tags=["operations"], summary="Check that database and storage take writes")
async def readyz(readiness: ProcessReadiness, traffic: ProcessTraffic) -> HealthResponse:
    """Answer 200 when database and storage take writes, 503 otherwise. Needs no token.

    Also 503 while the server stops: it finishes open requests, and should get no new ones.
    """
    if traffic.is_stopping:
        raise ServerStoppingError(
            "this server is stopping: it finishes the requests under way",
            hint="Ask another server of the pool, or this one after its restart.",
        )
    await readiness.require()
    return HealthResponse()


@router.get(
    "/metrics",
    tags=["operations"],
    summary="Return the counters of this process",
    response_class=Response,
    responses={
        200: {"description": "Counters.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
    dependencies=[needs("metrics:read")],
)
def metrics(parts: Parts, caller: SignedIn) -> Response:
    """Return counters and gauges in Prometheus' text form; for a role that holds pool-wide."""
    caller.require_role("viewer")
    return Response(parts.metrics.text(), media_type=CONTENT_TYPE)


@pages.get("/json/{path:path}")
async def as_json(visitor: Anyone, path: str) -> Response:
    """Pass an answer of the API on to a logged-in visitor."""
    return visitor.api.pass_on("GET", f"/{path}")


MOST_EVENTS, MOST_MODELS, MOST_ROUNDS = 20, 50, 50
FEW_MODELS = 3
"""First steps are shown to a site with fewer versions, none of them merged."""


@pages.get("/")
async def first_page(request: Request, visitor: Anyone) -> Response:
    """Show waiting rounds, flagged models, drafts and the latest events."""
    if visitor.caller is None:
        address = pinned_address(request)
        return await show(visitor, "landing.html", address=address)
    api, site = visitor.api, visitor.member.site
    # Where a pool is curated, its curators see the drafts of all sites.
    drafts_of = {} if server_parts(request).settings.curated else {"site": site}
    rounds, listing, waiting, events = await asyncio.gather(
        asking(api.get(RoundPage, "/rounds", state="open", limit=MOST_ROUNDS)),
        asking(api.get(ModelPage, "/models", site=site, state="any", limit=MOST_MODELS)),
        asking(api.get(ModelPage, "/models", state="waiting", limit=MOST_MODELS, **drafts_of)),
        asking(api.get(EventPage, "/events", newest=True, limit=MOST_EVENTS)),
    )
    models = listing.items if listing else []
    drafts = waiting.items if waiting else []
    is_new = len(models) < FEW_MODELS and not any(version.has_recipe for version in models)
    sites = None
    if is_new and visitor.member.is_admin:
        sites = await asking(api.get(SiteList, "/sites"))
    return await show(
        visitor,
        "home.html",
        rounds=[round_ for round_ in rounds.items if site in round_.sites("waiting")]
        if rounds
        else [],
        flagged=list(_to_make_again(models)),
        unsigned=await find_unsigned(api, drafts),
        drafts=drafts,
        is_new=is_new,
        has_models=bool(models),
        has_sites=sites is not None and len(sites.items) > 1,
        events=events.items if events else [],
    )


def _to_make_again(models: Sequence[ModelVersionResponse]) -> Iterator[ModelVersionResponse]:
    """Yield versions that hold something withdrawn, and that nothing newer replaces."""
    for version in models:
        is_replaced = bool(version.successors) or any(
            other.name == version.name
            and other.version > version.version
            and other.state == "available"
            for other in models
        )
        if version.flags and version.state != "withdrawn" and not is_replaced:
            yield version


# The first page is last: its path begins all others.
ROUTERS = (
    router,
    login.router,
    catalogue.router,
    describing.router,
    model.router,
    comparing.router,
    rounds.router,
    sign_on.router,
    uploading.router,
    admin.router,
    rendering.router,
    pages,
)
