"""People: users of sites, their roles, and invitations."""

from __future__ import annotations

import asyncio

from fastapi import Request
from starlette.responses import Response

from pool_server.errors import RefusedError
from pool_server.pages import forms, page_route, pool_api, showing
from pool_server.pages.visitor import Anyone, Visitor, own_address
from pool_server.wire.people import (
    ROLES,
    InvitationCreatedResponse,
    InvitationList,
    SiteList,
    UserList,
)

router = page_route.page_router()


async def sites_of(visitor: Visitor) -> list[str]:
    """Return the sites that a visitor may choose from: all for admins of the pool."""
    if not visitor.member.is_admin:
        return [visitor.member.site]
    found = await visitor.api.get(SiteList, "/sites")
    return [each.name for each in found.items]


@router.get("/admin/people")
async def people(visitor: Anyone, site: str = "") -> Response:
    """List users and invitations of the sites that one looks after."""
    return await _show_people(visitor, showing.FormState({"site": site} if site else {}))


async def _show_people(visitor: Visitor, form: showing.FormState) -> Response:
    users, invitations = await asyncio.gather(
        visitor.api.get(UserList, "/users"), visitor.api.get(InvitationList, "/invitations")
    )
    return await showing.show(
        visitor,
        "admin/people.html",
        users=users.items,
        invitations=[
            each for each in invitations.items if each.used_at is None and each.revoked_at is None
        ],
        sites=await sites_of(visitor),
        roles=ROLES,
        form=form,
    )


@router.post("/admin/people/invite")
async def invite(request: Request, visitor: Anyone) -> Response:
    """Make an invitation, and show its link this once."""
    form = await forms.read_form(request)
    try:
        visitor.require_proof()
        wanted = {
            "site": form["site"],
            "role": form["role"],
            "email": form["email"],
            "pool_wide": form.has("pool_wide"),
        }
        made = await visitor.api.send("POST", "/invitations", wanted)
    except pool_api.RefusedByApiError as refusal:
        return await _show_people(visitor, showing.refused_form(form, refusal))
    invitation = InvitationCreatedResponse.model_validate_json(made)
    address = own_address(request)
    return await showing.show(
        visitor,
        "secret.html",
        has_secret=True,
        title=f"Invitation to {invitation.site}",
        what="the link",
        secret=f"{address}/login?invitation={invitation.secret}",
        explanation=f"Send this link to the person, who becomes {invitation.role} of "
        f"{invitation.site}. It works once, until {invitation.expires_at:%Y-%m-%d}. On the command "
        f"line: `poolctl auth accept-invitation {address}`.",
        next="/admin/people",
    )


@router.post("/admin/invitations/{invitation_id}/revoke")
async def revoke_invitation(visitor: Anyone, invitation_id: str) -> Response:
    """Make an invitation worthless."""
    await visitor.api.send("DELETE", f"/invitations/{invitation_id}")
    return showing.go_to("/admin/people")


@router.post("/admin/people/{site}/{user}")
async def change_user(request: Request, visitor: Anyone, site: str, user: str) -> Response:
    """Change a user's role, or disable or enable the user."""
    form = await forms.read_form(request)
    visitor.require_proof()
    if form["state"] in {"disable", "enable"}:
        wanted: dict[str, object] = {"disabled": form["state"] == "disable"}
    elif form["role"]:
        wanted = {"role": form["role"]}
    else:
        raise RefusedError("the form changes nothing", hint="Choose a role, or disable the user.")
    await visitor.api.send("PATCH", f"/users/{site}/{user}", wanted)
    return showing.go_to("/admin/people")
