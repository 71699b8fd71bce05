"""Pages for admins and curators: the state of the pool, its queue, sites, people and tokens."""

import asyncio
from datetime import timedelta

from fastapi import Request
from starlette.responses import Response

from pool_server.database.records import now_utc
from pool_server.errors import MissingError, PoolError, RefusedError
from pool_server.http.session import ProcessReadiness, Readiness
from pool_server.pages import model, pool_api, showing
from pool_server.pages.signing import find_unsigned
from pool_server.pages.visitor import Anyone, Visitor, local_remark, own_path, pinned_address
from pool_server.wire.activity import AuditPage
from pool_server.wire.merges import MergeJobPage
from pool_server.wire.models import ModelPage
from pool_server.wire.people import (
    ROLES,
    SCOPES,
    InvitationCreatedResponse,
    InvitationList,
    SiteList,
    TokenCreatedResponse,
    TokenList,
    UsageResponse,
    UserList,
)
from pool_server.wire.rounds import RoundPage

router = showing.page_router()
SOON = timedelta(days=7)
LATELY = timedelta(days=1)


@router.get("/admin")
async def overview(visitor: Anyone, readiness: ProcessReadiness) -> Response:
    """Show the open work: of the site for its admin, and the queue for a curator."""
    visitor.member.require_role("curator", visitor.member.site)
    api, now = visitor.api, now_utc()
    queue = await api.get(ModelPage, "/models", state="waiting")
    usage, tokens, jobs, rounds, audit = await asyncio.gather(
        showing.asking(api.get(UsageResponse, "/usage")),
        showing.asking(api.get(TokenList, "/tokens")),
        showing.asking(api.get(MergeJobPage, "/merges", limit=5)),
        showing.asking(api.get(RoundPage, "/rounds", state="open", limit=10)),
        showing.asking(api.get(AuditPage, "/audit", limit=10)),
    )
    refused = await showing.asking(
        api.get(AuditPage, "/audit", action="request.refuse", since=(now - LATELY).isoformat())
    )
    ending = [
        token
        for token in (tokens.items if tokens else [])
        if token.revoked_at is None and token.expires_at and now < token.expires_at < now + SOON
    ]
    return await showing.show(
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


@router.get("/admin/audit")
async def audit(
    visitor: Anyone, subject: str = "", action: str = "", site: str = "", cursor: str = ""
) -> Response:
    """Show the entries of the audit, newest first."""
    filters = {"subject": subject, "action": action, "site": site}
    page = await visitor.api.get(AuditPage, "/audit", **filters, cursor=cursor)
    older = visitor.next_page(page.next_cursor)
    return await showing.show(
        visitor, "admin/audit.html", filters=filters, entries=page.items, next_address=older
    )


ACTS = ("publish", "quarantine", "release", "delete")


@router.get("/admin/queue")
async def queue(visitor: Anyone, cursor: str = "") -> Response:
    """List drafts and quarantined versions, newest first."""
    visitor.member.require_role("curator", visitor.member.site)
    page = await visitor.api.get(ModelPage, "/models", state="waiting", cursor=cursor)
    older = visitor.next_page(page.next_cursor)
    return await showing.show(
        visitor,
        "admin/queue.html",
        versions=page.items,
        unsigned=await find_unsigned(visitor.api, page.items),
        next_address=older,
    )


@router.post("/models/{site}/{name}/{act}")
async def act_on_version(
    request: Request, visitor: Anyone, site: str, name: str, act: str
) -> Response:
    """Publish, quarantine, release or delete a version."""
    form = await showing.read_form(request)
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


GB = 1_000_000_000


@router.get("/admin/sites")
async def sites(visitor: Anyone) -> Response:
    """List the sites that one administers, with their storage and people."""
    return await _show_sites(visitor, showing.EMPTY_FORM)


async def _show_sites(visitor: Visitor, form: showing.FormState) -> Response:
    usage, known = await asyncio.gather(
        visitor.api.get(UsageResponse, "/usage"), visitor.api.get(SiteList, "/sites")
    )
    names = {site.name: site.display_name for site in known.items}
    return await showing.show(
        visitor, "admin/sites.html", usage=usage.items, names=names, form=form, path="sites"
    )


@router.post("/admin/sites")
async def create_site(request: Request, visitor: Anyone) -> Response:
    """Create a site, and lead to it."""
    form = await showing.read_form(request)
    try:
        body = {
            "name": form["name"],
            "display_name": form["display_name"],
            "contact": form["contact"],
            "quota_bytes": _read_quota(form["quota_gb"]),
        }
        await visitor.api.send("POST", "/sites", body)
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
    of_site = next((row for row in usage.items if row.site == name), None)
    site = next((row for row in known.items if row.name == name), None)
    if of_site is None or site is None:
        raise MissingError(
            f"you do not administer site {name!r}",
            hint="`/admin/sites` lists the sites you administer.",
        )
    return await showing.show(visitor, "admin/site.html", site=site, usage=of_site, form=form)


@router.post("/admin/sites/{name}")
async def change_site(request: Request, visitor: Anyone, name: str) -> Response:
    """Change a site's names, its quota, or whether it is suspended."""
    form = await showing.read_form(request)
    changes: dict[str, object] = {}
    try:
        if form.has("state"):
            visitor.require_proof()
            changes["suspended"] = form["state"] == "suspend"
        else:
            changes = {"display_name": form["display_name"], "contact": form["contact"]}
            if visitor.member.is_admin:
                changes["quota_bytes"] = _read_quota(form["quota_gb"])
        await visitor.api.send("PATCH", f"/sites/{name}", changes)
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


async def sites_of(visitor: Visitor) -> list[str]:
    """Return the sites that a visitor may choose from: all for admins of the pool."""
    if not visitor.member.is_admin:
        return [visitor.member.site]
    sites = await visitor.api.get(SiteList, "/sites")
    return [site.name for site in sites.items]


@router.get("/admin/people")
async def people(visitor: Anyone, site: str = "") -> Response:
    """List users and invitations of the sites that one administers."""
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
            invitation
            for invitation in invitations.items
            if invitation.used_at is None and invitation.revoked_at is None
        ],
        sites=await sites_of(visitor),
        roles=ROLES,
        form=form,
    )


