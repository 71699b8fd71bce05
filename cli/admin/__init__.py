"""``poolctl admin``: manage a pool, its sites and its people."""

from collections.abc import Sequence
from typing import Annotated, Any

from cli import server
from cli.admin import people, storage
from cli.admin.people import day
from cli.frame.errors import UsageError
from cli.frame.options import Argument, Option, YesOption, command, group
from cli.frame.output import Invocation, Reply, listing
from cli.frame.values import read_size
from pool_server.wire.people import SiteUsage
from site_agent.wording import size_words

# ``poolctl admin sites``.
sites_app = group("List, create, change, suspend sites (admin).")

SiteArgument = Annotated[str, Argument("As 'poolctl admin sites ls' shows it.", "SITE")]


@command(sites_app, "ls", "admin sites ls", "admin sites ls --usage")
def ls(
    invocation: Invocation,
    *,
    usage: Annotated[
        bool, Option("Show storage, users and tokens: of your site; pool admins see all.")
    ] = False,
) -> Reply:
    """List the sites of the pool."""
    with invocation.pool() as pool:
        if usage:
            return _list_usage(pool.sites.usage())
        sites = pool.sites.list()
    return listing(
        sites,
        ["site", "state", "name", "contact", "since"],
        lambda site: [
            site.name,
            "suspended" if site.suspended else "",
            site.display_name,
            site.contact,
            f"{site.created_at:%Y-%m-%d}",
        ],
        empty="no sites yet",
    )


def _list_usage(usages: Sequence[SiteUsage]) -> Reply:
    columns = ["site", "state", "size", "quota", "versions", "models", "uploading", "users"]
    columns += ["tokens", "last used"]
    return listing(
        usages,
        columns,
        lambda usage: [
            usage.site,
            "suspended" if usage.suspended else "",
            size_words(usage.size_bytes),
            "no limit" if usage.quota_bytes is None else size_words(usage.quota_bytes),
            str(usage.versions),
            str(usage.models),
            size_words(usage.uploading_bytes) if usage.uploading_bytes else "",
            str(usage.users),
            str(usage.tokens),
            day(usage.last_used_at) or "never",
        ],
    )


@command(
    sites_app,
    "create",
    'admin sites create infant-lab --display-name "Infant lab" --contact lab@example.org',
    "admin sites create adult-lab --quota 50GB",
)
def create(
    invocation: Invocation,
    name: Annotated[str, Argument("A short name for addresses: a-z, 0-9, '.', '_', '-'.", "SITE")],
    display_name: Annotated[str, Option("Its full name.")] = "",
    contact: Annotated[str, Option("Contact, for example an e-mail address.")] = "",
    quota: Annotated[
        str, Option("Limit of the site's files, for example 50GB. Default: no limit.", "SIZE")
    ] = "",
) -> Reply:
    """Create a site (pool admins only)."""
    quota_bytes = read_size(quota, "--quota") if quota else None
    with invocation.pool() as pool:
        site = pool.sites.create(
            name, display_name=display_name, contact=contact, quota_bytes=quota_bytes
        )
    text = (
        f"created site {site.name}; let its people in with: "
        f"poolctl admin people invite {site.name}, "
        f"or its machines with: poolctl admin people token {site.name} NAME"
    )
    return Reply(site, text, [site.name])


@command(
    sites_app,
    "change",
    "admin sites change infant-lab --contact models@lab.example",
    "admin sites change infant-lab --quota 50GB",
    "admin sites change infant-lab --suspend --yes",
)
def change(
    invocation: Invocation,
    name: SiteArgument,
    *,
    display_name: Annotated[str | None, Option("Its full name.")] = None,
    contact: Annotated[str | None, Option("Contact, for example an e-mail address.")] = None,
    quota: Annotated[
        str | None, Option("Limit of its files, for example 50GB; or 'none'.", "SIZE")
    ] = None,
    suspended: Annotated[
        bool | None,
        Option("Refuse all its tokens, or accept them again.", name="--suspend/--resume"),
    ] = None,
    yes: YesOption = False,
) -> Reply:
    """Change a site's name or contact (its admins), or its quota (pool admins only).

    A lower quota deletes nothing; it only refuses new files. While a site is suspended (pool admins
    only), its models stay, with the same sharing.
    """
    fields: dict[str, Any] = {
        "display_name": display_name,
        "contact": contact,
        "suspended": suspended,
    }
    changes = {field: value for field, value in fields.items() if value is not None}
    if quota is not None:
        changes["quota_bytes"] = None if quota == "none" else read_size(quota, "--quota")
    if not changes:
        raise UsageError("nothing to change: give --display-name, --contact, --quota or --suspend")
    if suspended:
        invocation.confirm(f"Suspend site {name} with all its tokens?", assume_yes=yes)
    with invocation.pool() as pool:
        site = pool.sites.change(name, **changes)
    return Reply(site, f"changed site {site.name}", [site.name])


app = group("Manage a pool: sites, people, tokens, quotas, backups.")
app.add_typer(sites_app, name="sites")
app.add_typer(people.app, name="people")
app.add_typer(storage.app)
app.add_typer(server.recover_app)
