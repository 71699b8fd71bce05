"""The results of a session, or of a study, with reviewed blinks in place of the automatic ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from site_agent.errors import ReviewOutdatedError
from site_agent.eyeblink.outputs.registry import write_outputs
from site_agent.eyeblink.review.automatic_result import AutomaticResult, read_automatic_result
from site_agent.eyeblink.review.correction_log import LOG_NAME, read_log
from site_agent.eyeblink.review.replay import ReviewState, ReviewStatus, replay
from site_agent.eyeblink.review.review_session import FOLDER_NAME as REVIEW_FOLDER
from site_agent.eyeblink.review.reviewed_blinks import reviewed_rows
from site_agent.eyeblink.session import BlinkSession, summarise
from site_agent.eyeblink.session_folder import REVIEWED_FOLDER, find_output, study_folders
from site_agent.eyeblink.session_reading import blinks_of_rows
from site_agent.eyeblink.study.record import read_record
from site_agent.eyeblink.study.tables import write_sessions_table

_COUNTS = ("blinks", "closures", "perclos_pct", "blinks_per_minute")
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class SessionReport:
    """The blinks of a session.

    Attributes
    ----------
    place : Path
        Its ``blinks.csv``.
    review : mapping of str to int
        How many blinks have each status of a review; empty without one.
    summary : BlinkSession
        Of the reviewed blinks where they were asked for and there are any; `files` are those that
        were written.
    """

    place: Path
    review: Mapping[str, int]
    summary: BlinkSession

    @property
    def review_words(self) -> str:
        counts = [f"{count} {status}" for status, count in self.review.items()]
        return ", ".join(counts) or "not reviewed"


def report_session(
    place: Path, *, reviewed: bool = False, progress: Progress | None = None
) -> SessionReport:
    """Summarise a session; with `reviewed`, after its review.

    All outputs but the overlay are then written once more, into the folder ``reviewed`` in that of
    the session; the automatic ones stay as they are.

    Raises
    ------
    ReviewOutdatedError
        The analysis was repeated since the review.
    StudyFolderError, ReviewFolderError, BlinkAnalysisError
    """
    place = find_output(place, "blinks.csv")
    result = read_automatic_result(place)
    session, state = result.session, _review_of(result)
    if state is None:
        return SessionReport(place, {}, summarise(session, {}))
    counts = Counter(event.status for event in state.events)
    review = {status.value: counts[status] for status in ReviewStatus if counts[status]}
    if not reviewed:
        return SessionReport(place, review, summarise(session, {}))
    after = replace(session, blinks=blinks_of_rows(reviewed_rows(result, state)))
    words = SessionReport(place, review, summarise(after, {})).review_words
    after = replace(after, warnings=(*after.warnings, f"these are the reviewed blinks: {words}"))
    root = place.parent
    for _ in after.names.folder.parts:
        root = root.parent
    written = write_outputs(after, root / REVIEWED_FOLDER, progress=progress)
    return SessionReport(place, review, summarise(after, written.files))


def write_reviewed_sessions(study: Path, reports: Sequence[SessionReport]) -> Path:
    """Write ``sessions_reviewed.csv`` of a study: its sessions as the reports have them."""
    summaries = {report.place: report.summary for report in reports}
    records = []
    for folder in study_folders(study):
        record = read_record(folder)
        found = summaries.get(find_output(folder, "blinks.csv"))
        if found is not None:
            counts = {name: getattr(found, name) for name in _COUNTS}
            record = replace(record, summary={**record.summary, **counts})
        records.append(record)
    path = study / "sessions_reviewed.csv"
    write_sessions_table(path, records)
    return path


def _review_of(result: AutomaticResult) -> ReviewState | None:
    log = result.folder / f"{result.prefix}{REVIEW_FOLDER}" / LOG_NAME
    content = read_log(log)
    if content.header is None:
        return None
    if content.header.blinks_sha256 != result.blinks_sha256:
        raise ReviewOutdatedError(
            f"{log}: the review belongs to another result: the analysis was repeated since. Repeat "
            "it with the old settings, or review again with --start-over"
        )
    return replay(result.events, [entry.action for entry in content.entries])
