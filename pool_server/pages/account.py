"""One's own account: sessions, and the theme of the pages."""

from __future__ import annotations

import anyio.to_thread
from fastapi import Request
from starlette.responses import Response

from pool_server.errors import RefusedError
from pool_server.http.rate_limits import Limits, client_address, rate_limit_key
from pool_server.http.session import Parts, ReadingSession, ServerParts, WritingSession
from pool_server.pages.forms import read_form
from pool_server.pages.page_route import page_router
from pool_server.pages.showing import go_to, show
from pool_server.pages.visitor import (
    THEME_COOKIE,
    THEMES,
    Anyone,
    LoginNeededError,
    Visitor,
    own_path,
)
from pool_server.people.browser_sessions import end_sessions, list_sessions, prove_session
from pool_server.wire.people import IdentityResponse

router = page_router()
_YEAR_S = 365 * 24 * 3600


@router.get("/account")
async def account(visitor: Anyone, session: ReadingSession) -> Response:
    """Show who one is, and the browsers in which one is logged in."""
    return await show(
        visitor,
        "account.html",
        identity=await visitor.api.get(IdentityResponse, "/whoami"),
        sessions=list_sessions(session, visitor.member),
    )


@router.post("/account/theme")
async def choose_theme(request: Request, visitor: Anyone) -> Response:
    """Keep the colours in a cookie of this browser."""
    theme = (await read_form(request))["theme"]
    if theme not in THEMES:
        raise RefusedError(
            f"theme {theme!r} is unknown, expected one of {', '.join(THEMES)}",
            hint="Choose one on the page `/account`.",
        )
    response = go_to("/account" if visitor.caller else "/")
    secure = request.url.scheme == "https"
    response.set_cookie(
        THEME_COOKIE, theme, max_age=_YEAR_S, secure=secure, httponly=True, samesite="lax"
    )
    return response


@router.post("/account/sessions/end")
def end_all(visitor: Anyone, session: WritingSession) -> Response:
    """Log out everywhere."""
    end_sessions(session, visitor.member)
    return go_to("/")


@router.post("/account/sessions/{session_id}/end")
def end_one(visitor: Anyone, session: WritingSession, session_id: str) -> Response:
    """Log out in one browser."""
    end_sessions(session, visitor.member, session_id)
    return go_to("/account")


@router.post("/account/proof")
async def prove(request: Request, visitor: Anyone, parts: Parts, limits: Limits) -> Response:
    """Take the token once more, and go back to where it was asked for."""
    form = await read_form(request)
    limits.failed_logins.take(rate_limit_key(client_address(request)), "attempts to log in")
    await anyio.to_thread.run_sync(_prove, parts, visitor, form["secret"])
    return go_to(own_path(form["next"]))


def _prove(parts: ServerParts, visitor: Visitor, secret: str) -> None:
    if visitor.session is None:
        raise LoginNeededError
    with parts.database.write() as session:
        prove_session(session, visitor.session, secret)
