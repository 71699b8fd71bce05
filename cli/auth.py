"""``poolctl auth``: logging in to pools."""

import os
import sys
from typing import Annotated, Any

from cli.admin.tokens import role_words
from cli.frame.errors import UsageError
from cli.frame.options import Argument, Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from site_agent.errors import NotLoggedInError
from site_agent.pool import profiles

app = group("Log in, log out, show who you are.")


@command(
    app,
    "login",
    "auth login http://127.0.0.1:8710",
    "auth login https://pool.example.org --profile work --token-stdin < token.txt",
)
def login(
    invocation: Invocation,
    url: Annotated[str, Argument("The pool's address.", "URL")] = "",
    token: Annotated[
        str,
        Option("The token; other users of this machine can see it in the process list.", "TOKEN"),
    ] = "",
    token_stdin: Annotated[bool, Option("Read the token from standard input.")] = False,
) -> Reply:
    """Log in to a pool and make it the active one.

    The token comes from --token-stdin, --token, POOL_TOKEN or a prompt, in this order. An admin
    creates it with 'poolctl admin tokens create'; with an invitation use 'poolctl auth
    accept-invitation' instead. The token is verified and stored in a file that only you can read.
    Without --profile the login is stored under the pool's host name.
    """
    from site_agent.pool.client import PoolClient

    address = url or os.environ.get("POOL_ENDPOINT", "") or profiles.load_profile().endpoint
    if not address:
        raise UsageError("no pool given; give its address, for example http://127.0.0.1:8710")
    endpoint = profiles.normalise_endpoint(address)
    secret = _token(token, from_stdin=token_stdin, endpoint=endpoint)
    with PoolClient(endpoint, secret) as pool:
        try:
            identity = pool.whoami()
        except NotLoggedInError as error:
            raise NotLoggedInError(
                f"{endpoint} does not accept this token: {error}",
                hint="was it copied whole, is it a token of this pool? An admin makes a new one: "
                "poolctl admin tokens create SITE NAME",
                code=error.code,
            ) from error
    name = invocation.profile or profiles.host_of(endpoint)
    profiles.store_profile(profiles.Profile(name, endpoint, secret))
    data = {"profile": name, "pool": endpoint, **identity.model_dump(mode="json")}
    text = f"logged in to {endpoint} as {identity.site}/{identity.token_name} ({identity.role})"
    return Reply(data, f"{text}; profile {name}", [name])


@command(
    app,
    "accept-invitation",
    "auth accept-invitation https://pool.example.org --name ada",
    "auth accept-invitation https://pool.example.org --name ada --invitation-stdin < file",
)
def accept(
    invocation: Invocation,
    url: Annotated[str, Argument("The pool's address.", "URL")],
    *,
    name: Annotated[str, Option("Your user name at the site.", "NAME")],
    display_name: Annotated[str, Option("Your full name.")] = "",
    email: Annotated[
        str | None, Option("Your e-mail address. Default: the one in the invitation.")
    ] = None,
    token_name: Annotated[
        str, Option("A name for your first token. Default: your user name.", "NAME")
    ] = "",
    invitation_stdin: Annotated[bool, Option("Read the invitation from standard input.")] = False,
) -> Reply:
    """Become a user of the site that invited you, and log in.

    The command asks for the invitation, which begins with invite_, or reads it from standard input.
    An invitation works once. Your token is stored in a file that only you can read.
    """
    from site_agent.pool.resources.administration import accept_invitation

    endpoint = profiles.normalise_endpoint(url)
    secret = _invitation(from_stdin=invitation_stdin, endpoint=endpoint)
    token = accept_invitation(
        endpoint,
        secret,
        name,
        display_name=display_name,
        email=email,
        token_name=token_name or None,
    )
    profile = invocation.profile or profiles.host_of(endpoint)
    profiles.store_profile(profiles.Profile(profile, endpoint, token.secret))
    kept = token.model_dump(mode="json", exclude={"secret"})
    data = {"profile": profile, "pool": endpoint, **kept}
    text = f"welcome to {token.site}, {name}: logged in to {endpoint} ({token.role})"
    return Reply(data, f"{text}; profile {profile}", [profile])


def _token(option: str, *, from_stdin: bool, endpoint: str) -> str:
    if from_stdin:
        secret = sys.stdin.readline()
    elif option or os.environ.get("POOL_TOKEN"):
        secret = option or os.environ["POOL_TOKEN"]
    elif sys.stdin.isatty():
        from getpass import getpass

        secret = getpass(f"Token for {endpoint}: ", stream=sys.stderr)
    else:
        raise UsageError("no token: give it with --token-stdin, or in the variable POOL_TOKEN")
    return _clean(secret, "token")


def _invitation(*, from_stdin: bool, endpoint: str) -> str:
    if from_stdin:
        return _clean(sys.stdin.readline(), "invitation")
    if not sys.stdin.isatty():
        raise UsageError("no invitation: give it with --invitation-stdin")
    from getpass import getpass

    return _clean(getpass(f"Invitation to {endpoint}: ", stream=sys.stderr), "invitation")


def _clean(text: str, what: str) -> str:
    secret = text.strip()
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise UsageError(f"the {what} is empty or has invalid characters")
    return secret


@command(app, "logout", "auth logout", "auth logout --profile work")
def logout(invocation: Invocation) -> Reply:
    """Delete the stored token of a profile. The pool still accepts it.

    To invalidate the token itself, an admin runs 'poolctl admin tokens revoke'.
    """
    name = profiles.load_profile(invocation.profile or None).name
    was_there = profiles.forget_token(name)
    text = f"forgot the token of profile {name}" if was_there else "was not logged in"
    return Reply({"profile": name, "was_logged_in": was_there}, text, [name])


@command(app, "whoami", "auth whoami", "auth whoami --json")
def whoami(invocation: Invocation) -> Reply:
    """Show the site, user and role of your login."""
    with invocation.pool() as pool:
        identity = pool.whoami()
        endpoint = pool.endpoint
    data: dict[str, Any] = {"pool": endpoint, **identity.model_dump(mode="json")}
    expiry = f", until {identity.expires_at:%Y-%m-%d}" if identity.expires_at else ""
    role = role_words(identity.role, pool_wide=identity.pool_wide)
    scopes = "" if identity.scopes is None else f", only {' '.join(identity.scopes) or 'nothing'}"
    user = f", user {identity.user}" if identity.user else ""
    text = f"{identity.site}/{identity.token_name} ({role}{scopes}{user}{expiry}) at {endpoint}"
    return Reply(data, text, [f"{identity.site}/{identity.token_name}"])


@command(app, "switch", "auth switch", "auth switch work")
def switch(
    _invocation: Invocation,
    name: Annotated[str, Argument("A stored login. Default: list them.", "PROFILE")] = "",
) -> Reply:
    """Make another stored login the active one, or list all."""
    if name:
        profile = profiles.switch_profile(name)
        data = {"profile": profile.name, "pool": profile.endpoint}
        return Reply(data, f"now using {profile.name} ({profile.endpoint})", [profile.name])
    names, active = profiles.profile_names()
    stored = [profiles.load_profile(each) for each in names]
    rows = [
        [
            "*" if profile.name == active else "",
            profile.name,
            profile.endpoint,
            "logged in" if profile.token else "logged out",
        ]
        for profile in stored
    ]
    table = TableText(["", "profile", "pool", "state"], rows, empty="no logins are stored")
    return Reply({"profiles": names, "active": active or None}, table, names)
