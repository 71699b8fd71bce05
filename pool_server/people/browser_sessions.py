"""Sessions of browsers: a cookie in place of a token, for the pages and for nothing else.

A session may what its token may. It is looked up by the rule that holds for tokens, so that it
ends with its token, and with the person and the site behind that.
"""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, select, update
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
# Writing with every page would make every reader a writer.
RENEWAL_STEP = timedelta(minutes=1)
PROOF_LIFETIME = timedelta(minutes=15)
"""So long after a log-in nobody is asked for the token again, whatever they do."""
LINK_LIFETIME = timedelta(hours=24)
LINK_PREFIX = "login_"
MOST_BROWSER_CHARACTERS = 200
MOST_SESSIONS = 20
"""Sessions of one token; a further log-in ends the one that was used least recently."""


@dataclass(frozen=True)
class BrowserSession:
    """A valid session, and who is behind it."""

    session_id: str
    caller: identity.Caller
    created_at: datetime
    last_used_at: datetime
    proved_at: datetime
    browser: str = ""

    @property
    def ends_at(self) -> datetime:
        """When it ends unless it is used before, and at the latest."""
        return min(self.last_used_at + IDLE, self.created_at + LIFETIME)

    @property
    def is_proved(self) -> bool:
        """Whether the token was seen so lately that it need not be asked for again."""
        return now_utc() - self.proved_at < PROOF_LIFETIME


def begin_session(
    session: Session, token: TokenRecord, *, browser: str, address: str, request_id: str
) -> str:
    """Begin a session of a valid token, and return its secret."""
    if token.kind != "program":
        raise NotAllowedError(
            "this token only reads the feed of events",
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
    """Return the valid session that `secret` belongs to."""
    wanted = identity.hash_secret(secret)
    found = session.scalar(
        select(BrowserSessionRecord)
        .join(BrowserSessionRecord.token)
        .join(TokenRecord.site)
        .outerjoin(TokenRecord.user)
        .options(
            contains_eager(BrowserSessionRecord.token).options(
                contains_eager(TokenRecord.site), contains_eager(TokenRecord.user)
            )
        )
        .where(BrowserSessionRecord.secret_hash == wanted)
    )
    if found is None or not hmac.compare_digest(found.secret_hash, wanted):
        raise NotAuthenticatedError("you are not logged in", hint="Log in with a token.")
    now = now_utc()
    if now - found.last_used_at > IDLE or now - found.created_at > LIFETIME:
        raise NotAuthenticatedError("your session has ended", hint="Log in again.")
    identity.require_valid(found.token)
    return BrowserSession(
        session_id=found.id,
        caller=identity.caller_of(found.token, address=address, request_id=request_id),
        created_at=found.created_at,
        last_used_at=found.last_used_at,
        proved_at=found.proved_at,
        browser=found.browser,
    )


def renew_session(session: Session, session_id: str) -> None:
    """Write down that a session is used now."""
    _change(session, session_id, last_used_at=now_utc())


def prove_session(session: Session, found: BrowserSession, secret: str) -> None:
    """Write down that the browser has sent the session's token again."""
    if identity.find_token(session, secret).id != found.caller.token_id:
        raise NotAuthenticatedError(
            "this is the token of another log-in",
            hint=f"Give the secret of {found.caller.name}, with which you logged in.",
        )
    _change(session, found.session_id, proved_at=now_utc())


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


def end_sessions(session: Session, caller: identity.Caller, session_id: str | None = None) -> int:
    """End one of the caller's sessions, or all of them, and return how many ended."""
    own = (
        select(BrowserSessionRecord.id)
        .join(BrowserSessionRecord.token)
        .outerjoin(TokenRecord.user)
        .where(_of(caller))
    )
    chosen = own if session_id is None else own.where(BrowserSessionRecord.id == session_id)
    ended = session.scalars(chosen).all()
    session.execute(delete(BrowserSessionRecord).where(BrowserSessionRecord.id.in_(ended)))
    if ended:
        record_act(session, caller, "session.end", caller.name, session_ids=list(ended))
    return len(ended)


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
    """Return the valid token of a log-in link, which is worth nothing from now on."""
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
