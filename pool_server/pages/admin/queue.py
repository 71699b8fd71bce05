"""Curation: drafts and quarantined versions, and the acts on one version."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from pool_server.errors import RefusedError
from pool_server.pages.forms import read_form
from pool_server.pages.model import api_path, read_address
from pool_server.pages.page_route import page_router
from pool_server.pages.showing import go_to, show
from pool_server.pages.visitor import Anyone, own_path
from pool_server.wire.models import ModelPage

router = page_router()
ACTS = ("publish", "quarantine", "release", "delete")


@router.get("/admin/queue")
async def queue(visitor: Anyone, cursor: str = "") -> Response:
    """List drafts and quarantined versions, newest first."""
    found = await visitor.api.get(ModelPage, "/queue", cursor=cursor)
    older = visitor.next_page(found.next_cursor)
    return await show(visitor, "admin/queue.html", versions=found.items, next_address=older)


@router.post("/models/{site}/{name}/{act}")
async def act_on_version(
    request: Request, visitor: Anyone, site: str, name: str, act: str
) -> Response:
    """Publish, quarantine, release or delete a version."""
    form = await read_form(request)
    path = api_path(read_address(site, name))
    back = own_path(form["next"]) if form["next"] else f"/models/{site}/{name}"
    if act not in ACTS:
        raise RefusedError(
            f"a version cannot be acted on by {act!r}, expected one of {', '.join(ACTS)}",
            hint="Use the buttons on the page of the version.",
        )
    if act == "delete":
        visitor.require_proof()
        await visitor.api.send("DELETE", path)
        return go_to(own_path(form["next"]) if form["next"] else "/models")
    body = {"reason": form["reason"]} if act == "quarantine" else None
    await visitor.api.send("POST", f"{path}/{act}", body)
    return go_to(back)