@router.post("/admin/people/invite")
async def invite(request: Request, visitor: Anyone) -> Response:
    """Make an invitation, and show its link this once."""
    form = await showing.read_form(request)
    try:
        visitor.require_proof()
        body = {
            "site": form["site"],
            "role": form["role"],
            "email": form["email"],
            "pool_wide": form.has("pool_wide"),
            "sign_on": form["sign_on"],
            "subject": form["subject"],
        }
        made = await visitor.api.send("POST", "/invitations", body)
    except pool_api.RefusedByApiError as refusal:
        return await _show_people(visitor, showing.refused_form(form, refusal))
    invitation = InvitationCreatedResponse.model_validate_json(made)
    if invitation.sign_on:
        return showing.go_to("/admin/people")
    address, _, pin = pinned_address(request).partition("#")
    return await showing.show(
        visitor,
        "secret.html",
        has_secret=True,
        title=f"Invitation to {invitation.site}",
        what="the link",
        secret=f"{address}/login?invitation={invitation.secret}" + (pin and f"#{pin}"),
        explanation=f"Send this link to the person, who becomes {invitation.role} of "
        f"{invitation.site}. It works once, until {invitation.expires_at:%Y-%m-%d}. On the command "
        f"line: `poolctl auth login {pinned_address(request)} --name NAME`."
        + local_remark(request),
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
    form = await showing.read_form(request)
    visitor.require_proof()
    if form["state"] in {"disable", "enable"}:
        changes: dict[str, object] = {"disabled": form["state"] == "disable"}
    elif form["role"]:
        changes = {"role": form["role"]}
    else:
        raise RefusedError("the form changes nothing", hint="Choose a role, or disable the user.")
    await visitor.api.send("PATCH", f"/users/{site}/{user}", changes)
    return showing.go_to("/admin/people")


@router.get("/admin/tokens")
async def tokens(visitor: Anyone, revoked: bool = False, site: str = "") -> Response:
    """List the tokens of the sites that one administers."""
    form = showing.FormState({"site": site} if site else {})
    return await _show_tokens(visitor, form, with_revoked=revoked)


async def _show_tokens(
    visitor: Visitor, form: showing.FormState, *, with_revoked: bool = False
) -> Response:
    token_list = await visitor.api.get(TokenList, "/tokens")
    return await showing.show(
        visitor,
        "admin/tokens.html",
        tokens=[token for token in token_list.items if with_revoked or token.revoked_at is None],
        with_revoked=with_revoked,
        sites=await sites_of(visitor),
        roles=ROLES,
        scopes=SCOPES,
        form=form,
    )


@router.post("/admin/tokens")
async def create_token(request: Request, visitor: Anyone) -> Response:
    """Make a token, and show its secret this once."""
    form = await showing.read_form(request)
    visitor.require_proof()
    try:
        made = await visitor.api.send("POST", "/tokens", _token_request(form))
    except pool_api.RefusedByApiError as refusal:
        return await _show_tokens(visitor, showing.refused_form(form, refusal))
    token = TokenCreatedResponse.model_validate_json(made)
    return await showing.show(
        visitor,
        "secret.html",
        has_secret=True,
        title=f"Token {token.site}/{token.name}",
        what="the token",
        secret=token.secret,
        explanation="On the machine where it is used: "
        f"`poolctl auth login {pinned_address(request)}`." + local_remark(request),
        next="/admin/tokens",
    )


def _token_request(form: showing.Form) -> dict[str, object]:
    body: dict[str, object] = {
        "site": form["site"],
        "name": form["name"],
        "role": form["role"],
        "for_machine": form.has("for_machine"),
        "pool_wide": form.has("pool_wide"),
        "scopes": form.all("scope") or None,
    }
    if form["expires_in_days"]:
        body["expires_in_days"] = form["expires_in_days"]
    return body


@router.post("/admin/tokens/{token_id}/revoke")
async def revoke_token(visitor: Anyone, token_id: str) -> Response:
    """End a token's validity at once, and that of the sessions that it began."""
    visitor.require_proof()
    await visitor.api.send("DELETE", f"/tokens/{token_id}")
    return showing.go_to("/admin/tokens")
