"""``poolctl admin roles``: what people and tokens may do."""

from __future__ import annotations

from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText

app = single()

_ROLES = {
    "viewer": "see and fetch what is shared with the site",
    "contributor": "also upload, share, merge, take part in rounds, post scores",
    "curator": "also decide what is published: the pool's curators for every site",
    "admin": "also look after users, invitations and tokens: the pool's admins of every site",
}


@command(app, "roles", examples=["admin roles"])
def roles(_invocation: Invocation) -> Reply:
    """Explain the roles, each of which includes the ones before it, and the scopes."""
    from pool_server.wire.sites import SCOPES

    table = TableText(["role", "may"], [[name, text] for name, text in _ROLES.items()])
    scopes = TableText(
        ["scope", "a token narrowed to it may"], [[name, text] for name, text in SCOPES.items()]
    )
    data = {"roles": _ROLES, "scopes": SCOPES}
    return Reply(data, [table, "", scopes], list(_ROLES))
