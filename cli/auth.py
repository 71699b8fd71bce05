"""``poolctl auth``: logging in to pools."""

import os
import sys
from getpass import getpass
from typing import Annotated, Any

from cli.admin.people import role_words
from cli.frame.errors import UsageError
from cli.frame.options import Argument, Option, command, group
from cli.frame.output import Invocation, Reply, TableText
from site_agent.pool import profiles
from site_agent.pool.storage_connection import pin_certificate

app = group("Log in, log out, show who you are.")


@command(
    app,
    "login",
    "auth login http://127.0.0.1:8710",
    "auth login https://pool.example.org --profile work --token-stdin < token.txt",
    "auth login https://pool.example.org --name ada",
    "auth login 'https://lab.example.org:8710#sha256=HEX'",
    "auth login https://pool.example.org --sign-on",
)
def login(
    invocation: Invocation,
    url: Annotated[str, Argument("The pool's address.", "URL")] = "",
    *,
    token_stdin: Annotated[
        bool, Option("Read the token or invitation from standard input.")
    ] = False,
    name: Annotated[str, Option("With an invitation: your user name at the site.", "NAME")] = "",
    display_name: Annotated[str, Option("With an invitation: your full name.")] = "",
    email: Annotated[
        str | None, Option("Your e-mail address. Default: the one in the invitation.")
    ] = None,
    sign_on: Annotated[
        bool, Option("Log in with your institute, by a browser on this or another computer.")
    ] = False,
) -> Reply:
    """Log in to a pool and make it the active one, with a token, an invitation or your institute.

    The token comes from --token-stdin, POOL_TOKEN or a prompt, in this order. An admin
    creates it with 'poolctl admin people token'. An invitation begins with invite_ and works once:
    it makes you a user of the site, with the user name of --name. The token is verified and stored
    in a file that only you can read. Without --profile the login is stored under the pool's host
    name. An address with #sha256= pins the pool's certificate: from then on no other proves it.
    With --sign-on you type a code on a page of the pool; this computer then gets a token in
    your name, in place of its earlier one, which holds as long as your log-in at the institute.
    """
    from site_agent.pool.joining import Newcomer, join, join_by_browser

    address = url or os.environ.get("POOL_ENDPOINT", "") or profiles.load_profile().endpoint
    if not address:
        raise UsageError("no pool given; give its address, for example http://127.0.0.1:8710")
    endpoint = pin_certificate(address)
    if sign_on:
        if name or token_stdin:
            raise UsageError("--sign-on goes without --name and --token-stdin")
        login = join_by_browser(
            endpoint,
            lambda page, code: invocation.note(f"open {page}, log in, and type {code}"),
            profile=invocation.profile,
        )
    else:
        # A newcomer has no token yet: that of the environment is another one.
        known = "" if name else os.environ.get("POOL_TOKEN", "")
        secret = _read_secret(known, from_stdin=token_stdin, endpoint=endpoint)
        newcomer = Newcomer(name, display_name, email) if name else None
        login = join(endpoint, secret, newcomer, profile=invocation.profile)
    data = {"profile": login.profile, "pool": endpoint, **login.facts}
    text = (
        f"logged in to {endpoint} as {login.facts['site']}/{login.token_name} "
        f"({login.facts['role']}); profile {login.profile}"
    )
    return Reply(data, f"welcome, {name}: {text}" if name else text, [login.profile])


def _read_secret(known: str, *, from_stdin: bool, endpoint: str) -> str:
    if from_stdin:
        secret = sys.stdin.readline()
    elif known:
        secret = known
    elif sys.stdin.isatty():
        secret = getpass(f"Token or invitation for {endpoint}: ", stream=sys.stderr)
    else:
        raise UsageError("no token: give it with --token-stdin, or in the variable POOL_TOKEN")
    secret = secret.strip()
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise UsageError("the token is empty or has invalid characters")
    return secret


@command(app, "logout", "auth logout", "auth logout --profile work")
def logout(invocation: Invocation) -> Reply:
    """Delete the stored token of a profile. The pool still accepts it.

    To invalidate the token itself, an admin runs 'poolctl admin people revoke'.
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
    stored = [profiles.load_profile(stored_name) for stored_name in names]
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
