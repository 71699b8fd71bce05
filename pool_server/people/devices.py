"""Tokens for computers, by a log-in with a browser elsewhere (device flow, RFC 8628)."""

import secrets
from datetime import timedelta

from fastapi import APIRouter, Request
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from pool_server.database.records import DeviceLoginRecord, TokenRecord, UserRecord, now_utc
from pool_server.errors import ConflictError, MissingError, NotAllowedError
from pool_server.http.audit import record_act
from pool_server.http.error_responses import request_id_of
from pool_server.http.identity import (
    Caller,
    caller_of,
    get_token,
    hash_secret,
    new_secret,
    require_valid,
)
from pool_server.http.rate_limits import Limits, client_address, rate_limit_key
from pool_server.http.session import Parts, WritingSession
from pool_server.people import tokens
from pool_server.people.sign_on import free_name
from pool_server.wire import people

router = APIRouter(prefix="/devices", tags=["tokens"])

LIFETIME = timedelta(minutes=10)
INTERVAL_S = 5.0
PAGE = "/login/device"
# Without vowels no code is a word; none of these letters looks like another one.
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


@router.post("", status_code=201, summary="Ask for a code")
def ask(
    http_request: Request,
    session: WritingSession,
    parts: Parts,
    limits: Limits,
    request: people.DeviceRequest,
) -> people.DeviceResponse:
    """Return a code that a user types on a page of this pool, to let this computer in.

    Needs no token. For pools with log-in by institutes.
    """
    address = client_address(http_request)
    limits.acceptances.take(rate_limit_key(address), "codes for your address")
    if not parts.settings.sign_on:
        raise ConflictError(
            "people log in to this pool with tokens",
            code="no_sign_on",
            hint="Ask an admin of your site for a token.",
        )
    session.execute(delete(DeviceLoginRecord).where(DeviceLoginRecord.expires_at <= now_utc()))
    secret = new_secret("device_")
    code = "".join(secrets.choice(_LETTERS) for _ in range(8))
    session.add(
        DeviceLoginRecord(
            secret_hash=hash_secret(secret),
            user_code=code,
            computer=request.computer,
            address=address,
            expires_at=now_utc() + LIFETIME,
            token_id=None,
        )
    )
    return people.DeviceResponse(
        device_code=secret,
        user_code=f"{code[:4]}-{code[4:]}",
        verification_path=PAGE,
        interval=INTERVAL_S,
    )


@router.post("/token", status_code=201, summary="Ask for the token")
def collect(
    http_request: Request, parts: Parts, limits: Limits, request: people.DeviceTokenRequest
) -> people.TokenCreatedResponse:
    """Return a token of the user behind the typed code, once. Needs no token.

    409 `authorization_pending` until then: ask again after the interval. 403 `access_denied` where
    the user refused.
    """
    secret_hash = hash_secret(request.device_code)
    with parts.database.read() as session:
        device = session.get(DeviceLoginRecord, secret_hash)
        is_known = device is not None and device.expires_at > now_utc()
        if device is not None and is_known and device.token_id is None and not device.is_refused:
            raise ConflictError(
                "the code was not typed yet", code="authorization_pending", hint="Ask again later."
            )
    address = client_address(http_request)
    if not is_known:
        limits.failed_logins.take(rate_limit_key(address), "device codes from your address")
    with parts.database.write() as session:
        device = session.scalar(
            delete(DeviceLoginRecord)
            .where(
                DeviceLoginRecord.secret_hash == secret_hash,
                DeviceLoginRecord.expires_at > now_utc(),
            )
            .returning(DeviceLoginRecord)
        )
        if device is None:
            raise MissingError(
                "the code was used, or is too old",
                code="expired_token",
                hint="Ask for another one.",
            )
        if device.is_refused or device.token_id is None:
            # Committed: a refused code is gone.
            device = None
        else:
            return _make_token(session, device, address, request_id_of(http_request))
    raise NotAllowedError("the user did not let this computer in", code="access_denied")


def _make_token(
    session: Session, device: DeviceLoginRecord, address: str, request_id: str
) -> people.TokenCreatedResponse:
    """Return a token with the rights of the user; it takes the place of the computer's last one."""
    behind = get_token(session, str(device.token_id))
    require_valid(behind)
    user = behind.user
    assert user is not None, "only sessions of users allow devices"
    name = f"{user.name}-{device.computer}"[:64]
    earlier = session.scalar(
        select(TokenRecord)
        .join(TokenRecord.user)
        .where(
            UserRecord.id == user.id,
            TokenRecord.name == name,
            TokenRecord.kind == "program",
            TokenRecord.revoked_at.is_(None),
        )
    )
    if earlier is not None:
        tokens.end_token(session, earlier.id, now_utc())
    name = free_name(name, lambda name: tokens.has_valid_token(session, user.site_id, name))
    token, secret = tokens.make_token(
        session,
        behind.site,
        name,
        user.role,
        pool_wide=user.pool_wide,
        user=user,
        made_by=f"{behind.site.name}/{user.name}",
    )
    caller = caller_of(token, address=address, request_id=request_id)
    details = tokens.details_of(token) | {"asked_from": device.address}
    record_act(session, caller, "token.create", f"{behind.site.name}/{token.name}", **details)
    return tokens.with_secret(token, secret)


def find_device(session: Session, code: str) -> DeviceLoginRecord:
    """Return the computer that shows this code and waits."""
    letters = "".join(letter for letter in code.upper() if letter in _LETTERS)
    device = session.scalar(
        select(DeviceLoginRecord).where(
            DeviceLoginRecord.user_code == letters,
            DeviceLoginRecord.expires_at > now_utc(),
            DeviceLoginRecord.token_id.is_(None),
            ~DeviceLoginRecord.is_refused,
        )
    )
    if device is None:
        raise MissingError(
            "no computer waits with this code",
            code="code_not_found",
            hint="A code is good for ten minutes, and once.",
        )
    return device


def decide(session: Session, caller: Caller, device: DeviceLoginRecord, *, allows: bool) -> None:
    """Record that the caller lets a computer in, or not."""
    device.is_refused, device.token_id = not allows, caller.token_id if allows else None
    details = {"computer": device.computer, "asked_from": device.address}
    act = "device.allow" if allows else "device.refuse"
    record_act(session, caller, act, caller.name, **details)
