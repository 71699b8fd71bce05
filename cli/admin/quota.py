"""``poolctl admin quota``: how much a site may store."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.admin.sites import SiteArgument
from cli.frame.addresses import size_words
from cli.frame.options import command, group
from cli.frame.output import Invocation, Reply
from cli.frame.quantities import SIZE_UNITS, read_quantity

app = group("Say how many bytes the files of a site may take together.")


@command(
    app, "set", examples=["admin quota set infant-lab 50GB", "admin quota set infant-lab none"]
)
def set_quota(
    invocation: Invocation,
    name: SiteArgument,
    size: Annotated[
        str, typer.Argument(metavar="SIZE", help="For example 50GB; 'none' for no limit.")
    ],
) -> Reply:
    """Limit the bytes of a site's files (pool admins only); 'poolctl admin usage' shows them.

    What is there stays, even if it is more.
    """
    quota_bytes = None if size == "none" else int(read_quantity(size, SIZE_UNITS, "SIZE"))
    with invocation.pool() as pool:
        pool.sites.change(name, quota_bytes=quota_bytes)
    words = "no limit" if quota_bytes is None else f"at most {size_words(quota_bytes)}"
    return Reply({"site": name, "quota_bytes": quota_bytes}, f"site {name}: {words}", [name])
