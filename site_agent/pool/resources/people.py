"""What admins ask of a pool about sites, people and tokens; `PoolClient` has all of it."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from pool_server.wire.names import NAME_PATTERN
from pool_server.wire.people.sites import (
    IdentityResponse,
    Role,
    SiteChangeRequest,
    SiteList,
    SiteRequest,
    SiteResponse,
    SiteUsage,
    UsageResponse,
)
from pool_server.wire.people.tokens import (
    TokenCreatedResponse,
    TokenList,
    TokenRequest,
    TokenResponse,
)
from pool_server.wire.people.users import (
    AcceptanceRequest,
    InvitationCreatedResponse,
    InvitationList,
    InvitationRequest,
    InvitationResponse,
    UserChangeRequest,
    UserList,
    UserResponse,
)
from site_agent.errors import PoolRefusedRequestError
from site_agent.pool.connection import PoolConnection
from site_agent.pool.requests import build_request

_SITES, _USERS = "/api/v1/sites", "/api/v1/users"
_TOKENS, _INVITATIONS = "/api/v1/tokens", "/api/v1/invitations"


class PoolPeople(ABC):
    """The part of `PoolClient` that is about sites, users, invitations and tokens."""

    @property
    @abstractmethod
    def _connection(self) -> PoolConnection: ...

    def whoami(self) -> IdentityResponse:
        """Ask the pool whom it takes this token for."""
        return self._connection.get("/api/v1/whoami", IdentityResponse)

    def sites(self) -> list[SiteResponse]:
        """List the sites of the pool."""
        return self._connection.get(_SITES, SiteList).items

    def create_site(
        self,
        name: str,
        *,
        display_name: str = "",
        contact: str = "",
        quota_bytes: int | None = None,
    ) -> SiteResponse:
        """Create a site (pool admins)."""
        request = build_request(
            SiteRequest,
            name=name,
            display_name=display_name,
            contact=contact,
            quota_bytes=quota_bytes,
        )
        return self._connection.post(_SITES, SiteResponse, request)

    def change_site(self, name: str, **changes: Any) -> SiteResponse:
        """Change `display_name`, `contact`, `quota_bytes` (None: no limit) or `suspended`.

        What is left out stays.
        """
        request = build_request(SiteChangeRequest, **changes)
        return self._connection.write("PATCH", f"{_SITES}/{_word(name)}", SiteResponse, request)

    def usage(self) -> list[SiteUsage]:
        """Return what the sites take up that one looks after."""
        return self._connection.get("/api/v1/usage", UsageResponse).items

    def users(self) -> list[UserResponse]:
        """List the users of the sites that one looks after."""
        return self._connection.get(_USERS, UserList).items

    def change_user(self, site: str, name: str, **changes: Any) -> UserResponse:
        """Change `role`, `pool_wide`, `disabled`, `display_name` or `email` of a user.

        What is left out stays.
        """
        request = build_request(UserChangeRequest, **changes)
        path = f"{_USERS}/{_word(site)}/{_word(name)}"
        return self._connection.write("PATCH", path, UserResponse, request)

    def invitations(self) -> list[InvitationResponse]:
        """List invitations to the sites that one looks after: never the secrets."""
        return self._connection.get(_INVITATIONS, InvitationList).items

    def invite(
        self,
        site: str,
        *,
        role: Role = "contributor",
        pool_wide: bool = False,
        email: str = "",
        expires_in_days: int = 7,
    ) -> InvitationCreatedResponse:
        """Invite one person to a site; the secret is in the answer and nowhere else."""
        request = build_request(
            InvitationRequest,
            site=site,
            role=role,
            pool_wide=pool_wide,
            email=email,
            expires_in_days=expires_in_days,
        )
        return self._connection.post(_INVITATIONS, InvitationCreatedResponse, request)

    def revoke_invitation(self, invitation_id: str) -> None:
        """Make an invitation worthless."""
        self._connection.send("DELETE", f"{_INVITATIONS}/{_word(invitation_id)}")

    def tokens(self) -> list[TokenResponse]:
        """List the tokens of the sites that one looks after: never the secrets."""
        return self._connection.get(_TOKENS, TokenList).items

    def create_token(
        self,
        site: str,
        name: str,
        *,
        role: Role = "contributor",
        pool_wide: bool = False,
        scopes: Sequence[str] | None = None,
        user: str | None = None,
        for_machine: bool = False,
        expires_in_days: int | None = None,
    ) -> TokenCreatedResponse:
        """Create a token; its secret is in the answer and nowhere else.

        Parameters
        ----------
        user : str, optional
            Whose it is. Left out, it is of the user whose token this client has, if that is one
            of the site; else of the site alone.
        for_machine : bool
            It is of the site alone, and stays when who made it is disabled.
        """
        request = build_request(
            TokenRequest,
            site=site,
            name=name,
            role=role,
            pool_wide=pool_wide,
            scopes=None if scopes is None else list(scopes),
            user=user,
            expires_in_days=expires_in_days,
            # Pools that are older than the word take tokens without it.
            **({"for_machine": True} if for_machine else {}),
        )
        return self._connection.post(_TOKENS, TokenCreatedResponse, request, exclude_unset=True)

    def revoke_token(self, token_id: str) -> None:
        """Make a token worthless."""
        self._connection.send("DELETE", f"{_TOKENS}/{_word(token_id)}")


def accept_invitation(
    endpoint: str,
    secret: str,
    name: str,
    *,
    display_name: str = "",
    email: str | None = None,
    token_name: str | None = None,
) -> TokenCreatedResponse:
    """Become a user of the site that invited; the first token's secret is in the answer.

    Parameters
    ----------
    endpoint : str
        Address of the pool; no token is needed.
    secret : str
        Of the invitation, which is used up.
    name : str
        What the user is called at the site.

    Raises
    ------
    ForbiddenError
        The pool does not take the invitation, or not any more.
    ConflictError
        The site has a user of that name; the invitation stays as it was.
    """
    request = build_request(
        AcceptanceRequest,
        secret=secret,
        name=name,
        display_name=display_name,
        email=email,
        token_name=token_name,
    )
    connection = PoolConnection(endpoint, "")
    try:
        return connection.post(f"{_INVITATIONS}/accept", TokenCreatedResponse, request)
    finally:
        connection.close()


def _word(text: str) -> str:
    """Return a name or identifier if it can be one step of an address.

    Raises
    ------
    PoolRefusedRequestError
    """
    if not re.fullmatch(NAME_PATTERN, text):
        raise PoolRefusedRequestError(
            f"{text[:80]!r} is no name or identifier; expected a-z, 0-9, '.', '_' and '-'"
        )
    return text
