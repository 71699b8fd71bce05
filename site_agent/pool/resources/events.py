"""Events of a pool, webhooks and the audit log."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from pool_server.wire.audit import AuditEntry, AuditPage
from pool_server.wire.events import (
    LONGEST_WAIT_S,
    EventPage,
    EventResponse,
    WebhookCreatedResponse,
    WebhookList,
    WebhookRequest,
    WebhookResponse,
    WebhookTestResponse,
)
from site_agent.pool.connection import PAGE_SIZE, PoolConnection
from site_agent.pool.requests import build_request

# The pool's own limit for a call, and time for the answer.
_TRY_TIMEOUT_S = 120.0


class Events:
    """Events of the site, and the audit log."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

    def list(
        self,
        after: int = 0,
        *,
        kind: str = "",
        site: str = "",
        follow: bool = False,
    ) -> Iterator[EventResponse]:
        """Yield the events of the site after a given one, oldest first.

        Parameters
        ----------
        after : int
            `event_id` of the last event already seen.
        """
        parameters: dict[str, Any] = {"after": after, "limit": PAGE_SIZE}
        parameters |= {name: text for name, text in (("kind", kind), ("site", site)) if text}
        while True:
            page = self._connection.get("/api/v1/events", EventPage, parameters)
            yield from page.items
            parameters["after"] = page.last_id
            if not page.more:
                if not follow:
                    return
                parameters["wait_s"] = LONGEST_WAIT_S

    def audit(
        self,
        *,
        subject: str = "",
        action: str = "",
        actor: str = "",
        site: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Iterator[AuditEntry]:
        """Yield the entries of the audit log, newest first (admins only).

        Parameters
        ----------
        subject : str
            ``SITE/NAME@2``, ``SITE/NAME`` with its versions, ``SITE/`` with its models.
        action : str
            ``version.withdraw``, or ``version`` for all of that noun.
        actor : str
            A site, or site and token.
        since, until : datetime, optional
            With their time zones.
        """
        words = {"subject": subject, "action": action, "actor": actor, "site": site}
        parameters = {name: text for name, text in words.items() if text}
        for name, moment in (("since", since), ("until", until)):
            if moment is not None:
                parameters[name] = moment.isoformat()
        return self._connection.pages("/api/v1/audit", AuditPage, parameters)


class Webhooks:
    """Addresses that the pool calls with events."""

    def __init__(self, connection: PoolConnection) -> None:
        self._connection = connection

    def create(
        self, url: str, *, kinds: Sequence[str] = (), site: str = ""
    ) -> WebhookCreatedResponse:
        """Register an address that is called with every new event; the answer holds its secret."""
        request = build_request(WebhookRequest, url=url, kinds=[*kinds], site=site or None)
        return self._connection.post("/api/v1/webhooks", WebhookCreatedResponse, request)

    def list(self, site: str = "") -> builtins.list[WebhookResponse]:
        """Return the webhooks of a site."""
        parameters = {"site": site} if site else None
        return self._connection.get("/api/v1/webhooks", WebhookList, parameters).items

    def delete(self, webhook_id: str) -> None:
        """Stop calling an address."""
        self._connection.send("DELETE", f"/api/v1/webhooks/{webhook_id}")

    def test(self, webhook_id: str) -> WebhookTestResponse:
        """Call a webhook now and return what it answered."""
        return self._connection.post(
            f"/api/v1/webhooks/{webhook_id}/test", WebhookTestResponse, timeout_s=_TRY_TIMEOUT_S
        )
