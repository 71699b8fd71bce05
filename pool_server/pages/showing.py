"""Pages for a visitor: the layout with what waits, and forms that come back with their problems."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi.responses import HTMLResponse
from starlette.responses import RedirectResponse

from pool_server.errors import PoolError
from pool_server.pages import words
from pool_server.pages.forms import Form
from pool_server.pages.page_route import describe_error
from pool_server.pages.pool_api import RefusedByApiError
from pool_server.pages.rendering import page_response, render_page
from pool_server.pages.visitor import Visitor
from pool_server.wire.errors import ErrorBody
from pool_server.wire.rounds import WaitingRounds

T = TypeVar("T")


@dataclass(frozen=True)
class FormState:
    """A form as it is shown: what was typed, and what was wrong with it."""

    kept: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    message: str = ""
    hint: str = ""


EMPTY_FORM = FormState()


def refused_form(form: Form, error: RefusedByApiError | PoolError) -> FormState:
    """Return a form with what was typed, and with what the pool refused of it."""
    body: ErrorBody = error.body if isinstance(error, RefusedByApiError) else describe_error(error)
    fields = {
        str(each["where"]).rsplit(".", 1)[-1]: str(each["problem"])
        for each in body.details.get("fields", [])
        if isinstance(each, Mapping)
    }
    if fields:
        wrong = f"{words.count(len(fields), 'field')} cannot be taken as typed"
        return FormState(form.kept(), fields, wrong)
    return FormState(form.kept(), {}, body.message, body.hint)


async def show(
    visitor: Visitor, template: str, *, status: int = 200, has_secret: bool = False, **values: Any
) -> HTMLResponse:
    """Return a page in the layout of all, with how many rounds wait for the visitor's site."""
    waiting = None
    if visitor.caller is not None:
        # Nobody, where the session's token is narrowed to other things.
        waiting = await asking(visitor.api.get(WaitingRounds, "/rounds/waiting"))
    page = render_page(template, visitor=visitor, waiting=waiting.count if waiting else 0, **values)
    return page_response(page, status, has_secret=has_secret)


async def asking(question: Awaitable[T]) -> T | None:
    """Return an answer of the API, or None where the visitor may not ask for it."""
    try:
        return await question
    except RefusedByApiError:
        return None


def go_to(path: str) -> RedirectResponse:
    """Lead the browser to a page after a change, so that loading it anew changes nothing."""
    return RedirectResponse(path, 303)
