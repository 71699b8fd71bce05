"""The user of a page: the cookie, its session, and the token in the page's forms."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote, urlencode, urlsplit

import anyio.to_thread
from fastapi import Depends, Request
from fastapi.security.utils import get_authorization_scheme_param
from starlette.responses import Response
from starlette.types import Scope

from pool_server.database.records import now_utc
from pool_server.errors import NotAllowedError, NotAuthenticatedError, PoolError
from pool_server.http.identity import Caller, find_token, new_secret
from pool_server.http.paths import API_PREFIX
from pool_server.http.rate_limits import client_address
from pool_server.http.session import Parts, ServerParts, server_parts
from pool_server.pages.pool_api import PoolApi
from pool_server.people import browser_sessions
from pool_server.settings import is_this_machine
from pool_server.tls import pin_of
from pool_server.wire.people import Role

POLLING_HEADER = "x-pool-polling"
_MASK_BYTES = 32


class LoginNeededError(Exception):
    """A page needs a log-in."""


class ProofNeededError(Exception):
    """A change needs the token again, because the log-in is too old."""


@dataclass(frozen=True)
class Visitor:
    """The user of a page."""

    request: Request
    secret: str
    """The cookie's value; the pool stores it at log-in."""
    is_new: bool
    """The browser sent no cookie, and must get this one."""
    session: browser_sessions.BrowserSession | None
    """None before the log-in."""
    refusal: PoolError | None = None
    """The reason why the cookie's session is no longer valid."""

    @property
    def caller(self) -> Caller | None:
        return None if self.session is None else self.session.caller

    @property
    def member(self) -> Caller:
        """The caller; raise `LoginNeededError` where nobody is logged in."""
        if self.session is None:
            raise LoginNeededError
        return self.session.caller

    @property
    def api(self) -> PoolApi:
        return PoolApi(self.request, self.member)

    def require_proof(self) -> None:
        """Raise `ProofNeededError` where the log-in is too old for an irreversible change."""
        if self.session is not None and not self.session.is_proved:
            raise ProofNeededError

    @property
    def path(self) -> str:
        """Path and query of the page, to come back to."""
        query = self.request.url.query
        return self.request.url.path + (f"?{query}" if query else "")

    def next_page(self, cursor: str | None) -> str:
        """Return the address of the page to which a cursor leads; empty where there is none."""
        parameters = self.request.query_params.multi_items()
        query = [pair for pair in parameters if pair[0] != "cursor"]
        path = self.request.url.path
        return f"{path}?{urlencode([*query, ('cursor', cursor)])}" if cursor else ""

    @property
    def address(self) -> str:
        return own_address(self.request)

    def may(self, role: Role) -> bool:
        """Return whether the visitor has a role at least at the own site."""
        return self.caller is not None and self.caller.has_role(role, self.caller.site)

    def csrf(self) -> str:
        """Return the token for the forms of one answer.

        Each token has a fresh mask, so that the size of a compressed answer reveals nothing.
        """
        mask = secrets.token_bytes(_MASK_BYTES)
        hidden = bytes(a ^ b for a, b in zip(mask, form_key(self.secret), strict=True))
        return base64.urlsafe_b64encode(mask + hidden).decode()


def form_key(secret: str) -> bytes:
    """Return the key in the forms of a cookie's holder."""
    return hmac.digest(secret.encode("utf-8", "surrogateescape"), b"pool forms", hashlib.sha256)


def has_form_key(sent: str, secret: str) -> bool:
    """Return whether `sent` was made by `Visitor.csrf` for the holder of this cookie."""
    try:
        whole = base64.urlsafe_b64decode(sent.encode("ascii", "replace"))
    except ValueError:
        return False
    mask, hidden = whole[:_MASK_BYTES], whole[_MASK_BYTES:]
    if len(hidden) != _MASK_BYTES:
        return False
    key = bytes(a ^ b for a, b in zip(mask, hidden, strict=True))
    return hmac.compare_digest(key, form_key(secret))


