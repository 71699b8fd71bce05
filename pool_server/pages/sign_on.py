"""Log-in by an institute's OpenID provider, and the page that lets a computer in."""

from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import Query, Request
from sqlalchemy.orm import Session
from starlette.responses import RedirectResponse, Response

from pool_server.database.engine import write_with_retry
from pool_server.errors import MissingError, NotAllowedError, NotAuthenticatedError, PoolError
from pool_server.http.audit import record_act
from pool_server.http.error_responses import request_id_of
from pool_server.http.identity import caller_of, get_token, require_valid
from pool_server.http.rate_limits import Limits, client_address, rate_limit_key
from pool_server.http.session import Parts, ServerParts
from pool_server.pages import showing
from pool_server.pages.visitor import Anyone, Visitor, own_address, own_path, set_cookie
from pool_server.people import browser_sessions, devices, sign_on
from pool_server.people.providers import Confirmation, Provider

router = showing.page_router()
# A provider that hangs holds these threads, not those of requests.
_ASKING = anyio.CapacityLimiter(8)
LONGEST_ONWARD = 1000


@router.get("/login/with/{name}")
async def begin(
    request: Request,
    visitor: Anyone,
    parts: Parts,
    name: str,
    *,
    onward: Annotated[str, Query(alias="next")] = "/",
    proof: bool = False,
) -> Response:
    """Lead the browser to a provider."""
    provider = sign_on.find_provider(parts.settings, name)
    onward = own_path(onward)

    def start() -> str:
        page = onward if len(onward) <= LONGEST_ONWARD else "/"
        back = _address_back(request, name)
        return sign_on.begin(provider, visitor.secret, back, page, is_proof=proof)

    try:
        address = await anyio.to_thread.run_sync(start, limiter=_ASKING)
    except PoolError as error:
        return await _show_refusal(visitor, error)
    # The browser comes back with this cookie; another one's answer does not count.
    request.state.has_form = True
    return RedirectResponse(address, 303)


@router.get("/login/back/{name}")
async def come_back(
    request: Request, visitor: Anyone, parts: Parts, limits: Limits, name: str
) -> Response:
    """Begin a session for the person that a provider confirms."""
    provider = sign_on.find_provider(parts.settings, name)
    query, cookie = dict(request.query_params), "" if visitor.is_new else visitor.secret
    back = _address_back(request, name)
    try:
        attempt, confirmation = await anyio.to_thread.run_sync(
            sign_on.finish, provider, cookie, back, query, limiter=_ASKING
        )
        if attempt.is_proof:
            await anyio.to_thread.run_sync(_prove, parts, visitor, provider, confirmation)
            return await showing.show(
                visitor, "proof.html", is_proved=True, form=showing.EMPTY_FORM
            )
        secret = await anyio.to_thread.run_sync(_enter, request, parts, provider, confirmation)
    except PoolError as error:
        problem: PoolError = error
        try:
            if isinstance(error, NotAuthenticatedError | NotAllowedError):
                key = rate_limit_key(client_address(request))
                limits.failed_logins.take(key, "attempts to log in")
        except PoolError as too_many:
            problem = too_many
        return await _show_refusal(visitor, problem)
    response = showing.go_to(attempt.onward)
    set_cookie(response, request, secret)
    return response


def _address_back(request: Request, name: str) -> str:
    return f"{own_address(request)}/login/back/{name}"


async def _show_refusal(visitor: Visitor, error: PoolError) -> Response:
    body = showing.describe_error(error)
    return await showing.show(
        visitor,
        "login.html",
        status=error.status,
        next="/",
        link="",
        invitation="",
        form=showing.FormState({}, {}, body.message, body.hint),
    )


def _prove(
    parts: ServerParts, visitor: Visitor, provider: Provider, confirmation: Confirmation
) -> None:
    """Record that the person of this session has logged in at the provider again."""

    def prove(session: Session) -> None:
        user = sign_on.find_user(session, provider, confirmation)
        known = visitor.session
        member = None if known is None else get_token(session, known.caller.token_id).user
        if known is None or member is None or member is not user:
            raise NotAuthenticatedError(
                "this account belongs to another person than this session",
                hint="Log in with the account with which this session began.",
            )
        browser_sessions.mark_proved(session, known.session_id)

    write_with_retry(parts.database, prove)


def _enter(
    request: Request, parts: ServerParts, provider: Provider, confirmation: Confirmation
) -> str:
    """Return the secret of a new session."""
    address, request_id = client_address(request), request_id_of(request)

    def enter(session: Session) -> str:
        entered, newcomer = sign_on.enter(session, provider, confirmation)
        token = get_token(session, entered.id)
        require_valid(token)
        caller = caller_of(token, address=address, request_id=request_id)
        if newcomer:
            subject = f"{caller.site}/{newcomer}"
            account = {"issuer": provider.settings.issuer, "account": confirmation.subject}
            record_act(session, caller, "user.enter", subject, role=caller.role, **account)
        return browser_sessions.begin_session(
            session,
            token,
            browser=request.headers.get("user-agent", ""),
            address=address,
            request_id=request_id,
        )

    return write_with_retry(parts.database, enter)


@router.get(devices.PAGE)
async def device_page(visitor: Anyone) -> Response:
    """Ask for the code that a computer shows."""
    _require_user(visitor)
    return await _show_device(visitor, showing.EMPTY_FORM)


@router.post(devices.PAGE)
async def decide_on_device(
    request: Request, visitor: Anyone, parts: Parts, limits: Limits
) -> Response:
    """Show the computer behind a code, then let it in or not."""
    _require_user(visitor)
    visitor.require_proof()
    form = await showing.read_form(request)
    limits.failed_logins.take(rate_limit_key(client_address(request)), "codes from your address")

    def look() -> tuple[str, str]:
        with parts.database.write() as session:
            device = devices.find_device(session, form["code"])
            if form["decision"]:
                allows = form["decision"] == "allow"
                devices.decide(session, visitor.member, device, allows=allows)
            return device.computer, device.address

    try:
        computer, address = await anyio.to_thread.run_sync(look)
    except MissingError as error:
        return await _show_device(visitor, showing.refused_form(form, error), status=404)
    step = {"allow": "allowed", "refuse": "refused"}.get(form["decision"], "asked")
    return await _show_device(
        visitor, showing.FormState(form.kept()), step=step, computer=computer, address=address
    )


def _require_user(visitor: Visitor) -> None:
    """Raise unless the session began with a log-in by an institute.

    A session of a token could otherwise make a token that outlives it.
    """
    visitor.member  # noqa: B018 - raises where nobody is logged in
    if visitor.session is not None and not visitor.session.is_sign_on:
        raise NotAllowedError(
            "this log-in is one by a token, expected one by your institute",
            hint="Log out, and log in with your institute.",
        )


async def _show_device(
    visitor: Visitor, form: showing.FormState, *, status: int = 200, step: str = "", **values: Any
) -> Response:
    return await showing.show(visitor, "device.html", status=status, form=form, step=step, **values)
