"""``poolctl sites``: the sites of a pool."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import command, group
from cli.output import Invocation, Reply, TableText

app = group("List and create sites (admin).")


@command(app, "ls", examples=["sites ls"])
def ls(invocation: Invocation) -> Reply:
    """List the sites of the pool."""
    with invocation.pool() as pool:
        sites = pool.sites()
    rows = [
        [site.name, site.display_name, site.contact, f"{site.created_at:%Y-%m-%d}"]
        for site in sites
    ]
    table = TableText(["site", "name", "contact", "since"], rows, empty="no sites yet")
    return Reply({"items": sites}, table, [site.name for site in sites])


@command(
    app,
    "create",
    examples=['sites create infant-lab --display-name "Infant lab" --contact lab@example.org'],
)
def create(
    invocation: Invocation,
    name: Annotated[
        str, typer.Argument(metavar="SITE", help="a-z, 0-9, '.', '_', '-'; begins its addresses.")
    ],
    display_name: Annotated[str, typer.Option(help="How people call it.")] = "",
    contact: Annotated[str, typer.Option(help="Whom to ask.")] = "",
) -> Reply:
    """Create a site (pool admins only)."""
    with invocation.pool() as pool:
        site = pool.create_site(name, display_name=display_name, contact=contact)
    text = (
        f"created site {site.name}; give its people tokens with: "
        f"poolctl tokens create {site.name} NAME"
    )
    return Reply(site, text, [site.name])
