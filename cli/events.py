"""``poolctl events``: what happened that concerns one's site."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.options import LongOption, command, single
from cli.frame.output import Invocation, Reply, listing
from cli.frame.quantities import age_words
from cli.frame.terminal import json_text, printable

if TYPE_CHECKING:
    from pool_server.wire.activity import EventResponse

app = single()


@command(
    app,
    "events",
    examples=[
        "events --limit 10",
        "events --kind version.flagged -q",
        "events --follow --after 42 --json",
        "events --feed --name newsreader",
    ],
)
def events(
    invocation: Invocation,
    *,
    after: Annotated[
        int, typer.Option(min=0, metavar="ID", help="Only events after this one.")
    ] = 0,
    kind: Annotated[
        str,
        typer.Option(metavar="KIND", help="Only events of this kind, for example version.flagged."),
    ] = "",
    site: Annotated[
        str, typer.Option(metavar="SITE", help="Events of another site (pool admins only).")
    ] = "",
    follow: Annotated[bool, typer.Option(help="Keep printing new events until Ctrl-C.")] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, metavar="N", help="Show at most the newest N events.")
    ] = 50,
    long: LongOption = False,
    feed: Annotated[
        bool,
        typer.Option(help="Make an address for feed readers (Atom) that shows these events."),
    ] = False,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="With --feed: a name for its token.")
    ] = "feed",
) -> Reply | None:
    """List events that concern your site: models downloaded, merged or withdrawn, rounds to join.

    Oldest first. With --follow, each new event is printed as a line; with --follow --json, as one
    JSON object.

    --feed prints an address that shows the events of your site to whoever has it, and nothing else;
    'poolctl admin tokens revoke' ends it. Only admins of the site can make one.
    """
    with invocation.pool() as pool:
        if feed:
            made = pool.tokens.create_for_feed(site or pool.whoami().site, name)
            address = pool.events.feed_address(made.secret)
            invocation.note("shown this once: whoever has the address reads the feed")
            return Reply({"address": address, "token": made}, address, [address])
        found = deque(pool.events.list(after, kind=kind, site=site), maxlen=limit)
        if follow:
            last = found[-1].event_id if found else after
            _print_lines(invocation, found)
            further = pool.events.list(last, kind=kind, site=site, follow=True)
            _print_lines(invocation, further)
            return None
    columns, empty = ["kind", "subject", "details"], "no events"
    if long:
        return listing(found, ["id", "at", *columns], _row, empty=empty)
    return listing(found, ["id", "age", *columns], _short_row, empty=empty, shortened="details")


def _print_lines(invocation: Invocation, events: Iterable[EventResponse]) -> None:
    conventions = invocation.conventions
    for event in events:
        if conventions.as_json:
            line = json_text(event.model_dump(mode="json"))
        elif conventions.quiet:
            line = str(event.event_id)
        else:
            line = printable("  ".join(_row(event)), sys.stdout)
        print(line, flush=True)


def _short_row(event: EventResponse) -> list[str]:
    number, _, *others = _row(event)
    return [number, age_words(event.at), *others]


def _row(event: EventResponse) -> list[str]:
    return [
        str(event.event_id),
        f"{event.at:%Y-%m-%d %H:%M}",
        event.kind,
        event.subject,
        _details(event),
    ]


def _details(event: EventResponse) -> str:
    """Return what an event says besides, in a line."""
    words = []
    for key, value in event.details.items():
        if isinstance(value, list):
            text = ", ".join(str(each) for each in value[:3])
            text += f" and {len(value) - 3} more" if len(value) > 3 else ""
        else:
            text = str(value)
        if text and key != "digest":
            words.append(f"{key}: {text}")
    return "; ".join(words)
