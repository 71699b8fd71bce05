"""Results after a review: blinks_reviewed.csv, and sessions with the reviewed blinks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from site_agent.errors import ReviewFolderError, ReviewOutdatedError, writing_to
from site_agent.eyeblink.batch.record import read_record
from site_agent.eyeblink.blinks.extents import SHUT_SHARE
from site_agent.eyeblink.outputs.registry import write_outputs
from site_agent.eyeblink.records import Float64
from site_agent.eyeblink.review import actions, automatic_result
from site_agent.eyeblink.session import BlinkSession, summarise
from site_agent.eyeblink.session_folder import REVIEWED_FOLDER, find_output, study_folders
from site_agent.eyeblink.session_reading import blinks_of_rows
from site_agent.eyeblink.study import write_sessions_table
from site_agent.tables import Table, columns_of
from site_agent.work import Progress, no_progress

FILE_NAME = "blinks_reviewed.csv"
STATUS_COLUMN = "review_status"


def _row(event: actions.ReviewEvent, result: automatic_result.AutomaticResult) -> dict[str, str]:
    automatic = result.rows.get(event.blink_id)
    row = dict(automatic) if automatic is not None else dict.fromkeys(result.columns, "")
    row["blink_id"] = str(event.blink_id)
    row["kind"], row["completeness"] = event.kind, event.completeness
    names = ("onset_s", "peak_s", "offset_s")
    if automatic is None or any(getattr(event, name) != float(row[name]) for name in names):
        measured = _measures(event, result.frames)
        row.update((name, value) for name, value in measured.items() if name in row)
    row[STATUS_COLUMN] = event.status.value
    return row


def _measures(event: actions.ReviewEvent, frames: automatic_result.FrameColumns) -> dict[str, str]:
    onset, peak, offset = (
        frames.nearest(time_s) for time_s in (event.onset_s, event.peak_s, event.offset_s)
    )
    fec = frames.signals["fec"]
    closing = slice(onset, peak + 1)
    steps = np.diff(fec[closing]) / np.diff(frames.timestamps_s[closing])
    known = steps[np.isfinite(steps)]
    inside, depth = fec[onset : offset + 1], fec[peak] - fec[onset]

    def times_down(share: float) -> Float64:
        return frames.timestamps_s[onset + np.flatnonzero(inside >= fec[onset] + share * depth)]

    shut_s, half_s = times_down(SHUT_SHARE), times_down(0.5)
    return {
        "onset_s": f"{event.onset_s:.6f}",
        "peak_s": f"{event.peak_s:.6f}",
        "offset_s": f"{event.offset_s:.6f}",
        "onset_frame": str(onset),
        "peak_frame": str(peak),
        "offset_frame": str(offset),
        "shut_from_s": f"{shut_s[0]:.6f}" if len(shut_s) else "",
        "shut_until_s": f"{shut_s[-1]:.6f}" if len(shut_s) else "",
        "half_closed_ms": f"{np.ptp(half_s) * 1000.0:.1f}" if len(half_s) else "",
        "duration_ms": f"{event.duration_ms:.1f}",
        "closing_ms": f"{(event.peak_s - event.onset_s) * 1000.0:.1f}",
        "opening_ms": f"{(event.offset_s - event.peak_s) * 1000.0:.1f}",
        "amplitude_fec": _text(float(fec[peak] - fec[onset]), 4),
        "peak_fec": _text(float(fec[peak]), 4),
        "peak_velocity_fec_per_s": f"{known.max():.3f}" if len(known) else "",
    }


def _text(value: float, digits: int) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}f}"


def reviewed_rows(
    result: automatic_result.AutomaticResult, state: actions.ReviewState
) -> list[dict[str, str]]:
    """Return the rows of the blinks that are not deleted, by onset.

    Rows with unchanged times are those of blinks.csv. For the others, frames, times and sizes are
    measured in the unfiltered trace.
    """
    return [
        _row(event, result)
        for event in state.events
        if event.status is not actions.ReviewStatus.DELETED
    ]


def write_reviewed_blinks(
    result: automatic_result.AutomaticResult, state: actions.ReviewState, folder: Path
) -> Path:
    """Write the table of `reviewed_rows`, with their status."""
    path = folder / FILE_NAME
    # The columns of blinks.csv as it was written, which may be older than this program.
    table = Table("blinks_reviewed", columns_of((*result.columns, STATUS_COLUMN)))
    rows = reviewed_rows(result, state)
    with writing_to(path, ReviewFolderError):
        table.write_csv(path, ([row[name] for name in table.header] for row in rows))
    return path


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
    after = replace(session, blinks=blinks_of_rows(reviewed_rows(result, state)))
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
    if content.header.blinks_sha256 != result.blinks_sha256:
        raise ReviewOutdatedError(
            f"{log}: the review belongs to another result: the analysis was repeated since. Repeat "
            f"it with the old settings, or move {log.parent} away and review again"
        )
    return actions.replay(result.events, [entry.action for entry in content.entries])
