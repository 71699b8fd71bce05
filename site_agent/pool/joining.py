"""Log in to a pool: with a token, an invitation, or by a browser."""

import platform
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pool_server.wire import people
from pool_server.wire.people import INVITATION_PREFIX
from site_agent.errors import ConflictError, InvalidInputError, NotLoggedInError
from site_agent.pool import profiles
from site_agent.pool.client import PoolClient
from site_agent.pool.connection import PoolConnection
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
    pin = re.search(r"#sha256=[0-9A-Fa-f:]{64,95}", text)
    invitation = re.search(rf"{INVITATION_PREFIX}[\w-]+", text)
    tokens = re.findall(r"[\w-]{20,}", re.sub(r"https?://\S+", " ", text))
    secret = invitation[0] if invitation else tokens[0] if len(tokens) == 1 else ""
    address = link[0].rstrip("/.,;").removesuffix("/login") if link else ""
    return address + (pin[0] if address and pin else ""), secret


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
        return _store(name, endpoint, created)
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


def join_by_browser(endpoint: str, show: Callable[[str, str], None], *, profile: str = "") -> Login:
    """Wait until the user lets this computer in by a browser anywhere, and store the login.

    `show` gets the address of the page and the code to type there.

    Raises
    ------
    ConflictError
        If people log in to this pool with tokens.
    ForbiddenError
        If the user refuses.
    NotFoundError
        If nobody types the code in time.
    """
    connection = PoolConnection(endpoint, None)
    try:
        device = connection.post(
            "/api/v1/devices", people.DeviceResponse, people.DeviceRequest(computer=_computer())
        )
        show(f"{endpoint}{device.verification_path}", device.user_code)
        request = people.DeviceTokenRequest(device_code=device.device_code)
        while True:
            time.sleep(device.interval)
            try:
                created = connection.post(
                    "/api/v1/devices/token", people.TokenCreatedResponse, request
                )
            except ConflictError as error:
                if error.code != "authorization_pending":
                    raise
            else:
                return _store(profile or profiles.host_of(endpoint), endpoint, created)
    finally:
        connection.close()


def _computer() -> str:
    """Return the name of this computer, as the pool spells names."""
    name = re.sub(r"[^a-z0-9._-]+", "-", platform.node().lower()).strip("._-")
    return name[:32] or "computer"


def _store(name: str, endpoint: str, created: people.TokenCreatedResponse) -> Login:
    profiles.store_profile(profiles.Profile(name, endpoint, created.secret))
    return Login(name, created.name, created.model_dump(mode="json", exclude={"secret"}))
