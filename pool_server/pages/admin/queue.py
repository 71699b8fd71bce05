"""Curation: drafts and quarantined versions, and the acts on one version."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from pool_server.errors import RefusedError
from pool_server.pages import forms, model, page_route, showing
from pool_server.pages.visitor import Anyone, own_path
from pool_server.wire.models import ModelPage

router = page_route.page_router()
ACTS = ("publish", "quarantine", "release", "delete")


@router.get("/admin/queue")
async def queue(visitor: Anyone, cursor: str = "") -> Response:
    """List drafts and quarantined versions, newest first."""
    found = await visitor.api.get(ModelPage, "/queue", cursor=cursor)
    older = visitor.next_page(found.next_cursor)
    return await showing.show(visitor, "admin/queue.html", versions=found.items, next_address=older)


@router.post("/models/{site}/{name}/{act}")
async def act_on_version(
    request: Request, visitor: Anyone, site: str, name: str, act: str
) -> Response:
    """Publish, quarantine, release or delete a version."""
    form = await forms.read_form(request)
    path = model.api_path(model.read_address(site, name))
    back = own_path(form["next"]) if form["next"] else f"/models/{site}/{name}"
    if act not in ACTS:
        raise RefusedError(
            f"a version cannot be acted on by {act!r}, expected one of {', '.join(ACTS)}",
            hint="Use the buttons on the page of the version.",
        )
    if act == "delete":
        visitor.require_proof()
        await visitor.api.send("DELETE", path)
        return showing.go_to(own_path(form["next"]) if form["next"] else "/models")
    body = {"reason": form["reason"]} if act == "quarantine" else None
    await visitor.api.send("POST", f"{path}/{act}", body)
    return showing.go_to(back)
