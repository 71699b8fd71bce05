"""Log in to a pool, with a token or an invitation."""

import re
from dataclasses import dataclass
from typing import Any

from pool_server.wire.people import INVITATION_PREFIX
from site_agent.errors import InvalidInputError, NotLoggedInError
from site_agent.pool import profiles
from site_agent.pool.client import PoolClient
from site_agent.pool.resources.administration import accept_invitation


@dataclass(frozen=True)
class Newcomer:
    """A person accepting an invitation."""

    name: str
    """The user name at the site."""
    display_name: str = ""
    email: str | None = None
    """By default the address of the invitation."""


@dataclass(frozen=True)
class Login:
    """A stored login."""

    profile: str
    token_name: str
    facts: dict[str, Any]
    """The pool's description of the token, without its secret."""


def read_joining(text: str) -> tuple[str, str]:
    """Return the pool's address and the secret in a letter or link; empty where missing.

    >>> read_joining("Join here: https://pool.example.org/login?invitation=invite_x7")
    ('https://pool.example.org', 'invite_x7')
    """
    link = re.search(r"https?://[^\s?#\"'<>]+", text)
    invitation = re.search(rf"{INVITATION_PREFIX}[\w-]+", text)
    tokens = re.findall(r"[\w-]{20,}", re.sub(r"https?://\S+", " ", text))
    secret = invitation[0] if invitation else tokens[0] if len(tokens) == 1 else ""
    return link[0].rstrip("/.,;").removesuffix("/login") if link else "", secret


def join(endpoint: str, secret: str, newcomer: Newcomer | None, *, profile: str = "") -> Login:
    """Verify a token, or accept an invitation, and store the login as the active one.

    `profile` defaults to the pool's host name.

    Raises
    ------
    InvalidInputError
        If the secret is an invitation and there is no newcomer, or the reverse.
    NotLoggedInError
        If the pool does not accept the token.
    """
    is_invitation = secret.startswith(INVITATION_PREFIX)
    if is_invitation and newcomer is None:
        raise InvalidInputError(
            "this is an invitation", hint="choose your user name at the site with --name"
        )
    if newcomer is not None and not is_invitation:
        raise InvalidInputError(
            "this is a token, and --name goes with an invitation",
            hint=f"an invitation begins with {INVITATION_PREFIX}",
        )
    name = profile or profiles.host_of(endpoint)
    if newcomer is not None:
        created = accept_invitation(
            endpoint,
            secret,
            newcomer.name,
            display_name=newcomer.display_name,
            email=newcomer.email,
            token_name=None,
        )
        profiles.store_profile(profiles.Profile(name, endpoint, created.secret))
        facts = created.model_dump(mode="json", exclude={"secret"})
        return Login(name, created.name, facts)
    with PoolClient(endpoint, secret) as pool:
        try:
            identity = pool.whoami()
        except NotLoggedInError as error:
            raise NotLoggedInError(
                f"{endpoint} does not accept this token: {error}",
                hint="was it copied completely, and is it a token of this pool? An admin makes a "
                "new one: poolctl admin people token SITE NAME",
                code=error.code,
            ) from error
    profiles.store_profile(profiles.Profile(name, endpoint, secret))
    return Login(name, identity.token_name, identity.model_dump(mode="json"))
