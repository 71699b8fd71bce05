"""``poolctl admin recover``: run on the pool's own machine, without a token."""

from __future__ import annotations

import typer

from cli.admin.db import DatabaseOptions
from cli.frame.options import command
from cli.frame.output import Invocation, Reply, TableText

# Part of the group `admin`, which has the help.
app = typer.Typer()


@command(
    app,
    "recover",
    examples=[
        "admin recover --data /srv/pool",
        "admin recover --config /etc/poolctl.toml --json",
    ],
)
def recover(
    invocation: Invocation,
    *,
    database: DatabaseOptions,
) -> Reply:
    """Create a new admin token, on the pool's own machine, when the old one is lost.

    Needs no token, only the pool's database: that of the options, or of the pool's settings
    (POOL_SERVER_...). The secret is shown only once, and the audit records it. The pool may keep
    serving. Existing tokens stay valid until they are revoked.
    """
    from pool_server.operations.maintenance import make_admin_token

    settings = database.settings_of_pool()
    made = make_admin_token(settings)
    rows = [
        ["database", settings.database_place],
        ["token", f"{made.site}/{made.name}"],
        ["secret", f"{made.secret}  (shown this once)"],
    ]
    invocation.note("log in with it: poolctl auth login URL")
    invocation.note(
        "then revoke the lost token: poolctl admin tokens ls, poolctl admin tokens revoke"
    )
    return Reply(
        {"database": settings.database_place, "token": made},
        TableText(["what", "value"], rows),
        [made.secret],
    )
