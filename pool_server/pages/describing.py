"""Pages on which owners change a version: description, sharing, withdrawal."""

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import Response

from pool_server.errors import RefusedError
from pool_server.pages import pool_api, showing, words
from pool_server.pages.model import api_path, find_version, read_address
from pool_server.pages.visitor import Anyone, Visitor
from pool_server.wire.cards import CardResponse
from pool_server.wire.models import RIGHTS, VISIBILITIES, SharingResponse
from pool_server.wire.withdrawals import EFFECT_OF_REASON, WithdrawalImpact, WithdrawalReason

router = showing.page_router()
V = TypeVar("V")


def read_lines(text: str, what: str, read: Callable[[str], V]) -> dict[str, V]:
    """Return values that were typed as lines of ``key=value``.

    Raises `RefusedError` if a line has no ``=``, or a value that cannot be read.
    """
    values: dict[str, V] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        key, equals, value = line.partition("=")
        try:
            if not equals:
                raise ValueError
            values[key.strip()] = read(value.strip())
        except ValueError:
            problem = f"{line[:80]!r} cannot be read, expected one key=value a line"
            raise RefusedError(
                f"{what} {problem}",
                hint="For example population=infant, or mean_error=0.0727.",
                details={"fields": [{"where": f"{what}s", "problem": problem}]},
            ) from None
    return values


@router.get("/models/{site}/{name}/manage")
async def manage_page(visitor: Anyone, site: str, name: str) -> Response:
    """Show the forms of a version's owners."""
    return await _show_forms(visitor, site, name, showing.EMPTY_FORM)


async def _show_forms(visitor: Visitor, site: str, name: str, form: showing.FormState) -> Response:
    address = read_address(site, name)
    version = await find_version(visitor.api, address)
    model = f"/models/{address.site}/{address.name}"
    return await showing.show(
        visitor,
        "manage.html",
        version=version,
        address=words.short(version.address),
        sharing=await visitor.api.get(SharingResponse, f"{model}/sharing"),
        card=await visitor.api.get(CardResponse, f"{api_path(address)}/card"),
        visibilities=VISIBILITIES,
        rights=RIGHTS[1:],
        form=form,
    )


@router.post("/models/{site}/{name}/manage")
async def manage(request: Request, visitor: Anyone, site: str, name: str) -> Response:
    """Apply the change of one of the forms."""
    form = await showing.read_form(request)
    address = read_address(site, name)
    version, model = api_path(address), f"/models/{address.site}/{address.name}"
    try:
        method, path, body = _change(form, version, model)
        await visitor.api.send(method, path, body)
    except (pool_api.RefusedByApiError, RefusedError) as error:
        return await _show_forms(visitor, site, name, showing.refused_form(form, error))
    return showing.go_to(f"/models/{site}/{name}")


def _change(form: showing.Form, version: str, model: str) -> tuple[str, str, dict[str, Any]]:
    """Return the request of the API that a form stands for."""
    if form["what"] == "sharing":
        shared: dict[str, Any] = {"visibility": form["visibility"]}
        if form["visibility"] != "private":
            shared["rights"] = form.all("right")
        if form["visibility"] == "sites":
            shared["sites"] = [{"site": site} for site in form["sites"].replace(",", " ").split()]
        return "PUT", f"{model}/sharing", shared
    if form["what"] == "card":
        return "PUT", f"{version}/card", {"text": form["text"].replace("\r\n", "\n")}
    described = {
        "description": form["description"],
        "labels": read_lines(form["labels"], "label", str),
        "metrics": read_lines(form["metrics"], "metric", float),
    }
    return "PUT", f"{version}/description", described


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
    """Show the models a withdrawal would flag, and the sites it would notify."""
    return await _show_withdrawal(visitor, site, name, showing.EMPTY_FORM)


async def _show_withdrawal(
    visitor: Visitor, site: str, name: str, form: showing.FormState
) -> Response:
    address = read_address(site, name)
    path = f"{api_path(address)}/withdrawal-preview"
    preview = await visitor.api.get(WithdrawalImpact, path)
    return await showing.show(
        visitor,
        "withdraw.html",
        address=words.short(preview.address),
        preview=preview,
        downloads=sum(row.downloaded for row in preview.sites),
        reasons=[
            ("", "Choose one"),
            *(
                (reason, f"{what}; downloads {_EFFECTS[EFFECT_OF_REASON[reason]]}")
                for reason, what in REASONS.items()
            ),
        ],
        form=form,
    )


_EFFECTS = {"refuse": "are refused", "warn": "carry a warning"}


@router.post("/models/{site}/{name}/withdraw")
async def withdraw(request: Request, visitor: Anyone, site: str, name: str) -> Response:
    """Withdraw the version, and lead to its page."""
    form = await showing.read_form(request)
    errors = {} if form["reason"] else {"reason": "choose one, for it decides on downloads"}
    if form["confirm"] != f"{site}/{name}":
        typed = form["confirm"] or "nothing"
        errors["confirm"] = f"expected {site}/{name}, found {typed}"
    if errors:
        kept = showing.FormState(form.kept(), errors, showing.count_problems(errors))
        return await _show_withdrawal(visitor, site, name, kept)
    visitor.require_proof()
    body: dict[str, object] = {"reason": form["reason"], "explanation": form["explanation"]}
    if form["successor"]:
        body["successor"] = form["successor"]
    try:
        await visitor.api.send("POST", f"{api_path(read_address(site, name))}/withdraw", body)
    except pool_api.RefusedByApiError as refusal:
        return await _show_withdrawal(visitor, site, name, showing.refused_form(form, refusal))
    return showing.go_to(f"/models/{site}/{name}")
