"""What a site asks of its pool about events, webhooks and the audit; `PoolClient` has all of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request

_PAGE_SIZE = 100
# The pool's own limit for a call, and time for the answer.
_TRY_TIMEOUT_S = 120.0


class PoolEvents(ABC):
    """The part of `PoolClient` that tells what happened."""

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def events(
        self,
        after: int = 0,
        *,
        kind: str = "",
        site: str = "",
        follow: bool = False,
        page_size: int = _PAGE_SIZE,
    ) -> Iterator[EventResponse]:
        """Yield the events of one's own site after a given one, oldest first.

        Parameters
        ----------
        after : int
            `event_id` of the last one that was seen.
        site : str
            Another site's, for admins of the pool.
        follow : bool
            Wait for further ones, for ever.
        """
        parameters: dict[str, Any] = {"after": after, "limit": page_size}
        parameters |= {name: text for name, text in (("kind", kind), ("site", site)) if text}
        while True:
            page = self._connection.get("/api/v1/events", EventPage, parameters)
            yield from page.items
            parameters["after"] = page.last_id
            if not page.more:
                if not follow:
                    return
                parameters["wait_s"] = LONGEST_WAIT_S

    def create_webhook(
        self, url: str, *, kinds: Sequence[str] = (), site: str = ""
    ) -> WebhookCreatedResponse:
        """Have an address called with every further event; its secret is in the answer, once."""
        request = build_request(WebhookRequest, url=url, kinds=list(kinds), site=site or None)
        return self._connection.post("/api/v1/webhooks", WebhookCreatedResponse, request)

    def webhooks(self, site: str = "") -> list[WebhookResponse]:
        """Return the addresses that are called with a site's events."""
        parameters = {"site": site} if site else None
        return self._connection.get("/api/v1/webhooks", WebhookList, parameters).items

    def delete_webhook(self, webhook_id: str) -> None:
        """Stop calling an address."""
        self._connection.send("DELETE", f"/api/v1/webhooks/{webhook_id}")

    def try_webhook(self, webhook_id: str) -> WebhookTestResponse:
        """Have an address called now, and return what it said."""
        return self._connection.post(
            f"/api/v1/webhooks/{webhook_id}/test", WebhookTestResponse, timeout_s=_TRY_TIMEOUT_S
        )

    def audit(
        self,
        *,
        subject: str = "",
        action: str = "",
        actor: str = "",
        site: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
        page_size: int = _PAGE_SIZE,
    ) -> Iterator[AuditEntry]:
        """Yield what was done, newest first, as far as one may know (admins only).

        Parameters
        ----------
        subject : str
            ``SITE/NAME@2``, ``SITE/NAME`` with its versions, ``SITE/`` with its models.
        action : str
            ``version.withdraw``, or ``version`` for all of that noun.
        actor : str
            A site, or site and token.
        site : str
            What this site did, and what was done to things of it.
        since, until : datetime, optional
            With their time zones.
        """
        words = {"subject": subject, "action": action, "actor": actor, "site": site}
        parameters: dict[str, Any] = {"limit": page_size}
        parameters |= {name: text for name, text in words.items() if text}
        for name, moment in (("since", since), ("until", until)):
            if moment is not None:
                parameters[name] = moment.isoformat()
        while True:
            page = self._connection.get("/api/v1/audit", AuditPage, parameters)
            yield from page.items
            if not page.next_cursor:
                return
            parameters["cursor"] = page.next_cursor
