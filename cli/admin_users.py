"""``poolctl admin users``: the people of a site."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cli.errors import UsageError
from cli.options import DryRunOption, YesOption, command, group
from cli.output import Invocation, Reply, TableText
from cli.tokens import day, role_words

app = group("List, change, disable and enable users.")

UserArgument = Annotated[
    str, typer.Argument(metavar="SITE/USER", help="As 'poolctl admin users ls' shows it.")
]


def read_user(word: str) -> tuple[str, str]:
    """Take ``SITE/USER`` apart.

    Raises
    ------
    UsageError
    """
    site, slash, user = word.partition("/")
    if not (site and slash and user) or "/" in user:
        raise UsageError(f"{word!r}: expected SITE/USER, for example infant-lab/ada")
    return site, user


@command(app, "ls", examples=["admin users ls"])
def ls(invocation: Invocation) -> Reply:
    """List the users of your site; of all sites, for the pool's admins."""
    with invocation.pool() as pool:
        users = pool.users()
    rows = [
        [
            f"{user.site}/{user.name}",
            role_words(user.role, pool_wide=user.pool_wide),
            user.display_name,
            user.email,
            day(user.created_at),
            f"disabled {day(user.disabled_at)}" if user.disabled_at else "",
        ]
        for user in users
    ]
    table = TableText(["user", "role", "name", "e-mail", "since", ""], rows, empty="no users yet")
    return Reply({"items": users}, table, [row[0] for row in rows])


@command(app, "change", examples=["admin users change infant-lab/ada --email ada@lab.example"])
def change(
    invocation: Invocation,
    user: UserArgument,
    display_name: Annotated[str | None, typer.Option(help="How people call her or him.")] = None,
    email: Annotated[str | None, typer.Option(help="For people; the pool writes none.")] = None,
) -> Reply:
    """Change name or e-mail; the role changes with 'poolctl admin roles set'."""
    site, name = read_user(user)
    given: dict[str, Any] = {"display_name": display_name, "email": email}
    changes = {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise UsageError("what is to change? Give --display-name or --email")
    with invocation.pool() as pool:
        changed = pool.change_user(site, name, **changes)
    return Reply(changed, f"changed user {user}", [user])


@command(app, "disable", examples=["admin users disable infant-lab/ada --yes"])
def disable(
    invocation: Invocation,
    user: UserArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> Reply:
    """Refuse a user with all tokens, from the next request on."""
    site, name = read_user(user)
    if dry_run:
        data = {"site": site, "name": name, "disabled": False}
        return Reply(data, f"would disable user {user}", [user])
    invocation.confirm(f"Disable user {user} with all tokens?", assume_yes=yes)
    with invocation.pool() as pool:
        changed = pool.change_user(site, name, disabled=True)
    return Reply(changed, f"disabled user {user}", [user])


@command(app, "enable", examples=["admin users enable infant-lab/ada"])
def enable(invocation: Invocation, user: UserArgument) -> Reply:
    """Let a disabled user in again, with the tokens that are still valid."""
    site, name = read_user(user)
    with invocation.pool() as pool:
        changed = pool.change_user(site, name, disabled=False)
    return Reply(changed, f"enabled user {user}", [user])
