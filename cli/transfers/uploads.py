"""``poolctl uploads``: what is on its way into the pool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.addresses import size_words
from cli.frame.errors import UsageError
from cli.frame.options import LimitOption, command, single
from cli.frame.output import Invocation, Reply, listing

if TYPE_CHECKING:
    from pool_server.wire.uploads import OpenUpload

app = single()

_UPLOAD_ID = re.compile(r"^[0-9a-f]{32}$")


@command(
    app,
    "uploads",
    examples=[
        "uploads",
        "uploads --site site-a --json",
        f"uploads --abort {'0123456789abcdef' * 2}",
    ],
)
def uploads(
    invocation: Invocation,
    *,
    site: Annotated[
        str,
        typer.Option(
            metavar="SITE", help="Uploads of this site. Default: your site; for pool admins, all."
        ),
    ] = "",
    abort: Annotated[
        Sequence[str],
        typer.Option(metavar="UPLOAD", help="Cancel this upload, delete its parts; repeatable."),
    ] = (),
    limit: LimitOption = 100,
) -> Reply:
    """List unfinished uploads of your site, newest first, or cancel some.

    To resume an upload, upload the same file to the same name again. Abandoned uploads are deleted
    at the time shown here. Finished uploads do not change.
    """
    for each in abort:
        if not _UPLOAD_ID.fullmatch(each):
            raise UsageError(f"--abort {each!r}: is not an upload; see 'poolctl uploads'")
    with invocation.pool() as pool:
        for each in abort:
            pool.uploads.abort(each)
        if abort:
            text = [f"cancelled upload {each}" for each in abort]
            return Reply({"aborted": abort}, text, abort)
        found = invocation.first_of(pool.uploads.list(site), limit)
    return listing(
        found,
        ["upload", "to", "file", "size", "state", "begun", "by", "deleted on"],
        _row,
        empty="no uploads under way",
    )


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