def cookie_name(request: Request) -> str:
    """Return the cookie's name; browsers hold one with ``__Host-`` to TLS and to this host."""
    return "__Host-pool" if request.url.scheme == "https" else "pool"


def set_cookie(response: Response, request: Request, secret: str) -> None:
    """Set a cookie that lasts until the browser is closed; its session expires by itself."""
    response.set_cookie(
        cookie_name(request),
        secret,
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="lax",
    )


def require_own_page(request: Request) -> None:
    """Raise `NotAllowedError` where a change was not sent by a page of this pool."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site is not None:
        is_own = site == "same-origin"
    else:
        is_own = origin is None or urlsplit(origin).netloc == request.headers.get("host")
    if not is_own:
        raise NotAllowedError(
            f"the form was sent by another site ({origin or site}), expected a page of this pool",
            code="foreign_form",
            hint="Open the page of this pool, and send the form from there.",
        )


def find_visitor(request: Request, parts: Parts) -> Visitor:
    """Return the visitor of a page by the cookie alone: a token in a header is for the API."""
    secret = request.cookies.get(cookie_name(request), "")
    visitor = Visitor(request, secret or new_secret("visitor_"), not secret, None)
    if secret:
        visitor = look_up(parts, visitor)
    request.state.visitor = visitor
    return visitor


def look_up(parts: ServerParts, visitor: Visitor) -> Visitor:
    """Return the visitor with the session of the cookie, if it is still valid."""
    request = visitor.request
    try:
        with parts.database.read() as session:
            browser_session = browser_sessions.find_session(
                session,
                visitor.secret,
                address=client_address(request),
                request_id=request.scope.get("pool_request_id", ""),
            )
    except (NotAuthenticatedError, NotAllowedError) as error:
        return Visitor(request, visitor.secret, False, None, error)
    is_polling = POLLING_HEADER in request.headers
    if not is_polling and now_utc() - browser_session.last_used_at > browser_sessions.RENEWAL_STEP:
        with parts.database.write() as session:
            browser_sessions.renew_session(session, browser_session.session_id)
    return Visitor(request, visitor.secret, False, browser_session)


async def is_known_sender(parts: ServerParts, scope: Scope) -> bool:
    """Return whether a request has a valid token, or on pages the cookie of a valid session."""
    request = Request(scope)
    return await anyio.to_thread.run_sync(_is_known, parts, request)


def _is_known(parts: ServerParts, request: Request) -> bool:
    is_program = request.url.path.startswith(f"{API_PREFIX}/")
    scheme, secret = get_authorization_scheme_param(request.headers.get("authorization"))
    try:
        with parts.database.read() as session:
            if is_program and scheme.lower() == "bearer":
                find_token(session, secret)
                return True
            if not is_program and (secret := request.cookies.get(cookie_name(request), "")):
                browser_sessions.find_session(session, secret)
                return True
    except (NotAuthenticatedError, NotAllowedError):
        pass
    return False


def login_address(path: str) -> str:
    """Return where to log in, and come back from to a page."""
    return "/login" if path in {"", "/"} else f"/login?next={quote(path, safe='')}"


def own_address(request: Request) -> str:
    """Return the address of this pool as the browser knows it."""
    return str(request.base_url).rstrip("/")


def pinned_address(request: Request) -> str:
    """Return the address for `poolctl auth login`, which pins the certificate of this pool."""
    return own_address(request) + pin_of(server_parts(request).settings)


def local_remark(request: Request) -> str:
    """Return a remark on an address that leads other machines to themselves; else nothing."""
    host = request.url.hostname or ""
    return f" Elsewhere, this machine's name replaces {host}." if is_this_machine(host) else ""


def own_path(address: str) -> str:
    """Return `address` if it is a path of this pool; else the first page."""
    is_own = address.startswith("/") and not address.startswith(("//", "/\\"))
    has_controls = any(ord(character) < 32 or character == "\\" for character in address)
    return address if is_own and not has_controls else "/"


Anyone = Annotated[Visitor, Depends(find_visitor)]
