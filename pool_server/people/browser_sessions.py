"""Browser sessions: a cookie replaces the token, for the pages only.

A session has the rights of its token. It is validated by the same rule as tokens, so it ends with
its token, and with the token's user or site.
"""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, bindparam, delete, select, update
from sqlalchemy.orm import Session, contains_eager

from pool_server.database.records import (
    BrowserSessionRecord,
    LoginLinkRecord,
    TokenRecord,
    UserRecord,
    now_utc,
)
from pool_server.errors import NotAllowedError, NotAuthenticatedError
from pool_server.http import identity
from pool_server.http.audit import record_act

IDLE = timedelta(minutes=60)
LIFETIME = timedelta(hours=12)
# Limits writes: renewing on every page would turn every read into a write.
RENEWAL_STEP = timedelta(minutes=1)
PROOF_LIFETIME = timedelta(minutes=15)
"""Time after a log-in, or a repeated proof, during which no page asks for the token again."""
LINK_LIFETIME = timedelta(hours=24)
LINK_PREFIX = "login_"
MOST_BROWSER_CHARACTERS = 200
MOST_SESSIONS = 20
"""Sessions of one token; a further log-in ends the one that was used least recently."""


# Every page runs this query: building it again would take longer than running it.
_SESSION_BEHIND = (
    select(BrowserSessionRecord)
    .join(BrowserSessionRecord.token)
    .options(contains_eager(BrowserSessionRecord.token).options(*identity.BRIEF_SITE_AND_USER))
    .join(TokenRecord.site)
    .outerjoin(TokenRecord.user)
    .where(BrowserSessionRecord.secret_hash == bindparam("secret_hash"))
)


@dataclass(frozen=True)
class BrowserSession:
    """A valid session and its caller."""

    session_id: str
    caller: identity.Caller
    created_at: datetime
    last_used_at: datetime
    proved_at: datetime
    browser: str = ""
    is_sign_on: bool = False
    """It began with a log-in at a provider, so that its user has no token to prove it by."""

    @property
    def ends_at(self) -> datetime:
        """The time at which an unused session ends."""
        return min(self.last_used_at + IDLE, self.created_at + LIFETIME)

    @property
    def is_proved(self) -> bool:
        """True if the token was sent recently enough that pages need not ask for it again."""
        return now_utc() - self.proved_at < PROOF_LIFETIME


def begin_session(
    session: Session, token: TokenRecord, *, browser: str, address: str, request_id: str
) -> str:
    """Begin a session of a valid token and return its secret."""
    if token.kind == "feed":
        raise NotAllowedError(
            "this token is of the kind 'feed', expected one for programs",
            hint="Log in with an ordinary token of your site.",
        )
    now = now_utc()
    session.execute(
        delete(BrowserSessionRecord).where(
            (BrowserSessionRecord.created_at < now - LIFETIME)
            | (BrowserSessionRecord.last_used_at < now - IDLE)
        )
    )
    surplus = (
        select(BrowserSessionRecord.id)
        .where(BrowserSessionRecord.token_id == token.id)
        .order_by(BrowserSessionRecord.last_used_at.desc(), BrowserSessionRecord.created_at.desc())
        .offset(MOST_SESSIONS - 1)
    )
    ended = session.scalars(surplus).all()
    session.execute(delete(BrowserSessionRecord).where(BrowserSessionRecord.id.in_(ended)))
    secret = identity.new_secret("session_")
    record = BrowserSessionRecord(
        id=secrets.token_hex(8),
        secret_hash=identity.hash_secret(secret),
        token_id=token.id,
        browser=browser[:MOST_BROWSER_CHARACTERS],
    )
    session.add(record)
    caller = identity.caller_of(token, address=address, request_id=request_id)
    record_act(session, caller, "session.begin", caller.name, session_id=record.id)
    return secret


