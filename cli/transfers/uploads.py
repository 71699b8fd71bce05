"""``poolctl uploads``: what is on its way into the pool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.addresses import size_words
from cli.frame.errors import UsageError
from cli.frame.options import LimitOption, command, group
from cli.frame.output import Invocation, Reply, listing

if TYPE_CHECKING:
    from pool_server.wire.uploads import OpenUpload

app = group("List unfinished uploads, and cancel them.")

_UPLOAD_ID = re.compile(r"^[0-9a-f]{32}$")


@command(app, "ls", examples=["uploads ls", "uploads ls --site site-a --json"])
def ls(
    invocation: Invocation,
    *,
    site: Annotated[
        str,
        typer.Option(
            metavar="SITE", help="Uploads of this site. Default: your site; for pool admins, all."
        ),
    ] = "",
    limit: LimitOption = 100,
) -> Reply:
    """List unfinished uploads of your site, newest first.

    To resume an upload, upload the same file to the same name again. Abandoned uploads are deleted
    at the time shown here.
    """
    with invocation.pool() as pool:
        found = invocation.first_of(pool.uploads.list(site), limit)
    return listing(
        found,
        ["upload", "to", "file", "size", "state", "begun", "by", "cleared away"],
        _row,
        empty="no uploads under way",
    )


@command(app, "abort", examples=["uploads abort 0123456789abcdef0123456789abcdef"])
def abort(
    invocation: Invocation,
    uploads: Annotated[
        list[str], typer.Argument(metavar="UPLOAD...", help="As 'poolctl uploads ls' shows it.")
    ],
) -> Reply:
    """Cancel uploads and delete the parts that arrived. Finished uploads do not change."""
    for each in uploads:
        if not _UPLOAD_ID.fullmatch(each):
            raise UsageError(f"{each!r} is not an upload; see 'poolctl uploads ls'")
    with invocation.pool() as pool:
        for each in uploads:
            pool.uploads.abort(each)
    return Reply({"aborted": uploads}, [f"upload {each} is ended" for each in uploads], uploads)


def _row(found: OpenUpload) -> list[str]:
    to = f"{found.site}/{found.name}" if found.purpose == "version" else f"round {found.name}"
    return [
        found.upload_id,
        to,
        found.file_name,
        size_words(found.size_bytes),
        found.state,
        f"{found.created_at:%Y-%m-%d %H:%M}",
        found.created_by,
        f"{found.expires_at:%Y-%m-%d %H:%M}",
    ]
