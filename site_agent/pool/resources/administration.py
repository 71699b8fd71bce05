"""Sites of a pool, their users, invitations and tokens; events and the audit log."""

import builtins
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from pool_server.wire import activity, people
from pool_server.wire.names import NAME_PATTERN
from site_agent.errors import PoolRefusedRequestError
from site_agent.pool.connection import PAGE_SIZE, PoolConnection, Resource
from site_agent.pool.requests import build_request

_SITES, _USERS = "/api/v1/sites", "/api/v1/users"
_TOKENS, _INVITATIONS = "/api/v1/tokens", "/api/v1/invitations"


class Sites(Resource):
    """The sites of a pool, and how much they store."""

    def list(self) -> list[people.SiteResponse]:
        """List the sites of the pool."""
        return self._pool.get(_SITES, people.SiteList).items

    def create(self, name: str, **fields: Any) -> people.SiteResponse:
        """Create a site, as a `SiteRequest` says it (pool admins)."""
        request = build_request(people.SiteRequest, name=name, **fields)
        return self._pool.post(_SITES, people.SiteResponse, request)

    def change(self, name: str, **changes: Any) -> people.SiteResponse:
        """Change `display_name`, `contact`, `quota_bytes` (None: no limit) or `suspended`."""
        request = build_request(people.SiteChangeRequest, **changes)
        return self._pool.write("PATCH", f"{_SITES}/{_word(name)}", people.SiteResponse, request)

    def usage(self) -> builtins.list[people.SiteUsage]:
        """Return how much the sites that one administers store."""
        return self._pool.get("/api/v1/usage", people.UsageResponse).items


class Users(Resource):
    """The users of sites."""

    def list(self) -> list[people.UserResponse]:
        """List the users of the sites that one administers."""
        return self._pool.get(_USERS, people.UserList).items

    def change(self, site: str, name: str, **changes: Any) -> people.UserResponse:
        """Change `role`, `pool_wide`, `disabled`, `display_name` or `email` of a user."""
        request = build_request(people.UserChangeRequest, **changes)
        path = f"{_USERS}/{_word(site)}/{_word(name)}"
        return self._pool.write("PATCH", path, people.UserResponse, request)


class Invitations(Resource):
    """Invitations to become a user of a site."""

    def list(self) -> list[people.InvitationResponse]:
        """List invitations to the sites that one administers, without their secrets."""
        return self._pool.get(_INVITATIONS, people.InvitationList).items

    def create(self, site: str, **fields: Any) -> people.InvitationCreatedResponse:
        """Invite one person, as an `InvitationRequest` says; only the answer has the secret."""
        request = build_request(people.InvitationRequest, site=site, **fields)
        return self._pool.post(_INVITATIONS, people.InvitationCreatedResponse, request)

    def revoke(self, invitation_id: str) -> None:
        """Revoke an invitation."""
        self._pool.send("DELETE", f"{_INVITATIONS}/{_word(invitation_id)}")


class Tokens(Resource):
    """Tokens with which programs use the pool."""

    def list(self) -> list[people.TokenResponse]:
        """List the tokens of the sites that one administers, without their secrets."""
        return self._pool.get(_TOKENS, people.TokenList).items

    def create(self, site: str, name: str, **fields: Any) -> people.TokenCreatedResponse:
        """Create a token, as a `TokenRequest` says it; only the answer holds its secret."""
        request = build_request(people.TokenRequest, site=site, name=name, **fields)
        return self._pool.post(_TOKENS, people.TokenCreatedResponse, request)

    def revoke(self, token_id: str) -> None:
        """Revoke a token."""
        self._pool.send("DELETE", f"{_TOKENS}/{_word(token_id)}")


def accept_invitation(
    endpoint: str, secret: str, name: str, **fields: Any
) -> people.TokenCreatedResponse:
    """Become a user of the site that sent the invitation; return the first token.

    No token is needed. Further fields are those of an `AcceptanceRequest`. Where the site has a
    user of that name (`ConflictError`), the invitation stays valid.
    """
    request = build_request(people.AcceptanceRequest, secret=secret, name=name, **fields)
    connection = PoolConnection(endpoint, None)
    try:
        return connection.post(f"{_INVITATIONS}/accept", people.TokenCreatedResponse, request)
    finally:
        connection.close()


def _word(text: str) -> str:
    """Return a name or identifier if it can be one step of an address."""
    if not re.fullmatch(NAME_PATTERN, text):
        raise PoolRefusedRequestError(
            f"{text[:80]!r} is not a name or identifier; expected a-z, 0-9, '.', '_' and '-'"
        )
    return text


class Events(Resource):
    """Events of the site, and the audit log."""

    def list(
        self, after: int = 0, *, kind: str = "", site: str = ""
    ) -> Iterator[activity.EventResponse]:
        """Yield the events of the site after one already seen (`event_id`), oldest first."""
        parameters: dict[str, Any] = {"after": after, "limit": PAGE_SIZE}
        parameters |= {"kind": kind, "site": site}
        while True:
            page = self._pool.get("/api/v1/events", activity.EventPage, parameters)
            yield from page.items
            parameters["after"] = page.last_id
            if not page.more:
                return

    def audit(
        self, *, subject: str = "", action: str = "", site: str = "", since: datetime | None = None
    ) -> Iterator[activity.AuditEntry]:
        """Yield the entries of the audit log, newest first (admins only).

        `subject` is ``SITE/NAME@2``, ``SITE/NAME`` with its versions, or ``SITE/`` with its models;
        `action` ``version.withdraw``, or ``version`` for all of that noun; `since` has a time zone.
        """
        parameters = {"subject": subject, "action": action, "site": site}
        parameters["since"] = "" if since is None else since.isoformat()
        return self._pool.pages("/api/v1/audit", activity.AuditPage, parameters)
