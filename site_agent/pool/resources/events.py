"""Events of a pool and the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from pool_server.wire.audit import AuditEntry, AuditPage
from pool_server.wire.events import (
    LONGEST_WAIT_S,
    EventPage,
    EventResponse,
)
from site_agent.pool.connection import PAGE_SIZE, PoolConnection


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

    def feed_address(self, token: str) -> str:
        """Return the address of the Atom feed of a site's events, for feed readers.

        Parameters
        ----------
        token : str
            Secret of a feed token (`Tokens.create_for_feed`); whoever has the address reads the
            feed.
        """
        return f"{self._connection.endpoint}/api/v1/events/feed?{urlencode({'token': token})}"

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
