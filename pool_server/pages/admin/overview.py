"""What needs an admin or a curator, and the state of the pool in a few numbers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from starlette.responses import Response

from pool_server.database.records import now_utc
from pool_server.errors import PoolError
from pool_server.http.traffic import ProcessReadiness, Readiness
from pool_server.pages.page_route import page_router
from pool_server.pages.showing import asking, show
from pool_server.pages.visitor import Anyone
from pool_server.wire.activity import AuditPage
from pool_server.wire.merges import MergeJobPage
from pool_server.wire.models import ModelPage
from pool_server.wire.people import TokenList, UsageResponse
from pool_server.wire.rounds import RoundPage
from pool_server.wire.uploads import OpenUploadPage

router = page_router()
SOON = timedelta(days=7)
LATELY = timedelta(days=1)


@router.get("/admin")
async def overview(visitor: Anyone, readiness: ProcessReadiness) -> Response:
    """Show what waits; a site's admin sees that of the site, a curator the queue."""
    api, now = visitor.api, now_utc()
    queue = await api.get(ModelPage, "/queue")
    usage, tokens, jobs, rounds, audit = await asyncio.gather(
        asking(api.get(UsageResponse, "/usage")),
        asking(api.get(TokenList, "/tokens")),
        asking(api.get(MergeJobPage, "/merges", limit=5)),
        asking(api.get(RoundPage, "/rounds", state="open", limit=10)),
        asking(api.get(AuditPage, "/audit", limit=10)),
    )
    refused = await asking(
        api.get(AuditPage, "/audit", action="request.refuse", since=(now - LATELY).isoformat())
    )
    ending = [
        each
        for each in (tokens.items if tokens else [])
        if each.revoked_at is None and each.expires_at and now < each.expires_at < now + SOON
    ]
    return await show(
        visitor,
        "admin/overview.html",
        queue=queue.items,
        usage=usage.items if usage else [],
        ending=ending,
        jobs=jobs.items if jobs else [],
        rounds=rounds.items if rounds else [],
        audit=audit.items if audit else [],
        refused=refused.items if refused else [],
        problem=await _problem(readiness),
    )


async def _problem(readiness: Readiness) -> str:
    """Return why the pool is not ready; empty where database and storage answer."""
    try:
        await readiness.require()
    except PoolError as error:
        return error.message
    return ""


@router.get("/admin/jobs")
async def jobs(visitor: Anyone, cursor: str = "") -> Response:
    """List merges and uploads that are under way or over."""
    api = visitor.api
    merges = await api.get(MergeJobPage, "/merges", cursor=cursor)
    uploads = await asking(api.get(OpenUploadPage, "/uploads"))
    return await show(
        visitor,
        "admin/jobs.html",
        jobs=merges.items,
        uploads=uploads.items if uploads else [],
        next_address=visitor.next_page(merges.next_cursor),
    )


@router.get("/admin/health")
async def health(visitor: Anyone, readiness: ProcessReadiness) -> Response:
    """Show whether database and storage answer."""
    usage = await visitor.api.get(UsageResponse, "/usage")
    problem = await _problem(readiness)
    return await show(visitor, "admin/health.html", problem=problem, usage=usage.items)


@router.get("/admin/audit")
async def audit(  # noqa: PLR0917 - FastAPI gives them by name
    visitor: Anyone,
    subject: str = "",
    action: str = "",
    actor: str = "",
    site: str = "",
    cursor: str = "",
) -> Response:
    """Show who did what, newest first."""
    given = {"subject": subject, "action": action, "actor": actor, "site": site}
    found = await visitor.api.get(AuditPage, "/audit", **given, cursor=cursor)
    older = visitor.next_page(found.next_cursor)
    return await show(
        visitor, "admin/audit.html", given=given, entries=found.items, next_address=older
    )
