"""Sites: the labs that share the pool, the room they take, and their limits."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.responses import Response

from pool_server.errors import MissingError, RefusedError
from pool_server.pages import forms, page_route, pool_api, showing
from pool_server.pages.visitor import Anyone, Visitor
from pool_server.wire.people import SiteList, UsageResponse

router = page_route.page_router()
GB = 1_000_000_000


@router.get("/admin/sites")
async def sites(visitor: Anyone) -> Response:
    """List the sites that one looks after, with their storage and people."""
    return await _show_sites(visitor, showing.EMPTY_FORM)


async def _show_sites(visitor: Visitor, form: showing.FormState) -> Response:
    usage, known = await asyncio.gather(
        visitor.api.get(UsageResponse, "/usage"), visitor.api.get(SiteList, "/sites")
    )
    names = {each.name: each.display_name for each in known.items}
    return await showing.show(
        visitor, "admin/sites.html", usage=usage.items, names=names, form=form, path="sites"
    )


@router.get("/admin/storage")
async def storage(visitor: Anyone) -> Response:
    """Show the bytes of each site, largest first."""
    usage = await visitor.api.get(UsageResponse, "/usage")
    found = sorted(usage.items, key=lambda each: -each.size_bytes)
    return await showing.show(visitor, "admin/storage.html", usage=found)


@router.post("/admin/sites")
async def create_site(request: Request, visitor: Anyone) -> Response:
    """Create a site, and lead to it."""
    form = await forms.read_form(request)
    try:
        wanted = {
            "name": form["name"],
            "display_name": form["display_name"],
            "contact": form["contact"],
            "quota_bytes": _read_quota(form["quota_gb"]),
        }
        await visitor.api.send("POST", "/sites", wanted)
    except (pool_api.RefusedByApiError, RefusedError) as error:
        return await _show_sites(visitor, showing.refused_form(form, error))
    return showing.go_to(f"/admin/sites/{form['name']}")


@router.get("/admin/sites/{name}")
async def site_page(visitor: Anyone, name: str) -> Response:
    """Show one site, with the form that changes it."""
    return await _show_site(visitor, name, showing.EMPTY_FORM)


async def _show_site(visitor: Visitor, name: str, form: showing.FormState) -> Response:
    usage, known = await asyncio.gather(
        visitor.api.get(UsageResponse, "/usage"), visitor.api.get(SiteList, "/sites")
    )
    of_site = next((each for each in usage.items if each.site == name), None)
    site = next((each for each in known.items if each.name == name), None)
    if of_site is None or site is None:
        raise MissingError(
            f"you look after no site {name!r}", hint="`/admin/sites` lists those that you do."
        )
    return await showing.show(visitor, "admin/site.html", site=site, usage=of_site, form=form)


@router.post("/admin/sites/{name}")
async def change_site(request: Request, visitor: Anyone, name: str) -> Response:
    """Change a site's names, its quota, or whether it is suspended."""
    form = await forms.read_form(request)
    wanted: dict[str, object] = {}
    try:
        if form.has("state"):
            visitor.require_proof()
            wanted["suspended"] = form["state"] == "suspend"
        else:
            wanted = {"display_name": form["display_name"], "contact": form["contact"]}
            if visitor.member.is_admin:
                wanted["quota_bytes"] = _read_quota(form["quota_gb"])
        await visitor.api.send("PATCH", f"/sites/{name}", wanted)
    except (pool_api.RefusedByApiError, RefusedError) as error:
        return await _show_site(visitor, name, showing.refused_form(form, error))
    return showing.go_to(f"/admin/sites/{name}")


def _read_quota(text: str) -> int | None:
    """Return bytes from gigabytes as they were typed; None for no limit."""
    if not text:
        return None
    try:
        return round(float(text.replace(",", ".")) * GB)
    except (ValueError, OverflowError):
        raise RefusedError(
            f"the limit {text!r} is no number", hint="Give gigabytes, such as 50, or nothing."
        ) from None
