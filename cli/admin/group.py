"""``poolctl admin``: looking after a pool, its sites and its people.

Each noun has a module of its own; a new one is a new file and one line here.
"""

from __future__ import annotations

from cli.admin import invitations, recover, roles, sites, storage, tokens, users
from cli.admin.tokens import day
from cli.frame.addresses import size_words
from cli.frame.options import command, group
from cli.frame.output import Invocation, Reply, listing

app = group("Manage a pool: sites, people, tokens, quotas, backups.")
app.add_typer(sites.app, name="sites")
app.add_typer(users.app, name="users")
app.add_typer(invitations.app, name="invitations")
app.add_typer(tokens.app, name="tokens")
app.add_typer(roles.app)
app.add_typer(storage.app)
app.add_typer(recover.app)


@command(app, "usage", examples=["admin usage", "admin usage --json"])
def usage(invocation: Invocation) -> Reply:
    """Show your site's storage, users and tokens. Pool admins see all sites."""
    with invocation.pool() as pool:
        found = pool.sites.usage()
    return listing(
        found,
        [
            "site",
            "models",
            "versions",
            "size",
            "uploading",
            "quota",
            "users",
            "tokens",
            "last used",
            "",
        ],
        lambda each: [
            each.site,
            str(each.models),
            str(each.versions),
            size_words(each.size_bytes),
            size_words(each.uploading_bytes) if each.uploading_bytes else "",
            "no limit" if each.quota_bytes is None else size_words(each.quota_bytes),
            str(each.users),
            str(each.tokens),
            day(each.last_used_at) or "never",
            "suspended" if each.suspended else "",
        ],
    )
