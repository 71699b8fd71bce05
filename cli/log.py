"""``poolctl log``: events that concern one's site, and the audit of the pool."""

import json
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from cli.frame.options import Argument, Option, command, single
from cli.frame.output import Invocation, Reply, listing
from cli.frame.values import read_moment
from site_agent.wording import age_words

if TYPE_CHECKING:
    from pool_server.wire.activity import AuditEntry, EventResponse


app = single()


@command(
    app,
    "log",
    "log --limit 10",
    "log --kind version.flagged -q",
    "log site-a/face-68@2 --audit",
    "log --audit --kind version.withdraw --since 30d",
)
def show_log(
    invocation: Invocation,
    about: Annotated[
        str,
        Argument(
            "Only of a version ([SITE/]NAME@2), a model ([SITE/]NAME), or a site (SITE/).",
            "[SUBJECT]",
        ),
    ] = "",
    *,
    audit: Annotated[
        bool, Option("Show what was done in the pool, newest first (admins only).")
    ] = False,
    kind: Annotated[
        str,
        Option("An event such as version.flagged; of the audit, also a group: version.", "KIND"),
    ] = "",
    site: Annotated[
        str, Option("Another site (pool admins only); of the audit, also its objects.", "SITE")
    ] = "",
    since: Annotated[str, Option("Not before: 12h or 30d ago, or a date (UTC).", "SPAN|DATE")] = "",
    limit: Annotated[int, Option("Show at most the newest N.", "N", min=1, max=100_000)] = 50,
) -> Reply:
    """List events that concern your site: models downloaded, merged or withdrawn, rounds to join.

    Oldest first. With --audit, pool admins see everything that was done, and site admins the
    actions of their site, and actions of others on its models, tokens and users. Several filters
    are combined.
    """
    subject = invocation.address(about).removeprefix("pool://") if about else ""
    earliest = read_moment(since, "--since", datetime.now(UTC)) if since else None
    if audit:
        with invocation.pool() as pool:
            entries = pool.events.audit(subject=subject, action=kind, site=site, since=earliest)
            shown = invocation.first_of(entries, limit)
        columns = ["at", "action", "subject", "who", "outcome", "details"]
        reply = listing(shown, columns, _audit_row, empty="nothing was done")
        return replace(reply, identifiers=[str(entry.entry_id) for entry in shown])

    with invocation.pool() as pool:
        matching = (
            event
            for event in pool.events.list(0, kind=kind, site=site)
            if event.subject.removeprefix("pool://").startswith(subject)
            and (earliest is None or event.at >= earliest)
        )
        newest = deque(matching, maxlen=limit)
    return listing(newest, ["id", "kind", "subject", "details", "age"], _row, empty="no events")


def _row(event: "EventResponse") -> list[str]:
    details, age = _details(event), age_words(event.at)
    return [str(event.event_id), event.kind, event.subject, details, age]


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


def _audit_row(entry: "AuditEntry") -> list[str]:
    details = json.dumps(entry.details, ensure_ascii=False) if entry.details else ""
    return [
        f"{entry.at:%Y-%m-%d %H:%M:%S}",
        entry.action,
        entry.subject,
        f"{entry.actor} ({entry.user})" if entry.user else entry.actor,
        entry.outcome,
        details if len(details) <= 120 else f"{details[:117]}...",
    ]
