"""Addresses of events, and of the webhooks that are called with them."""

from __future__ import annotations

import time
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Path, Query, Request

from pool_server.activity.events import feed, webhooks
from pool_server.errors import TooManyRequestsError
from pool_server.http.error_responses import documented
from pool_server.http.identity import SignedIn, SiteAdmin
from pool_server.http.rate_limits import Limits
from pool_server.http.scopes import needs
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.http.traffic import ProcessTraffic
from pool_server.wire.events import (
    LONGEST_WAIT_S,
    MOST_EVENTS,
    WEBHOOK_ID_PATTERN,
    EventKind,
    EventPage,
    WebhookCreatedResponse,
    WebhookList,
    WebhookRequest,
    WebhookTestResponse,
)
from pool_server.wire.names import Name

router = APIRouter(tags=["events"], dependencies=[needs("events")])

LOOK_INTERVAL_S = 0.5

WebhookId = Annotated[
    str,
    Path(
        pattern=WEBHOOK_ID_PATTERN,
        description="Identifier from the list of webhooks.",
        examples=["4f1d2c3b4a596877"],
    ),
]
OfSite = Annotated[
    Name | None,
    Query(description="One's own when left out; any for admins of the pool.", examples=["site-a"]),
]


@router.get("/events", summary="Read what happened")
async def list_events(  # noqa: PLR0917 - FastAPI gives them by name
    request: Request,
    caller: SignedIn,
    parts: Parts,
    traffic: ProcessTraffic,
    after: Annotated[
        int, Query(ge=0, le=2**62, description="`last_id` of the page before.", examples=[42])
    ] = 0,
    kind: Annotated[
        EventKind | None,
        Query(description="Only events of this kind.", examples=["version.flagged"]),
    ] = None,
    site: OfSite = None,
    limit: Annotated[
        int, Query(ge=1, le=MOST_EVENTS, description="Most items of the page.", examples=[50])
    ] = 50,
    wait_s: Annotated[
        float,
        Query(
            ge=0,
            le=LONGEST_WAIT_S,
            description="Where there is nothing yet, wait so long for it, in seconds.",
            examples=[15],
        ),
    ] = 0,
) -> EventPage:
    """Return the events of one's own site after a given one, oldest first.

    Ask again with `after` set to `last_id`: nothing is missed, and nothing comes twice.
    """
    of_site = feed.choose_site(caller, site)

    def look() -> EventPage:
        with parts.database.read() as session:
            return feed.read_events(session, of_site, after, kind=kind, limit=limit)

    deadline = time.monotonic() + wait_s
    while True:
        page = await anyio.to_thread.run_sync(look)
        if page.items or time.monotonic() >= deadline or traffic.is_stopping:
            return page
        if await request.is_disconnected():
            return page
        await traffic.pause(LOOK_INTERVAL_S)


@router.get("/webhooks", summary="List the webhooks")
def list_webhooks(caller: SiteAdmin, session: ReadingSession, site: OfSite = None) -> WebhookList:
    """Return the addresses that are called with a site's events. For its admins."""
    return WebhookList(items=webhooks.list_webhooks(session, caller, site))


@router.post("/webhooks", status_code=201, summary="Create a webhook")
def create_webhook(
    caller: SiteAdmin, parts: Parts, session: WritingSession, request: WebhookRequest
) -> WebhookCreatedResponse:
    """Have an address called with every further event of a site. For its admins.

    The answer has the secret that signs what is sent there, this once. Addresses within private
    networks are not called, unless the pool is set up for that.
    """
    return webhooks.create_webhook(session, parts.settings, caller, request)


@router.delete("/webhooks/{webhook_id}", status_code=204, summary="Delete a webhook")
def delete_webhook(caller: SiteAdmin, session: WritingSession, webhook_id: WebhookId) -> None:
    """Stop calling an address; what it still waits for is dropped. For admins of its site."""
    webhooks.delete_webhook(session, caller, webhook_id)


@router.post(
    "/webhooks/{webhook_id}/test",
    summary="Try a webhook",
    responses=documented(TooManyRequestsError),
)
def try_webhook(
    caller: SiteAdmin, parts: Parts, limits: Limits, webhook_id: WebhookId
) -> WebhookTestResponse:
    """Call an address now with an event `webhook.test`, and tell what it said."""
    limits.webhook_tests.take(caller.site, "webhooks tried by your site")
    return webhooks.try_webhook(parts, caller, webhook_id)
