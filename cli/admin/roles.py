"""``poolctl admin roles``: what people and tokens may."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from cli.admin.tokens import role_words
from cli.admin.users import UserArgument, read_user
from cli.frame.options import command, group
from cli.frame.output import Invocation, Reply, TableText

app = group("Say what roles and scopes mean, give a user a role.")

_ROLES = {
    "viewer": "see and fetch what is shared with the site",
    "contributor": "also upload, share, merge, take part in rounds, post scores",
    "curator": "also decide what is published: the pool's curators for every site",
    "admin": "also look after users, invitations and tokens: the pool's admins of every site",
}


@command(app, "ls", examples=["admin roles ls"])
def ls(_invocation: Invocation) -> Reply:
    """List the roles, each of which may all that the one before it may, and the scopes."""
    from pool_server.wire.people.sites import SCOPES

    roles = TableText(["role", "may"], [[name, text] for name, text in _ROLES.items()])
    scopes = TableText(
        ["scope", "a token narrowed to it may"], [[name, text] for name, text in SCOPES.items()]
    )
    data = {"roles": _ROLES, "scopes": SCOPES}
    return Reply(data, [roles, "", scopes], list(_ROLES))


@command(
    app,
    "set",
    examples=[
        "admin roles set infant-lab/ada curator",
        "admin roles set infant-lab/ada admin --pool-wide",
    ],
)
def set_role(
    invocation: Invocation,
    user: UserArgument,
    role: Annotated[
        Literal["viewer", "contributor", "curator", "admin"],
        typer.Argument(metavar="ROLE", help="viewer, contributor, curator or admin."),
    ],
    pool_wide: Annotated[
        bool | None,
        typer.Option(
            "--pool-wide/--own-site",
            help="For every site (pool admins give it), or for the user's own; as it was without.",
        ),
    ] = None,
) -> Reply:
    """Give a user a role; tokens of the user that may more are held to it at once."""
    site, name = read_user(user)
    changes: dict[str, Any] = {"role": role}
    if pool_wide is not None:
        changes["pool_wide"] = pool_wide
    with invocation.pool() as pool:
        changed = pool.users.change(site, name, **changes)
    words = role_words(changed.role, pool_wide=changed.pool_wide)
    return Reply(changed, f"user {user} is now {words}", [user])
