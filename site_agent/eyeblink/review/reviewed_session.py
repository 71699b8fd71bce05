"""Results after a review: blinks_reviewed.csv, and sessions with the reviewed blinks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from site_agent.errors import ReviewFolderError, ReviewOutdatedError, writing_to
from site_agent.eyeblink.batch.record import read_record
from site_agent.eyeblink.blinks.extents import extent_between
from site_agent.eyeblink.blinks.finding import Blink, blink_of_extent, smoothed_trace
from site_agent.eyeblink.outputs.registry import write_outputs
from site_agent.eyeblink.outputs.tables import BLINKS, blink_rows
from site_agent.eyeblink.review import actions, automatic_result
from site_agent.eyeblink.session import BlinkSession, summarise
from site_agent.eyeblink.session_folder import REVIEWED_FOLDER, find_output, study_folders
from site_agent.eyeblink.study import write_sessions_table
from site_agent.tables import Column, Table
from site_agent.work import Progress, no_progress

REVIEWED = Table(
    "blinks_reviewed", (*BLINKS.columns, Column("review_status")), BLINKS.title, BLINKS.key
)


def reviewed_blinks(
    result: automatic_result.AutomaticResult, state: actions.ReviewState
) -> tuple[Blink, ...]:
    """Return the reviewed blinks by onset.

    Blinks with new times are measured in the trace, and as, the others were.
    """
    automatic = {blink.number: blink for blink in result.session.blinks}
    return tuple(
        _reviewed(event, automatic.get(event.blink_id), result)
        for event in state.events
        if event.is_blink
    )


def _reviewed(
    event: actions.ReviewEvent, blink: Blink | None, result: automatic_result.AutomaticResult
) -> Blink:
    times_s = (event.onset_s, event.peak_s, event.offset_s)
    if blink is None:
        blink = _measured(event, result)
    elif times_s != (blink.onset_s, blink.peak_s, blink.offset_s):
        measured = _measured(event, result)
        blink = replace(
            measured,
            confidence=blink.confidence,
            cut=blink.cut,
            eyes=blink.eyes,
            lag_ms=blink.lag_ms,
        )
    return replace(blink, kind=event.kind, completeness=event.completeness)


BEFORE_ONSET_S = 0.2
"""Blinks are as deep as they fall from the median over this time."""


def _measured(event: actions.ReviewEvent, result: automatic_result.AutomaticResult) -> Blink:
    session, settings = result.session, result.session.settings.blinks
    trace = smoothed_trace(session.signal, settings)
    onset, peak = trace.nearest(event.onset_s), trace.nearest(event.peak_s)
    before = trace.ear[trace.nearest(event.onset_s - BEFORE_ONSET_S) : onset + 1]
    known = before[np.isfinite(before)]
    level_ear = float(np.median(known)) if len(known) else math.nan
    edges_s = (event.onset_s, event.offset_s)
    extent = extent_between(trace.timestamps_s, trace.ear, peak, level_ear, edges_s)
    blink = blink_of_extent(trace, extent, session.calibration, settings, event.blink_id)
    confidence = result.confidences.get(event.blink_id, math.nan)
    return replace(
        blink,
        onset_s=event.onset_s,
        peak_s=event.peak_s,
        offset_s=event.offset_s,
        confidence=confidence,
    )


def write_reviewed_blinks(
    result: automatic_result.AutomaticResult, state: actions.ReviewState, folder: Path
) -> None:
    """Write the table of `reviewed_blinks`, with their status."""
    path = folder / REVIEWED.file_name
    statuses = [event.status.value for event in state.events if event.is_blink]
    rows = zip(blink_rows(reviewed_blinks(result, state)), statuses, strict=True)
    with writing_to(path, ReviewFolderError):
        REVIEWED.write_csv(path, ([*row, status] for row, status in rows))


_COUNTS = ("blinks", "closures", "perclos_pct", "blinks_per_minute")


@dataclass(frozen=True)
class SessionReport:
    """The blinks of a session."""

    place: Path
    review: Mapping[str, int]
    summary: BlinkSession

    @property
    def review_words(self) -> str:
        counts = [f"{count} {status}" for status, count in self.review.items()]
        return ", ".join(counts) or "not reviewed"


def report_session(
    place: Path, *, reviewed: bool = False, progress: Progress = no_progress
) -> SessionReport:
    """Summarise a session; with `reviewed`, after its review.

    All outputs but the overlay are then written once more, into the folder ``reviewed`` in that of
    the session; the automatic ones stay as they are.
    """
    place = find_output(place, "blinks.csv")
    result = automatic_result.read_automatic_result(place)
    session, state = result.session, _review_of(result)
    if state is None:
        return SessionReport(place, {}, summarise(session, {}))
    counts = Counter(event.status for event in state.events)
    review = {status.value: counts[status] for status in actions.ReviewStatus if counts[status]}
    if not reviewed:
        return SessionReport(place, review, summarise(session, {}))
    open_numbers = {event.blink_id for event in state.events if event.awaits_review}
    candidates = zip(result.events[len(session.blinks) :], session.left_out, strict=True)
    left_out = tuple(candidate for event, candidate in candidates if event.blink_id in open_numbers)
    after = replace(session, blinks=reviewed_blinks(result, state), left_out=left_out)
    remarks = SessionReport(place, review, summarise(after, {})).review_words
    after = replace(after, warnings=(*after.warnings, f"these are the reviewed blinks: {remarks}"))
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
        summary = summaries.get(find_output(folder, "blinks.csv"))
        if summary is not None:
            counts = {name: getattr(summary, name) for name in _COUNTS}
            record = replace(record, summary={**record.summary, **counts})
        records.append(record)
    path = study / "sessions_reviewed.csv"
    write_sessions_table(path, records)
    return path


def _review_of(result: automatic_result.AutomaticResult) -> actions.ReviewState | None:
    log = result.review_folder / actions.LOG_NAME
    content = actions.read_log(log)
    if content.header is None:
        return None
    if content.header.result_sha256 != result.sha256:
        raise ReviewOutdatedError(
            f"{log}: the review belongs to another result: the analysis was repeated since. Repeat "
            f"it with the old settings, or move {log.parent} away and review again"
        )
    return actions.replay(result.events, [entry.action for entry in content.entries])
