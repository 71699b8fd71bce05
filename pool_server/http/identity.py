"""Who is asking, and whether they may."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, cast

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.errors import NotAllowedError, NotAuthenticatedError
from pool_server.http.session import Parts
from pool_server.records import TokenRecord, now_utc
from pool_server.wire.sites import Role

SECRET_PREFIX = "pool_"
SECRET_BITS = 256
# Writing the time of last use with every request would make every reader a writer.
LAST_USED_STEP = timedelta(minutes=5)

bearer = HTTPBearer(
    auto_error=False,
    scheme_name="token",
    description="A token of the pool: `Authorization: Bearer pool_...`. The first admin token is "
    "printed once by `poolctl serve`; an admin makes further ones with `POST /api/v1/tokens`.",
)


def new_secret() -> str:
    """Return a fresh token secret with 256 random bits."""
    return SECRET_PREFIX + secrets.token_urlsafe(SECRET_BITS // 8)


def hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


@dataclass(frozen=True)
class Caller:
    """The token behind a request, and where the request came from."""

    token_id: str
    token_name: str
    site_id: int
    site: str
    role: Role
    expires_at: datetime | None
    address: str = ""
    request_id: str = ""

    @property
    def is_admin(self) -> bool:
        return self.role == "admin"

    def may_upload_to(self, site: str) -> bool:
        return self.is_admin or (self.role == "contributor" and self.site == site)

    def require_upload_to(self, site: str) -> None:
        """Raise `NotAllowedError` unless the caller may upload to `site`."""
        if self.may_upload_to(site):
            return
        if self.role == "contributor":
            raise NotAllowedError(
                f"this token belongs to site {self.site!r} and cannot upload to {site!r}",
                hint=f"Upload as {self.site}/..., or use a token of {site!r}.",
            )
        raise NotAllowedError(
            "a viewer token cannot upload",
            hint="Ask the pool's admin for a contributor token.",
        )


def find_token(session: Session, secret: str) -> TokenRecord:
    """Return the valid token that `secret` belongs to, with its site.

    Raises
    ------
    NotAuthenticatedError
        Unknown, revoked or expired; the three are told apart only to those who know the secret.
    """
    wanted = hash_secret(secret)
    token = session.scalar(
        select(TokenRecord)
        .join(TokenRecord.site)
        .options(contains_eager(TokenRecord.site))
        .where(TokenRecord.secret_hash == wanted)
    )
    if token is None or not hmac.compare_digest(token.secret_hash, wanted):
        raise NotAuthenticatedError(
            "the pool does not know this token", hint="Log in again with `poolctl auth login`."
        )
    if token.revoked_at is not None:
        raise NotAuthenticatedError(
            "this token was revoked", hint="Ask the pool's admin for a new one."
        )
    if token.expires_at is not None and token.expires_at <= now_utc():
        raise NotAuthenticatedError(
            f"this token expired at {token.expires_at:%Y-%m-%d %H:%M} UTC",
            hint="Ask the pool's admin for a new one.",
        )
    return token


def signed_in(
    request: Request,
    parts: Parts,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)],
) -> Caller:
    """Return who is asking; every role may."""
    if credentials is None:
        raise NotAuthenticatedError(
            "this needs a token: send `Authorization: Bearer TOKEN`",
            hint="Log in with `poolctl auth login`, or set POOL_TOKEN.",
        )
    with parts.database.read() as session:
        token = find_token(session, credentials.credentials)
    now = now_utc()
    if token.last_used_at is None or now - token.last_used_at > LAST_USED_STEP:
        with parts.database.write() as session:
            session.execute(
                update(TokenRecord).where(TokenRecord.id == token.id).values(last_used_at=now)
            )
    return Caller(
        token_id=token.id,
        token_name=token.name,
        site_id=token.site_id,
        site=token.site.name,
        role=cast("Role", token.role),
        expires_at=token.expires_at,
        address=request.client.host if request.client else "",
        request_id=request.scope.get("pool_request_id", ""),
    )


SignedIn = Annotated[Caller, Depends(signed_in)]


def administrator(caller: SignedIn) -> Caller:
    if not caller.is_admin:
        raise NotAllowedError(
            f"this needs an admin token; yours is a {caller.role} token",
            hint="Ask the pool's admin to do it.",
        )
    return caller


def uploader(caller: SignedIn) -> Caller:
    """Let contributors and admins in; which site they may upload to is asked later."""
    if caller.role == "viewer":
        caller.require_upload_to(caller.site)
    return caller


Administrator = Annotated[Caller, Depends(administrator)]
Uploader = Annotated[Caller, Depends(uploader)]
