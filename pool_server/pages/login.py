"""Log-in by a token, a fresh pool's link or an invitation; one's sessions."""

from typing import Annotated

import anyio.to_thread
from fastapi import Query, Request
from starlette.responses import RedirectResponse, Response

from pool_server.errors import NotAllowedError, NotAuthenticatedError, PoolError
from pool_server.http.error_responses import request_id_of
from pool_server.http.identity import find_token
from pool_server.http.rate_limits import Limits, client_address, rate_limit_key
from pool_server.http.session import Parts, ReadingSession, ServerParts, WritingSession
from pool_server.pages import pool_api, showing
from pool_server.pages.visitor import (
    Anyone,
    LoginNeededError,
    Visitor,
    cookie_name,
    own_path,
    pinned_address,
    set_cookie,
)
from pool_server.people import browser_sessions
from pool_server.wire.people import IdentityResponse, TokenCreatedResponse

router = showing.page_router()


@router.get("/login")
async def login_page(
    visitor: Anyone,
    onward: Annotated[str, Query(alias="next")] = "/",
    link: str = "",
    invitation: str = "",
) -> Response:
    """Show the form; a link is not used up by being looked at, as some mail programs do."""
    return await showing.show(
        visitor,
        "login.html",
        has_secret=bool(link or invitation),
        next=own_path(onward),
        link=link,
        invitation=invitation,
        form=showing.EMPTY_FORM,
    )


@router.post("/login")
async def log_in(request: Request, visitor: Anyone, parts: Parts, limits: Limits) -> Response:
    """Begin a session with a new secret; the browser's earlier cookie counts for nothing."""
    form = await showing.read_form(request)
    address = client_address(request)
    try:
        secret = await anyio.to_thread.run_sync(_begin, request, parts, form["token"], form["link"])
    except (NotAuthenticatedError, NotAllowedError) as error:
        problem: PoolError = error
        try:
            limits.failed_logins.take(rate_limit_key(address), "attempts to log in")
        except PoolError as too_many:
            problem = too_many
        return await showing.show(
            visitor,
            "login.html",
            status=429 if problem is not error else 401,
            next=own_path(form["next"]),
            link="",
            invitation="",
            form=showing.refused_form(form, problem),
        )
    response = showing.go_to(own_path(form["next"]))
    set_cookie(response, request, secret)
    return response


def _begin(request: Request, parts: ServerParts, secret: str, link: str) -> str:
    with parts.database.write() as session:
        token = (
            browser_sessions.use_login_link(session, link) if link else find_token(session, secret)
        )
        return browser_sessions.begin_session(
            session,
            token,
            browser=request.headers.get("user-agent", ""),
            address=client_address(request),
            request_id=request_id_of(request),
        )


@router.post("/login/invitation")
async def accept_invitation(request: Request, visitor: Anyone, parts: Parts) -> Response:
    """Become a user of the site that invited, logged in, with a token for the command line."""
    form = await showing.read_form(request)
    body = {"secret": form["invitation"], "name": form["name"]}
    if form["display_name"]:
        body["display_name"] = form["display_name"]
    try:
        made = await pool_api.PoolApi(request, None).send("POST", "/invitations/accept", body)
    except pool_api.RefusedByApiError as refusal:
        return await showing.show(
            visitor,
            "login.html",
            status=refusal.status,
            has_secret=True,
            next="/",
            link="",
            invitation=form["invitation"],
            form=showing.refused_form(form, refusal),
        )
    token = TokenCreatedResponse.model_validate_json(made)
    secret = await anyio.to_thread.run_sync(_begin, request, parts, token.secret, "")
    response = await showing.show(
        visitor,
        "secret.html",
        has_secret=True,
        title="Your token",
        what="the token",
        secret=token.secret,
        explanation=f"You are {token.user} of {token.site}, and logged in here. On the command "
        f"line, `poolctl auth login {pinned_address(request)}` asks for this token.",
        next="/",
    )
    set_cookie(response, request, secret)
    return response


@router.post("/logout")
def log_out(request: Request, visitor: Anyone, session: WritingSession) -> Response:
    """End the session; the browser forgets its cookie."""
    if visitor.session is not None:
        browser_sessions.end_sessions(session, visitor.session.caller, visitor.session.session_id)
    response = showing.go_to("/")
    response.delete_cookie(
        cookie_name(request), path="/", secure=request.url.scheme == "https", httponly=True
    )
    return response


@router.get("/account")
async def account(visitor: Anyone, session: ReadingSession) -> Response:
    """Show the visitor's identity, and the browsers with an open session."""
    return await showing.show(
        visitor,
        "account.html",
        identity=await visitor.api.get(IdentityResponse, "/whoami"),
        sessions=browser_sessions.list_sessions(session, visitor.member),
    )


@router.post("/account/sessions/end")
def end_all(visitor: Anyone, session: WritingSession) -> Response:
    """Log out everywhere."""
    browser_sessions.end_sessions(session, visitor.member)
    return showing.go_to("/")


@router.post("/account/sessions/{session_id}/end")
def end_one(visitor: Anyone, session: WritingSession, session_id: str) -> Response:
    """Log out in one browser."""
    browser_sessions.end_sessions(session, visitor.member, session_id)
    return showing.go_to("/account")


@router.post("/account/proof")
async def prove(request: Request, visitor: Anyone, parts: Parts, limits: Limits) -> Response:
    """Take the token once more, and have the browser send the form to its own page again."""
    form = await showing.read_form(request)
    limits.failed_logins.take(rate_limit_key(client_address(request)), "attempts to log in")
    again, secret = own_path(form["proof-for"]), form[showing.PROOF_FIELD]
    try:
        await anyio.to_thread.run_sync(_prove, parts, visitor, secret)
    except (NotAuthenticatedError, NotAllowedError) as error:
        return await showing.show(
            visitor,
            "proof.html",
            status=403,
            again=again,
            typed=[pair for pair in form.typed() if pair[0] != "proof-for"],
            form=showing.refused_form(form, error),
        )
    # 307: the browser sends the same fields again.
    return RedirectResponse(again, 307)


def _prove(parts: ServerParts, visitor: Visitor, secret: str) -> None:
    if visitor.session is None:
        raise LoginNeededError
    if visitor.session.is_sign_on:
        if not visitor.session.is_proved:
            raise NotAuthenticatedError(
                "you have not logged in again yet", hint="Do that first, in the other tab."
            )
        return
    with parts.database.write() as session:
        browser_sessions.prove_session(session, visitor.session, secret)
