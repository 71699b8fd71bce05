"""The first page: what waits for one's site; for anybody else, what a pool is."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.responses import Response

from pool_server.pages.showing import asking, page_router, show
from pool_server.pages.visitor import Anyone, own_address
from pool_server.wire.activity import EventPage
from pool_server.wire.models import ModelPage
from pool_server.wire.rounds import RoundPage

router = page_router()
MOST_EVENTS, MOST_MODELS, MOST_ROUNDS = 20, 50, 50


@router.get("/")
async def first_page(request: Request, visitor: Anyone) -> Response:
    """Show rounds that wait, models with something wrong, drafts, and what happened."""
    if visitor.caller is None:
        address = own_address(request)
        return await show(visitor, "landing.html", address=address)
    api, site = visitor.api, visitor.member.site
    rounds, own, events = await asyncio.gather(
        asking(api.get(RoundPage, "/rounds", state="open", limit=MOST_ROUNDS)),
        asking(api.get(ModelPage, "/models", site=site, state="any", limit=MOST_MODELS)),
        asking(api.get(EventPage, "/events", newest=True, limit=MOST_EVENTS)),
    )
    models = own.items if own else []
    return await show(
        visitor,
        "home.html",
        rounds=[each for each in rounds.items if site in each.sites("waiting")] if rounds else [],
        flagged=[each for each in models if each.flags and each.state != "withdrawn"],
        drafts=[each for each in models if each.state in {"draft", "quarantined"}],
        has_models=bool(models),
        events=events.items if events else [],
    )
