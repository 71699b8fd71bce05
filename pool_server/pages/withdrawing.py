"""Withdrawal of a version: first whom it concerns, then the reason, then the button."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import Response

from pool_server.pages import forms, page_route, pool_api, showing, words
from pool_server.pages.model import api_path, read_address
from pool_server.pages.visitor import Anyone, Visitor
from pool_server.wire.withdrawals import EFFECT_OF_REASON, WithdrawalPreview, WithdrawalReason

router = page_route.page_router()
REASONS: dict[WithdrawalReason, str] = {
    "consent-withdrawn": "A person has withdrawn consent",
    "licence": "The licence does not allow it",
    "security": "It is unsafe to use",
    "quality": "It is worse than was said",
    "data-error": "The training data had an error",
    "other": "Something else",
}


@router.get("/models/{site}/{name}/withdraw")
async def withdrawal_page(visitor: Anyone, site: str, name: str) -> Response:
    """Show what a withdrawal would flag, and which sites would hear of it."""
    return await _show(visitor, site, name, showing.EMPTY_FORM)


async def _show(visitor: Visitor, site: str, name: str, form: showing.FormState) -> Response:
    address = read_address(site, name)
    path = f"{api_path(address)}/withdrawal-preview"
    preview = await visitor.api.get(WithdrawalPreview, path)
    return await showing.show(
        visitor,
        "withdraw.html",
        address=words.short(preview.address),
        preview=preview,
        downloads=sum(each.downloaded for each in preview.sites),
        reasons=[
            (reason, f"{what}; downloads {_EFFECTS[EFFECT_OF_REASON[reason]]}")
            for reason, what in REASONS.items()
        ],
        form=form,
    )


_EFFECTS = {"refuse": "are refused", "warn": "carry a warning"}


@router.post("/models/{site}/{name}/withdraw")
async def withdraw(request: Request, visitor: Anyone, site: str, name: str) -> Response:
    """Withdraw the version, and show what it looks like from now on."""
    form = await forms.read_form(request)
    visitor.require_proof()
    wanted: dict[str, object] = {"reason": form["reason"], "explanation": form["explanation"]}
    if form.has("refuse"):
        wanted["effect"] = "refuse"
    if form["successor"]:
        wanted["successor"] = form["successor"]
    try:
        await visitor.api.send("POST", f"{api_path(read_address(site, name))}/withdraw", wanted)
    except pool_api.RefusedByApiError as refusal:
        return await _show(visitor, site, name, showing.refused_form(form, refusal))
    return showing.go_to(f"/models/{site}/{name}")
