"""Addresses for browsers and for whatever watches the server."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Literal

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel

from pool_server.errors import ServerStoppingError
from pool_server.http.identity import SignedIn, needs
from pool_server.http.metrics import CONTENT_TYPE
from pool_server.http.session import Parts, ProcessReadiness, ProcessTraffic
from pool_server.pages import (
    admin,
    catalogue,
    comparing,
    describing,
    home,
    login,
    merging,
    model,
    rendering,
    rounds,
    uploading,
)
from pool_server.pages.showing import page_router
from pool_server.pages.visitor import Anyone

router = APIRouter()
pages = page_router()


class HealthResponse(BaseModel):
    """The server is there."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", tags=["operations"], summary="Check that the server runs")
async def healthz() -> HealthResponse:
    """Answer as long as the process runs. Needs no token."""
    return HealthResponse()


@router.get("/readyz", tags=["operations"], summary="Check that database and storage answer")
async def readyz(readiness: ProcessReadiness, traffic: ProcessTraffic) -> HealthResponse:
    """Answer 200 when database and storage answer, 503 otherwise. Needs no token.

    Also 503 while the server stops: it finishes what is under way, and should get nothing new.
    """
    if traffic.is_stopping:
        raise ServerStoppingError(
            "this server is stopping: it finishes the requests under way",
            hint="Ask another server of the pool, or this one again once it was started anew.",
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
    """Send what the API answers at an address, to who is logged in here."""
    return visitor.api.pass_on("GET", f"/{path}")


@pages.get("/docs")
async def reference(request: Request) -> HTMLResponse:
    """Show the reference of the API."""
    return rendering.page_response(render_reference(request.app))


@lru_cache(maxsize=4)
def render_reference(app: FastAPI) -> str:
    """Return the page of all operations, which stays the same while the server runs."""
    schema = app.openapi()
    return rendering.render_page(
        "reference.html",
        schema=schema,
        tag_descriptions={tag["name"]: tag["description"] for tag in schema["tags"]},
        operations_by_tag=rendering.operations_by_tag(schema),
    )


NOUNS: tuple[ModuleType, ...] = (
    home,
    login,
    catalogue,
    describing,
    model,
    comparing,
    merging,
    rounds,
    uploading,
    admin,
    rendering,
)
for noun in NOUNS:
    pages.include_router(noun.router)
