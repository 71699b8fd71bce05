"""``poolctl blink report``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.blink.inputs import SessionsArgument
from cli.frame.errors import InputMissingError
from cli.frame.options import command, single
from cli.frame.output import Invocation, Reply, TableText

if TYPE_CHECKING:
    from site_agent.eyeblink.review.reviewed_session import SessionReport

app = single()

ReviewedOption = Annotated[
    bool,
    typer.Option(help="Write report and tables with the reviewed blinks, beside the others."),
]


@command(
    app,
    "report",
    examples=["blink report study/", "blink report out/ --reviewed"],
)
def report(
    invocation: Invocation,
    places: SessionsArgument,
    *,
    reviewed: ReviewedOption = False,
) -> Reply:
    """Show the blinks of analysed sessions, and how far they are reviewed.

    With --reviewed, reviewed blinks take the place of the automatic ones: the folder 'reviewed' of
    a session gets its report and tables, and a study sessions_reviewed.csv beside sessions.csv. The
    automatic results do not change. Sessions without a review are counted as they are.
    """
    found: list[SessionReport] = []
    files: list[Path] = []
    for place in places:
        reports, written = report_place(invocation, place, reviewed=reviewed)
        found += reports
        files += written
    rows = [
        [
            str(each.place.parent),
            str(each.summary.blinks),
            str(each.summary.closures),
            f"{each.summary.blinks_per_minute:.1f}",
            each.review_words,
        ]
        for each in found
    ]
    items = [
        {"session": each.place.parent, "review": each.review, "summary": each.summary}
        for each in found
    ]
    table = TableText(["session", "blinks", "closures", "a minute", "review"], rows)
    lines = [f"written {path}" for path in files]
    return Reply({"items": items, "files": files}, [table, *lines], [row[0] for row in rows])


def report_place(
    invocation: Invocation, place: Path, *, reviewed: bool
) -> tuple[list[SessionReport], list[Path]]:
    """Return the reports of the sessions in a place, and what was written."""
    from site_agent.eyeblink.review.reviewed_session import report_session, write_reviewed_sessions
    from site_agent.eyeblink.session_folder import find_outputs, study_folders

    sessions = [place] if place.is_file() else find_outputs(place, "blinks.csv")
    if not sessions:
        raise InputMissingError(f"{place}: no results; expected those of poolctl blink")
    found = []
    for session in sessions:
        with invocation.progress(f"report {session.parent.name}") as progress:
            found.append(report_session(session, reviewed=reviewed, progress=progress))
    files = [each.summary.files["report"] for each in found if "report" in each.summary.files]
    if reviewed and study_folders(place):
        files.append(write_reviewed_sessions(place, found))
    return found, files
