"""Addresses that sites want called with their events."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Sequence

from sqlalchemy.orm import Session

from pool_server.activity.events import repository
from pool_server.activity.events.calling import CallFailedError, call, read_address
from pool_server.database.engine import wait_for_turn
from pool_server.database.records import WebhookRecord, now_utc
from pool_server.errors import ConflictError, MissingError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, new_secret
from pool_server.http.session import ServerParts
from pool_server.settings import PoolSettings
from pool_server.wire.events import (
    EventResponse,
    WebhookCreatedResponse,
    WebhookRequest,
    WebhookResponse,
    WebhookTestResponse,
)

TEST_KIND = "webhook.test"
SECRET_PREFIX = "hook_"
MOST_WEBHOOKS = 10
"""Of one site."""


def create_webhook(
    session: Session, settings: PoolSettings, caller: Caller, request: WebhookRequest
) -> WebhookCreatedResponse:
    """Have an address called from now on; the answer has the secret, this once."""
    site_name = request.site or caller.site
    caller.require_role("admin", site_name)
    read_address(request.url, settings)
    site = repository.find_site(session, site_name)
    if site is None:
        raise MissingError(f"the pool has no site {site_name!r}", code="site_not_found")
    wait_for_turn(session, f"webhooks of site {site.id}")
    if repository.count_webhooks(session, site.id) >= MOST_WEBHOOKS:
        raise ConflictError(
            f"site {site.name!r} has {MOST_WEBHOOKS} webhooks, which is the most allowed",
            code="too_many_webhooks",
            hint="Delete one first: `poolctl webhooks ls` lists them.",
        )
    webhook = WebhookRecord(
        id=secrets.token_hex(8),
        site=site,
        url=request.url,
        secret=new_secret(SECRET_PREFIX),
        kinds=list(dict.fromkeys(request.kinds)),
        created_by=f"{caller.site}/{caller.token_name}",
    )
    session.add(webhook)
    session.flush()
    record_act(session, caller, "webhook.create", f"{site.name}/{webhook.id}", url=webhook.url)
    described = describe_webhooks(session, [webhook])[0]
    return WebhookCreatedResponse(**described.model_dump(), secret=webhook.secret)


def list_webhooks(session: Session, caller: Caller, site: str | None) -> list[WebhookResponse]:
    """Return the webhooks of a site."""
    name = site or caller.site
    caller.require_role("admin", name)
    return describe_webhooks(session, repository.list_webhooks(session, name))


def get_webhook(session: Session, caller: Caller, webhook_id: str) -> WebhookRecord:
    """Return a webhook of a site whose admin the caller is.

    Raises
    ------
    MissingError
        There is none; another site's looks the same.
    """
    webhook = repository.find_webhook(session, webhook_id)
    if webhook is None or not caller.has_role("admin", webhook.site.name):
        raise MissingError(
            f"the pool has no webhook {webhook_id}",
            code="webhook_not_found",
            hint="`poolctl webhooks ls` lists them.",
        )
    return webhook


def delete_webhook(session: Session, caller: Caller, webhook_id: str) -> None:
    """Stop calling an address; what it still waits for is dropped."""
    webhook = get_webhook(session, caller, webhook_id)
    repository.delete_webhook(session, webhook.id)
    record_act(
        session, caller, "webhook.delete", f"{webhook.site.name}/{webhook.id}", url=webhook.url
    )


def try_webhook(parts: ServerParts, caller: Caller, webhook_id: str) -> WebhookTestResponse:
    """Call an address now, with an event that did not happen, and tell what it said."""
    with parts.database.read() as session:
        webhook = get_webhook(session, caller, webhook_id)
    event = EventResponse(
        event_id=0,
        at=now_utc(),
        site=webhook.site.name,
        kind=TEST_KIND,
        subject=webhook.id,
        details={"by": f"{caller.site}/{caller.token_name}"},
    )
    try:
        status = send_event(webhook, event, parts.settings)
    except CallFailedError as error:
        return WebhookTestResponse(delivered=False, status=None, error=str(error))
    error_text = "" if is_success(status) else f"it answered {status}"
    return WebhookTestResponse(delivered=is_success(status), status=status, error=error_text)


def send_event(webhook: WebhookRecord, event: EventResponse, settings: PoolSettings) -> int:
    """Call a webhook's address with an event and return the status of the answer."""
    body = event.model_dump_json().encode()
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "poolctl-pool",
        "X-Pool-Event": event.kind,
        "X-Pool-Delivery": f"{webhook.id}-{event.event_id}",
        "X-Pool-Timestamp": timestamp,
        "X-Pool-Signature": f"sha256={sign(webhook.secret, timestamp, body)}",
    }
    return call(webhook.url, body, headers, settings)


def sign(secret: str, timestamp: str, body: bytes) -> str:
    """Return the HMAC-SHA256 of a body and the moment at which it is sent, in hexadecimal."""
    return hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def is_success(status: int) -> bool:
    return 200 <= status <= 299


def describe_webhooks(session: Session, webhooks: Sequence[WebhookRecord]) -> list[WebhookResponse]:
    """Return webhooks, loaded with their sites, as their owners see them."""
    ids = [webhook.id for webhook in webhooks]
    waiting = repository.waiting_counts(session, ids)
    errors = repository.last_errors(session, ids)
    return [
        WebhookResponse(
            webhook_id=webhook.id,
            site=webhook.site.name,
            url=webhook.url,
            kinds=webhook.kinds,
            created_at=webhook.created_at,
            created_by=webhook.created_by,
            disabled_at=webhook.disabled_at,
            waiting=waiting.get(webhook.id, 0),
            last_error=errors.get(webhook.id, ""),
        )
        for webhook in webhooks
    ]
