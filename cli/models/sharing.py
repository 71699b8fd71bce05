"""``poolctl models share|usage``: who sees a model and what for, and who has used it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import UsageError
from cli.frame.options import DryRunOption, command, single
from cli.frame.output import Invocation, Reply, TableText, listing
from cli.options.versions import VisibilityOption

if TYPE_CHECKING:
    from pool_server.wire.models import SharingResponse

app = single()

EXPORTED = "versions.exported"
USES = ("version.downloaded", "version.merged", "version.handed-on", EXPORTED)
_RIGHTS = ("see", "download", "merge", "redistribute")
_AUDIENCES = {
    "private": "its own site only",
    "sites": "the sites that are listed",
    "consortium": "all sites of the pool",
}


@command(
    app,
    "share",
    examples=[
        "models share site-a/face-68",
        "models share site-a/face-68 --visibility private",
        "models share site-a/face-68 --with site-b --with site-c=see,download",
        "models share site-a/face-68 --visibility consortium --rights download",
    ],
)
def share(
    invocation: Invocation,
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="[SITE/]NAME of your site.")],
    *,
    visibility: VisibilityOption = None,
    with_site: Annotated[
        Sequence[str],
        typer.Option(
            "--with",
            metavar="SITE[=RIGHTS]",
            help="Share with this site; repeatable. Other sites see nothing.",
        ),
    ] = (),
    rights: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Rights of everyone who sees it: download, merge, redistribute; '' for none.",
        ),
    ] = None,
    dry_run: DryRunOption = False,
) -> Reply:
    """Set who sees a model and what they may do with it; without options, show it.

    The new settings replace the old ones. The rights are see, download, merge and redistribute
    (pass on copies); every right includes see.
    """
    listed = dict(_read_site(word) for word in with_site)
    wanted = visibility or ("sites" if listed else None)
    if wanted is None and rights is not None:
        raise UsageError("--rights needs --visibility or --with")
    if listed and wanted != "sites":
        raise UsageError(f"--with lists sites, which goes with --visibility sites, not {wanted}")
    granted = None if rights is None else _read_rights(rights, "--rights")
    if dry_run and wanted is not None:
        data = {"visibility": wanted, "rights": granted, "sites": listed, "shared": False}
        return Reply(data, f"would share {address} with {_AUDIENCES[wanted]}", [address])
    with invocation.pool() as pool:
        if wanted is None:
            return _describe(pool.models.sharing(address))
        return _describe(pool.models.share(address, wanted, rights=granted, sites=listed))


@command(app, "usage", examples=["models usage site-a/face-68", "models usage site-a/face-68@2"])
def usage(
    invocation: Invocation,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="[SITE/]NAME[@VERSION] of your site.")
    ],
) -> Reply:
    """List the sites that downloaded, merged or handed on a model of your site, newest first.

    Each site's first download of a version is listed. Of results that you may not see, only the
    digest is shown.
    """
    with invocation.pool() as pool:
        where = pool.address(address)
        start = f"pool://{where.site}/{where.name}@"
        pool.models.sharing(where)  # refuses a model that is not there
        wanted = pool.version(where).address if where.reference else ""
        site = "" if pool.whoami().site == where.site else where.site
        found = [
            {
                "version": version,
                "use": event.kind.partition(".")[2],
                "by": event.subject if event.kind == EXPORTED else event.details["by"],
                "result": event.details.get("into") or event.details.get("as") or "",
                "at": event.at,
            }
            for kind in USES
            for event in pool.events.list(kind=kind, site=site)
            for version in event.details.get("addresses", [event.subject])
            if version == wanted or (not wanted and version.startswith(start))
        ]
    found.sort(key=lambda each: each["at"], reverse=True)
    return listing(
        found,
        ["version", "use", "by", "on", "result"],
        lambda each: [
            each["version"], each["use"], each["by"], f"{each['at']:%Y-%m-%d}", each["result"],
        ],
        empty=f"no other site has used {address}",
    )  # fmt: skip


def _describe(sharing: SharingResponse) -> Reply:
    rows = [["seen by", _AUDIENCES[sharing.visibility]]]
    if sharing.visibility == "consortium":
        rows.append(["they may", _words(sharing.rights)])
    rows += [[each.site, _words(each.rights or ())] for each in sharing.sites]
    rows.append(["you may", _words(sharing.your_rights)])
    return Reply(sharing, TableText([sharing.address, ""], rows), [sharing.address])


def _words(rights: Sequence[str]) -> str:
    return ", ".join(rights) or "nothing"


def _read_site(word: str) -> tuple[str, list[str] | None]:
    """Take ``SITE`` or ``SITE=RIGHTS`` apart."""
    site, equals, rights = word.partition("=")
    if not site:
        raise UsageError(f"--with {word!r}: expected SITE or SITE=RIGHTS")
    return site, _read_rights(rights, f"--with {word!r}") if equals else None


def _read_rights(text: str, option: str) -> list[str]:
    rights = [word.strip() for word in text.split(",") if word.strip()]
    for right in rights:
        if right not in _RIGHTS:
            raise UsageError(
                f"{option}: {right!r} is not a right; expected some of {', '.join(_RIGHTS)}"
            )
    return rights
