"""Tokens: made and shown once, and revoked."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from pool_server.pages import forms, page_route, pool_api, showing
from pool_server.pages.admin.people import sites_of
from pool_server.pages.visitor import Anyone, Visitor, own_address
from pool_server.wire.people import ROLES, SCOPES, TokenCreatedResponse, TokenList

router = page_route.page_router()


@router.get("/admin/tokens")
async def tokens(visitor: Anyone, revoked: bool = False, site: str = "") -> Response:
    """List the tokens of the sites that one looks after."""
    form = showing.FormState({"site": site} if site else {})
    return await _show_tokens(visitor, form, with_revoked=revoked)


async def _show_tokens(
    visitor: Visitor, form: showing.FormState, *, with_revoked: bool = False
) -> Response:
    found = await visitor.api.get(TokenList, "/tokens")
    return await showing.show(
        visitor,
        "admin/tokens.html",
        tokens=[each for each in found.items if with_revoked or each.revoked_at is None],
        with_revoked=with_revoked,
        sites=await sites_of(visitor),
        roles=ROLES,
        scopes=SCOPES,
        form=form,
    )


@router.post("/admin/tokens")
async def create_token(request: Request, visitor: Anyone) -> Response:
    """Make a token, and show its secret this once."""
    form = await forms.read_form(request)
    visitor.require_proof()
    try:
        made = await visitor.api.send("POST", "/tokens", _token_request(form))
    except pool_api.RefusedByApiError as refusal:
        return await _show_tokens(visitor, showing.refused_form(form, refusal))
    token = TokenCreatedResponse.model_validate_json(made)
    address = own_address(request)
    use = (
        f"Give a feed reader the address {address}/api/v1/events/feed?token= with it behind."
        if token.kind == "feed"
        else f"On the machine where it is used: `poolctl auth login {address}`."
    )
    return await showing.show(
        visitor,
        "secret.html",
        has_secret=True,
        title=f"Token {token.site}/{token.name}",
        what="the token",
        secret=token.secret,
        explanation=use,
        next="/admin/tokens",
    )


def _token_request(form: forms.Form) -> dict[str, object]:
    wanted: dict[str, object] = {"site": form["site"], "name": form["name"], "kind": form["kind"]}
    if form["kind"] != "feed":
        wanted |= {
            "role": form["role"],
            "for_machine": form.has("for_machine"),
            "pool_wide": form.has("pool_wide"),
            "scopes": form.all("scope") or None,
        }
    if form["expires_in_days"]:
        wanted["expires_in_days"] = form["expires_in_days"]
    return wanted


@router.post("/admin/tokens/{token_id}/revoke")
async def revoke_token(visitor: Anyone, token_id: str) -> Response:
    """End a token's validity at once, and that of the sessions that it began."""
    visitor.require_proof()
    await visitor.api.send("DELETE", f"/tokens/{token_id}")
    return showing.go_to("/admin/tokens")
