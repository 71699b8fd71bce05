"""``poolctl events``: events that concern one's site."""

import json
import sys
from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cli.frame.options import LongOption, Option, command, single
from cli.frame.output import Invocation, Reply, TableText, listing
from cli.frame.terminal import json_text, printable
from cli.frame.values import read_moment
from site_agent.wording import age_words

if TYPE_CHECKING:
    from pool_server.wire.activity import AuditEntry, EventResponse


app = single()


@command(
    app,
    "events",
    "events --limit 10",
    "events --kind version.flagged -q",
    "events --follow --after 42 --json",
)
def events(
    invocation: Invocation,
    *,
    after: Annotated[int, Option("Only events after this one.", "ID", min=0)] = 0,
    kind: Annotated[
        str, Option("Only events of this kind, for example version.flagged.", "KIND")
    ] = "",
    site: Annotated[str, Option("Events of another site (pool admins only).", "SITE")] = "",
    follow: Annotated[bool, Option("Keep printing new events until Ctrl-C.")] = False,
    limit: Annotated[int, Option("Show at most the newest N events.", "N", min=1, max=10_000)] = 50,
    long: LongOption = False,
) -> Reply | None:
    """List events that concern your site: models downloaded, merged or withdrawn, rounds to join.

    Oldest first. With --follow, each new event is printed as a line; with --follow --json, as one
    JSON object.
    """
    with invocation.pool() as pool:
        newest = deque(pool.events.list(after, kind=kind, site=site), maxlen=limit)
        if follow:
            last = newest[-1].event_id if newest else after
            _print_lines(invocation, newest)
            further = pool.events.list(last, kind=kind, site=site, follow=True)
            _print_lines(invocation, further)
            return None
    columns, empty = ["kind", "subject", "details"], "no events"
    if long:
        return listing(newest, ["id", "at", *columns], _row, empty=empty)

    def short_row(event: "EventResponse") -> list[str]:
        number, _, *others = _row(event)
        return [number, age_words(event.at), *others]

    return listing(newest, ["id", "age", *columns], short_row, keep=columns, empty=empty)


def _print_lines(invocation: Invocation, events: "Iterable[EventResponse]") -> None:
    conventions = invocation.conventions
    for event in events:
        if conventions.as_json:
            line = json_text(event.model_dump(mode="json"))
        elif conventions.quiet:
            line = str(event.event_id)
        else:
            line = printable("  ".join(_row(event)), sys.stdout)
        print(line, flush=True)


def _row(event: "EventResponse") -> list[str]:
    return [
        str(event.event_id),
        f"{event.at:%Y-%m-%d %H:%M}",
        event.kind,
        event.subject,
        _details(event),
    ]


def _details(event: "EventResponse") -> str:
    """Return the details of an event in one line."""
    parts = []
    for key, value in event.details.items():
        if isinstance(value, list):
            text = ", ".join(str(item) for item in value[:3])
            text += f" and {len(value) - 3} more" if len(value) > 3 else ""
        else:
            text = str(value)
        if text and key != "digest":
            parts.append(f"{key}: {text}")
    return "; ".join(parts)


# ``poolctl audit``: the audit of the pool.
audit_app = single()


@command(
    audit_app,
    "audit",
    "audit --about site-a/face-68@2",
    "audit --kind version.withdraw --since 30d",
    "audit --site site-a --since 2026-03-01 --json",
)
def audit(
    invocation: Invocation,
    *,
    about: Annotated[
        str,
        Option(
            "A version ([SITE/]NAME@2), a model ([SITE/]NAME), or a whole site (SITE/).", "SUBJECT"
        ),
    ] = "",
    kind: Annotated[
        str, Option("An action such as version.withdraw, or a group such as version.", "KIND")
    ] = "",
    site: Annotated[
        str, Option("Only what this site did, or what was done to its objects.", "SITE")
    ] = "",
    since: Annotated[str, Option("Not before: 12h or 30d ago, or a date (UTC).", "SPAN|DATE")] = "",
    limit: Annotated[int, Option("Maximum number of lines.", "N", min=1, max=100_000)] = 50,
) -> Reply:
    """Show the audit, newest first. Several filters are combined.

    Pool admins see everything. Site admins see the actions of their site, and actions of others
    on its models, tokens and users.
    """
    subject = invocation.address(about) if about else ""
    with invocation.pool() as pool:
        entries = pool.events.audit(
            subject=subject.removeprefix("pool://"),
            action=kind,
            site=site,
            since=read_moment(since, "--since", datetime.now(UTC)) if since else None,
        )
        shown = invocation.first_of(entries, limit)
    table = TableText(
        ["at", "who", "action", "subject", "outcome", "details"],
        [_audit_row(entry) for entry in shown],
        empty="nothing was done",
        keep=("action", "subject", "who", "outcome"),
    )
    return Reply({"items": shown}, table, [str(entry.entry_id) for entry in shown])


def _audit_row(entry: "AuditEntry") -> list[str]:
    details = json.dumps(entry.details, ensure_ascii=False) if entry.details else ""
    return [
        f"{entry.at:%Y-%m-%d %H:%M:%S}",
        f"{entry.actor} ({entry.user})" if entry.user else entry.actor,
        entry.action,
        entry.subject,
        entry.outcome,
        details if len(details) <= 120 else f"{details[:117]}...",
    ]