def find_session(
    session: Session, secret: str, *, address: str = "", request_id: str = ""
) -> BrowserSession:
    """Return the valid session with this secret."""
    secret_hash = identity.hash_secret(secret)
    record = session.scalar(_SESSION_BEHIND, {"secret_hash": secret_hash})
    if record is None or not hmac.compare_digest(record.secret_hash, secret_hash):
        raise NotAuthenticatedError("you are not logged in", hint="Log in with a token.")
    now = now_utc()
    if now - record.last_used_at > IDLE or now - record.created_at > LIFETIME:
        raise NotAuthenticatedError("your session has ended", hint="Log in again.")
    identity.require_valid(record.token)
    return BrowserSession(
        session_id=record.id,
        caller=identity.caller_of(record.token, address=address, request_id=request_id),
        created_at=record.created_at,
        last_used_at=record.last_used_at,
        proved_at=record.proved_at,
        browser=record.browser,
        is_sign_on=record.token.kind == "sign-on",
    )


def renew_session(session: Session, session_id: str) -> None:
    """Record that a session is in use."""
    _change(session, session_id, last_used_at=now_utc())


def prove_session(session: Session, browser_session: BrowserSession, secret: str) -> None:
    """Record that the browser has sent the session's token again."""
    if identity.find_token(session, secret).id != browser_session.caller.token_id:
        raise NotAuthenticatedError(
            "this is the token of another log-in",
            hint=f"Enter the secret of {browser_session.caller.name}, with which you logged in.",
        )
    mark_proved(session, browser_session.session_id)


def mark_proved(session: Session, session_id: str) -> None:
    _change(session, session_id, proved_at=now_utc())


def _change(session: Session, session_id: str, **values: datetime) -> None:
    session.execute(
        update(BrowserSessionRecord).where(BrowserSessionRecord.id == session_id).values(**values)
    )


def list_sessions(session: Session, caller: identity.Caller) -> Sequence[BrowserSessionRecord]:
    """Return the sessions of the caller's user, or else of the caller's token, newest first."""
    return session.scalars(
        select(BrowserSessionRecord)
        .join(BrowserSessionRecord.token)
        .outerjoin(TokenRecord.user)
        .options(contains_eager(BrowserSessionRecord.token))
        .where(_of(caller), BrowserSessionRecord.last_used_at >= now_utc() - IDLE)
        .order_by(BrowserSessionRecord.created_at.desc())
    ).all()


def end_sessions(session: Session, caller: identity.Caller, session_id: str | None = None) -> None:
    """End one of the caller's sessions, or all of them."""
    callers_sessions = (
        select(BrowserSessionRecord.id)
        .join(BrowserSessionRecord.token)
        .outerjoin(TokenRecord.user)
        .where(_of(caller))
    )
    chosen = (
        callers_sessions
        if session_id is None
        else callers_sessions.where(BrowserSessionRecord.id == session_id)
    )
    ended = session.scalars(chosen).all()
    session.execute(delete(BrowserSessionRecord).where(BrowserSessionRecord.id.in_(ended)))
    if ended:
        record_act(session, caller, "session.end", caller.name, session_ids=list(ended))


def _of(caller: identity.Caller) -> ColumnElement[bool]:
    if not caller.user:
        return BrowserSessionRecord.token_id == caller.token_id
    return (TokenRecord.site_id == caller.site_id) & (UserRecord.name == caller.user)


def make_login_link(session: Session, token: TokenRecord) -> str:
    """Return a secret that logs a browser in once, as the token does."""
    secret = identity.new_secret(LINK_PREFIX)
    session.add(
        LoginLinkRecord(
            secret_hash=identity.hash_secret(secret),
            token_id=token.id,
            expires_at=now_utc() + LINK_LIFETIME,
        )
    )
    return secret


def use_login_link(session: Session, secret: str) -> TokenRecord:
    """Use up a log-in link and return its valid token."""
    token_id = session.scalar(
        delete(LoginLinkRecord)
        .where(
            LoginLinkRecord.secret_hash == identity.hash_secret(secret),
            LoginLinkRecord.expires_at > now_utc(),
        )
        .returning(LoginLinkRecord.token_id)
    )
    if token_id is None:
        raise NotAuthenticatedError(
            "this link was used before, or is too old",
            hint="Log in with a token; `poolctl admin recover` makes one on the pool's machine.",
        )
    token = identity.get_token(session, token_id)
    identity.require_valid(token)
    return token
