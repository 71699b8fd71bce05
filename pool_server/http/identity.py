"""Identity and permission of a caller: tokens, roles and scopes.

A token without scopes may do everything its role may; one with scopes only the acts they name, and
never more than its role. Every route that takes a token declares the scopes it needs, with the
router or the route::

    router = APIRouter(prefix="/rounds", tags=["rounds"], dependencies=[needs("rounds")])

A route that declares nothing is closed to tokens with scopes.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

from fastapi import Depends, Request, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.records import SiteRecord, TokenRecord, UserRecord, now_utc
from pool_server.errors import NotAllowedError, NotAuthenticatedError
from pool_server.http.rate_limits import Limits, RateLimits, client_address, rate_limit_key
from pool_server.http.session import Parts, ServerParts
from pool_server.wire.people import ROLES, Role, Scope

SECRET_PREFIX = "pool_"
SECRET_BITS = 256
# Writing the time of last use with every request would make every reader a writer.
LAST_USED_STEP = timedelta(minutes=5)
_CALLER = "pool_caller"
ADMITTED = "pool_admitted"
"""Key in the scope of a request that a page makes in this process: the `Caller` behind the page."""
_DECLARED = "pool_scopes"

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of the pool: `Authorization: Bearer pool_...`. The first admin token is "
    "printed once by `poolctl serve`; an admin makes further ones with `POST /api/v1/tokens`.",
)

# Every request runs this query: building it again would take longer than running it, and it loads
# only the columns that are looked at.
BRIEF_SITE_AND_USER = (
    contains_eager(TokenRecord.site).load_only(SiteRecord.name, SiteRecord.suspended_at),
    contains_eager(TokenRecord.user).load_only(
        UserRecord.name,
        UserRecord.role,
        UserRecord.pool_wide,
        UserRecord.disabled_at,
        UserRecord.valid_until,
    ),
)
_TOKEN_BEHIND = (
    select(TokenRecord)
    .join(TokenRecord.site)
    .outerjoin(TokenRecord.user)
    .options(*BRIEF_SITE_AND_USER)
    .where(TokenRecord.secret_hash == bindparam("secret_hash"))
)


def new_secret(prefix: str = SECRET_PREFIX) -> str:
    """Return a fresh secret with 256 random bits."""
    return prefix + secrets.token_urlsafe(SECRET_BITS // 8)


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def rank(role: str) -> int:
    """Return the place of a role: each role may do all that the one before it may."""
    return ROLES.index(cast("Role", role))


@dataclass(frozen=True)
class Caller:
    """The token behind a request, and where the request came from.

    `role` holds at the token's own site, and with `pool_wide` at every site; it never exceeds the
    role of the token's user. `scopes` narrow it; None: everything that its role may. `user`
    is that user's name at `site`; empty for a token of the site itself. `lent_site` is another
    site, to which this one act may publish: that of a round's starter.
    """

    token_id: str
    token_name: str
    site_id: int
    site: str
    role: Role
    expires_at: datetime | None
    pool_wide: bool = False
    scopes: frozenset[str] | None = None
    user: str = ""
    address: str = ""
    request_id: str = ""
    lent_site: str = ""

    @property
    def name(self) -> str:
        """Site and token: the actor in records and events."""
        return f"{self.site}/{self.token_name}"

    @property
    def is_admin(self) -> bool:
        """An admin of the whole pool."""
        return self.has_role("admin")

    def has_role(self, role: Role, site: str | None = None) -> bool:
        """Return whether the caller has at least `role` at `site`; None: in the whole pool."""
        if site != self.site and not self.pool_wide:
            return False
        return rank(self.role) >= rank(role)

    def require_role(self, role: Role, site: str | None = None) -> None:
        """Raise `NotAllowedError` unless the caller has at least `role` at `site`."""
        if self.has_role(role, site):
            return
        where = "of the whole pool" if site is None else f"at site {site!r}"
        raise NotAllowedError(
            f"this needs the role {role} {where}; yours is {self.role_in_words}",
            hint="Ask the pool's admin to do it."
            if site is None
            else f"Ask an admin of {site} to do it.",
        )

    @property
    def role_in_words(self) -> str:
        return f"{self.role} {'of the whole pool' if self.pool_wide else f'at site {self.site!r}'}"

    def may_upload_to(self, site: str) -> bool:
        return self.has_role("contributor", self.site if site == self.lent_site else site)

    def require_upload_to(self, site: str) -> None:
        """Raise `NotAllowedError` unless the caller may upload to `site`."""
        if self.may_upload_to(site):
            return
        if self.role != "viewer":
            raise NotAllowedError(
                f"this token belongs to site {self.site!r} and cannot upload to {site!r}",
                hint=f"Upload as {self.site}/..., or use a token of {site!r}.",
            )
        raise NotAllowedError(
            "a viewer token cannot upload",
            hint="Ask an admin of your site for a contributor token.",
        )


def find_token(session: Session, secret: str) -> TokenRecord:
    """Return the valid token that `secret` belongs to, with its site and user."""
    secret_hash = hash_secret(secret)
    token = session.scalar(_TOKEN_BEHIND, {"secret_hash": secret_hash})
    if token is None or not hmac.compare_digest(token.secret_hash, secret_hash):
        raise NotAuthenticatedError(
            "the pool does not know this token", hint="Log in again with `poolctl auth login`."
        )
    require_valid(token)
    return token


def require_valid(token: TokenRecord) -> None:
    """Raise unless a token, loaded with its site and user, is valid at this moment."""
    if token.revoked_at is not None:
        raise NotAuthenticatedError(
            "this token was revoked", hint="Ask an admin of your site for a new one."
        )
    if token.expires_at is not None and token.expires_at <= now_utc():
        raise NotAuthenticatedError(
            f"this token expired at {token.expires_at:%Y-%m-%d %H:%M} UTC",
            hint="Ask an admin of your site for a new one.",
        )
    if token.site.suspended_at is not None:
        raise NotAllowedError(
            f"site {token.site.name!r} is suspended",
            code="suspended",
            hint="Ask the pool's admin why.",
        )
    if token.user is not None and token.user.disabled_at is not None:
        raise NotAllowedError(
            f"user {token.site.name}/{token.user.name} is disabled",
            code="suspended",
            hint=f"Ask an admin of {token.site.name} why.",
        )
    if (
        token.user is not None
        and token.user.valid_until is not None
        and (token.user.valid_until <= now_utc())
    ):
        raise NotAuthenticatedError(
            f"the log-in of {token.site.name}/{token.user.name} at the institute held until "
            f"{token.user.valid_until:%Y-%m-%d %H:%M} UTC",
            code="sign_on_lapsed",
            hint="Log in with the institute again on the pool's page; this token then holds again.",
        )


def refresh_caller(session: Session, caller: Caller) -> Caller:
    """Return a caller with the rights of this moment, for work that outlasts its request."""
    token = get_token(session, caller.token_id)
    require_valid(token)
    return caller_of(token, address=caller.address, request_id=caller.request_id)


def get_token(session: Session, token_id: str) -> TokenRecord:
    """Return a token as it is now, with its site and user; tokens are never deleted."""
    return session.scalars(
        select(TokenRecord)
        .join(TokenRecord.site)
        .outerjoin(TokenRecord.user)
        .options(contains_eager(TokenRecord.site), contains_eager(TokenRecord.user))
        .where(TokenRecord.id == token_id)
    ).one()


def caller_of(token: TokenRecord, *, address: str = "", request_id: str = "") -> Caller:
    """Return the caller with the present rights of a token, loaded with its site and user."""
    role, pool_wide = cast("Role", token.role), token.pool_wide
    if token.user is not None:
        # A token never may more than its user.
        role = min(role, cast("Role", token.user.role), key=rank)
        pool_wide = pool_wide and token.user.pool_wide
    ends = [token.expires_at, token.user.valid_until if token.user is not None else None]
    return Caller(
        token_id=token.id,
        token_name=token.name,
        site_id=token.site_id,
        site=token.site.name,
        role=role,
        expires_at=min((end for end in ends if end is not None), default=None),
        pool_wide=pool_wide,
        scopes=None if token.scopes is None else frozenset(token.scopes),
        user="" if token.user is None else token.user.name,
        address=address,
        request_id=request_id,
    )


async def signed_in(
    request: Request,
    parts: Parts,
    limits: Limits,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> Caller:
    """Return the caller behind the token; every role may.

    A page that asks in this process has looked its caller up already.
    """
    admitted = cast("Caller | None", request.scope.get(ADMITTED))
    if admitted is not None:
        request.scope[_CALLER] = admitted
        require_declared_scopes(request, admitted.scopes)
        return admitted
    if credentials is None:
        raise NotAuthenticatedError(
            "this needs a token: send `Authorization: Bearer TOKEN`",
            hint="Log in with `poolctl auth login`, or set POOL_TOKEN.",
        )
    secret = credentials.credentials
    return await run_in_threadpool(_admit, request, parts, limits, secret)


def _admit(request: Request, parts: ServerParts, limits: RateLimits, secret: str) -> Caller:
    """Return the caller behind a token for programs."""
    address = client_address(request)
    try:
        with parts.database.read() as session:
            token = find_token(session, secret)
    except NotAuthenticatedError:
        limits.failed_logins.take(rate_limit_key(address), "refused tokens from your address")
        raise
    if token.kind != "program":
        raise NotAllowedError(
            f"this token is of the kind {token.kind!r}, expected one for programs",
            hint="Ask an admin of your site for a new one.",
        )
    now = now_utc()
    caller = caller_of(token, address=address, request_id=request.scope.get("pool_request_id", ""))
    request.scope[_CALLER] = caller
    require_declared_scopes(request, caller.scopes)
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_STEP:
        with parts.database.write() as session:
            session.execute(
                update(TokenRecord).where(TokenRecord.id == token.id).values(last_used_at=now)
            )
    return caller


def caller_behind(request: Request) -> Caller | None:
    """Return the caller of a request if one has been looked up, or else None."""
    return cast("Caller | None", request.scope.get(_CALLER))


SignedIn = Annotated[Caller, Depends(signed_in)]


async def site_admin(caller: SignedIn) -> Caller:
    """Let in admins, of one site or all; which site they act on is asked later."""
    caller.require_role("admin", caller.site)
    return caller


async def curator(caller: SignedIn) -> Caller:
    """Let in curators, of one site or all; which site they act on is asked later."""
    caller.require_role("curator", caller.site)
    return caller


async def uploader(caller: SignedIn) -> Caller:
    """Let in all but viewers; which site they may upload to is asked later."""
    if caller.role == "viewer":
        caller.require_upload_to(caller.site)
    return caller


SiteAdmin = Annotated[Caller, Depends(site_admin)]
Curator = Annotated[Caller, Depends(curator)]
Uploader = Annotated[Caller, Depends(uploader)]


def needs(*scopes: Scope) -> Any:
    """Return a dependency that says which scopes a route needs: all of these.

    Without any, every valid token will do. Dependencies of routers and routes run before those
    of parameters, so that `require_declared_scopes` knows when the token is looked at.
    """

    async def declare(request: Request) -> None:
        request.scope[_DECLARED] = request.scope.get(_DECLARED, frozenset()) | set(scopes)

    return Depends(declare)


def require_declared_scopes(request: Request, granted: frozenset[str] | None) -> None:
    """Raise `NotAllowedError` unless a token's scopes suffice for the route of a request."""
    if granted is None:
        return
    declared = request.scope.get(_DECLARED)
    missing = ["all of them"] if declared is None else sorted(declared - granted)
    if missing:
        raise NotAllowedError(
            f"this token is narrowed to {', '.join(sorted(granted)) or 'nothing'}; this needs the "
            f"scope {' and '.join(missing)}",
            hint="Ask an admin of your site for a token with that scope.",
        )
