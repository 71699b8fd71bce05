"""``poolctl audit``: what was done in the pool, by whom and when."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText
from cli.frame.quantities import read_moment

if TYPE_CHECKING:
    from pool_server.wire.activity import AuditEntry

app = single()


@command(
    app,
    "audit",
    examples=[
        "audit --about site-a/face-68@2",
        "audit --action version.withdraw --since 30d",
        "audit --actor site-a/laptop --since 2026-03-01 --json",
    ],
)
def audit(
    invocation: Invocation,
    *,
    about: Annotated[
        str,
        typer.Option(
            metavar="SUBJECT",
            help="A version ([SITE/]NAME@2), a model with its versions ([SITE/]NAME), or all "
            "of a site (SITE/).",
        ),
    ] = "",
    action: Annotated[
        str,
        typer.Option(
            metavar="ACTION", help="An action such as version.withdraw, or a group such as version."
        ),
    ] = "",
    actor: Annotated[
        str,
        typer.Option(metavar="SITE[/TOKEN|/USER]", help="Only what this site, token or user did."),
    ] = "",
    site: Annotated[
        str,
        typer.Option(
            metavar="SITE", help="Only what this site did, or what was done to its objects."
        ),
    ] = "",
    since: Annotated[
        str, typer.Option(metavar="SPAN|DATE", help="Not before: 12h or 30d ago, or a date (UTC).")
    ] = "",
    until: Annotated[
        str, typer.Option(metavar="SPAN|DATE", help="Not after: 1h ago, or a date (UTC).")
    ] = "",
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="N", help="Maximum number of lines.")
    ] = 50,
) -> Reply:
    """Show the audit, newest first. Several filters are combined.

    Pool admins see everything. Site admins see what their site did, and what others did to its
    models, tokens and users.
    """
    now = datetime.now(UTC)
    subject = invocation.address(about) if about else ""
    with invocation.pool() as pool:
        entries = pool.events.audit(
            subject=subject.removeprefix("pool://"),
            action=action,
            actor=actor,
            site=site,
            since=read_moment(since, "--since", now) if since else None,
            until=read_moment(until, "--until", now) if until else None,
        )
        found = invocation.first_of(entries, limit)
    table = TableText(
        ["at", "who", "action", "subject", "outcome", "details"],
        [_row(entry) for entry in found],
        empty="nothing was done",
    )
    return Reply({"items": found}, table, [str(entry.entry_id) for entry in found])


def _row(entry: AuditEntry) -> list[str]:
    details = json.dumps(entry.details, ensure_ascii=False) if entry.details else ""
    return [
        f"{entry.at:%Y-%m-%d %H:%M:%S}",
        f"{entry.actor} ({entry.user})" if entry.user else entry.actor,
        entry.action,
        entry.subject,
        entry.outcome,
        details if len(details) <= 120 else f"{details[:117]}...",
    ]
