"""Results before and after a review.

The files of an analysis are read and never changed; ``blinks_reviewed.csv`` and sessions with the
reviewed blinks are written next to them.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from aggregators.formats import file_digest
from site_agent.errors import (
    ReviewFolderError,
    ReviewOutdatedError,
    StudyFolderError,
    TableFileError,
    writing_to,
)
from site_agent.eyeblink.batch.record import SessionRecord, read_record
from site_agent.eyeblink.blinks.extents import extent_between, measure_extent
from site_agent.eyeblink.blinks.finding import (
    Blink,
    Completeness,
    LeftOut,
    blink_of_extent,
    smoothed_trace,
)
from site_agent.eyeblink.outputs.registry import write_outputs
from site_agent.eyeblink.outputs.tables import BLINKS, blink_rows
from site_agent.eyeblink.records import EyeTrace, Float64
from site_agent.eyeblink.review import actions
from site_agent.eyeblink.review.actions import Add, ReviewEvent, ReviewStatus
from site_agent.eyeblink.session import AnalysedSession, BlinkSession, summarise
from site_agent.eyeblink.session_folder import (
    REVIEW_FOLDER,
    REVIEWED_FOLDER,
    SourceFile,
    find_output,
    study_folders,
)
from site_agent.eyeblink.session_reading import read_session
from site_agent.eyeblink.study import write_sessions_table
from site_agent.plain_json import json_bytes
from site_agent.tables import Column, Table
from site_agent.text_tables import read_table
from site_agent.training_record import recall_place
from site_agent.work import Progress, no_progress


@dataclass(frozen=True, eq=False)
class AutomaticResult:
    """The result of an analysis."""

    folder: Path
    session: AnalysedSession
    events: tuple[ReviewEvent, ...]
    """The blinks, then the candidates that were left out."""
    sha256: str
    """Digest of the events, to which corrections refer by number."""

    @property
    def frames(self) -> EyeTrace:
        return self.session.trace

    @cached_property
    def signals(self) -> Mapping[str, Float64]:
        """EAR, FEC and confidence of each frame by column of frames.csv; NaN where not known."""
        trace, session = self.session.trace, self.session
        return {
            "ear": trace.ear,
            "ear_left": trace.ear_left,
            "ear_right": trace.ear_right,
            "fec": session.fec(),
            "fec_left": session.fec_left(),
            "fec_right": session.fec_right(),
            "confidence": trace.confidence,
        }

    @cached_property
    def confidences(self) -> Mapping[int, float]:
        """The probability of each event to be a blink or closure, by number."""
        values = [blink.confidence for blink in self.session.blinks]
        values += [candidate.confidence for candidate in self.session.left_out]
        return dict(zip([event.blink_id for event in self.events], values, strict=True))

    @property
    def review_folder(self) -> Path:
        """The folder of the review, whether or not there is one."""
        return self.folder / REVIEW_FOLDER

    def source(self, role: str) -> SourceFile | None:
        """Return the provenance's entry for the video, the trace or a model."""
        return next((source for source in self.session.sources if source.role == role), None)


def read_automatic_result(place: Path | str) -> AutomaticResult:
    """Read the results of ``poolctl blink`` from a folder."""
    blinks_file = _find_blinks(Path(place))
    try:
        session = read_session(blinks_file)
    except (StudyFolderError, TableFileError) as error:
        raise ReviewFolderError(str(error)) from error
    return AutomaticResult(
        folder=blinks_file.parent,
        session=session,
        events=(*map(_event, session.blinks), *_candidates(session)),
        sha256=_events_digest(blinks_file, session.left_out),
    )


def _events_digest(blinks_file: Path, left_out: Sequence[LeftOut]) -> str:
    candidates = json_bytes([asdict(event) for event in left_out]) if left_out else b""
    content = blinks_file.read_bytes() + candidates
    return hashlib.sha256(content).hexdigest()


def _find_blinks(path: Path) -> Path:
    if not path.exists():
        raise ReviewFolderError(f"{path}: no such folder; expected the results of poolctl blink")
    try:
        return find_output(path, "blinks.csv")
    except StudyFolderError as error:
        raise ReviewFolderError(str(error)) from error


def _event(blink: Blink) -> ReviewEvent:
    times_s = (blink.onset_s, blink.peak_s, blink.offset_s)
    return ReviewEvent(blink.number, blink.kind, *times_s, blink.completeness)


def _candidates(session: AnalysedSession) -> Iterator[ReviewEvent]:
    """Number the events that the analysis left out: it may have missed some."""
    trace, fec = session.trace, np.nan_to_num(session.fec(), nan=-np.inf)
    first = max((blink.number for blink in session.blinks), default=0) + 1
    for number, event in enumerate(session.left_out, first):
        onset, offset = trace.nearest(event.onset_s), trace.nearest(event.offset_s)
        peak = onset + int(np.argmax(fec[onset : offset + 1]))
        peak_s = float(np.clip(trace.timestamps_s[peak], event.onset_s, event.offset_s))
        times_s, completeness = (
            (event.onset_s, peak_s, event.offset_s),
            _completeness(session, peak),
        )
        yield ReviewEvent(number, event.kind, *times_s, completeness, ReviewStatus.LEFT_OUT)


def find_model(place: Path | str, role: str) -> Path | str | None:
    """Return the model of an analysis: its file here, else its address in the pool.

    A local file is found where it was used, next to the results, or in the current folder, by its
    digest. None if the analysis had no model of its own in this role.

    Raises `ReviewOutdatedError`: the file is at none of these places.
    """
    result = read_automatic_result(place)
    source = result.source(role)
    if source is None or source.sha256 is None or source.address is not None:
        return None if source is None else source.address
    folder = result.folder.absolute()
    used = recall_place(source.sha256)
    places = [parent / source.name for parent in (folder, folder.parent, Path().absolute())]
    for path in [*([used] if used else []), *places]:
        if path.is_file() and file_digest(path) == source.sha256:
            return path
    raise ReviewOutdatedError(
        f"{source.name} (sha256 {source.sha256[:12]}...) is neither "
        f"{f'at {used}' if used else 'where it was'} nor next to the results; give its place with "
        f"--{role} FILE"
    )


SEARCH_S = 0.15
SURROUNDINGS_S = 1.0


def suggest_blink(result: AutomaticResult, frame: int) -> Add:
    """Suggest a blink around a frame: from the trace where it shows one, else 200 ms long."""
    trace, settings = result.session.signal, result.session.settings.blinks
    time_s = trace.timestamps_s[frame]

    def around(reach_s: float) -> slice:
        return slice(trace.nearest(time_s - reach_s), trace.nearest(time_s + reach_s) + 1)

    near = around(SEARCH_S)
    if not np.isfinite(trace.ear[near]).any():
        return _suggest_fixed(trace, frame)
    lowest = near.start + int(np.nanargmin(trace.ear[near]))
    level_ear = float(np.nanmedian(trace.ear[around(SURROUNDINGS_S)]))
    extent = measure_extent(trace.timestamps_s, trace.ear, lowest, level_ear)
    if not extent.onset_s < extent.peak_s < extent.offset_s:
        return _suggest_fixed(trace, lowest)
    return Add(
        onset_s=extent.onset_s,
        peak_s=extent.peak_s,
        offset_s=extent.offset_s,
        kind="closure" if extent.half_s * 1000.0 > settings.longest_blink_ms else "blink",
        completeness=_completeness(result.session, lowest),
    )


def _completeness(session: AnalysedSession, frame: int) -> Completeness:
    deep = session.fec()[frame] >= session.settings.blinks.complete_fec
    return "complete" if deep else "partial"


def _suggest_fixed(frames: EyeTrace, frame: int) -> Add:
    time_s = float(frames.timestamps_s[frame])
    onset, offset = frames.nearest(time_s - 0.08), frames.nearest(time_s + 0.12)
    if onset == offset:
        offset = min(onset + 1, len(frames.timestamps_s) - 1)
        onset = max(offset - 1, 0)
    times_s = frames.timestamps_s
    return Add(
        onset_s=float(times_s[onset]),
        peak_s=float(np.clip(time_s, times_s[onset], times_s[offset])),
        offset_s=float(times_s[offset]),
        completeness="partial",
    )


# The order in which to review: by the probability that the analysis is wrong.

GAP_MARGIN_S = 0.1
"""Eyes that are lost so shortly before or after a blink may have cut it."""


@dataclass(frozen=True)
class Doubt:
    """The doubts about an automatic decision for or against a blink."""

    score: float
    """0 (clear) to about 2."""
    reasons: tuple[str, ...]
    """In words, the weightiest first."""


def doubt_of(event: ReviewEvent, result: AutomaticResult) -> Doubt:
    """Weigh the doubts: the probability of an error, and eyes that were not seen.

    A blink that was counted with a confidence of 0.7, and a candidate that was left out with 0.3,
    are errors with the same probability, and so they come together.
    """
    confidence = result.confidences[event.blink_id]
    left_out = event.status is ReviewStatus.LEFT_OUT
    wrong = confidence if left_out else 1.0 - confidence
    doubts: list[tuple[float, str]] = []
    if math.isfinite(confidence):
        doubts.append((wrong, f"{'left out, ' * left_out}confidence {confidence:.2f}"))
    lost = _lost_share(event, result)
    if lost > 0:
        doubts.append((0.2 + 0.5 * lost, f"eyes not seen in {100 * lost:.0f} % of it"))
    doubts.sort(key=lambda entry: -entry[0])
    reasons = tuple(text for weight, text in doubts if weight >= 0.05)
    return Doubt(round(sum(weight for weight, _ in doubts), 4), reasons)


def _lost_share(event: ReviewEvent, result: AutomaticResult) -> float:
    times_s, ear = result.frames.timestamps_s, result.frames.ear
    first = int(np.searchsorted(times_s, event.onset_s - GAP_MARGIN_S))
    last = int(np.searchsorted(times_s, event.offset_s + GAP_MARGIN_S, side="right"))
    return float(np.mean(~np.isfinite(ear[first:last]))) if last > first else 0.0


REVIEWED = Table(
    "blinks_reviewed", (*BLINKS.columns, Column("review_status")), BLINKS.title, BLINKS.key
)


def reviewed_blinks(result: AutomaticResult, state: actions.ReviewState) -> tuple[Blink, ...]:
    """Return the reviewed blinks by onset.

    Blinks with new times are measured in the trace, and as, the others were.
    """
    automatic = {blink.number: blink for blink in result.session.blinks}
    return tuple(
        _reviewed(event, automatic.get(event.blink_id), result)
        for event in state.events
        if event.is_blink
    )


def _reviewed(event: actions.ReviewEvent, blink: Blink | None, result: AutomaticResult) -> Blink:
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


def _measured(event: actions.ReviewEvent, result: AutomaticResult) -> Blink:
    session, settings = result.session, result.session.settings.blinks
    trace = smoothed_trace(session.signal)
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
    result: AutomaticResult, state: actions.ReviewState, folder: Path
) -> None:
    """Write the table of `reviewed_blinks`, with their status."""
    path = folder / REVIEWED.file_name
    statuses = [event.status.value for event in state.events if event.is_blink]
    rows = zip(blink_rows(reviewed_blinks(result, state)), statuses, strict=True)
    with writing_to(path, ReviewFolderError):
        REVIEWED.write_csv(path, ([*row, status] for row, status in rows))


def as_reviewed(record: SessionRecord, folder: Path) -> SessionRecord:
    """Return a record with the counts of its review, if there is one of this result.

    Its summary then also has ``blinks_found`` by the analysis and the number ``unreviewed`` of
    blinks and closures. No frames are read: a list of sessions asks this of each.
    """
    review = folder / REVIEW_FOLDER
    try:
        header = actions.read_log(review / actions.LOG_NAME).header
        session = json.loads((folder / "session.json").read_text(encoding="utf-8"))
        left_out = [LeftOut(**event) for event in session["left_out"]]
        digest = _events_digest(folder / "blinks.csv", left_out)
        if header is None or header.result_sha256 != digest:
            return record
        rows = [row.cells for row in read_table(review / REVIEWED.file_name, ".").rows]
        seen_s = session["blinks"]["seen_s"]
    except (OSError, ValueError, KeyError, TypeError, ReviewFolderError, TableFileError):
        return record
    kinds, statuses = (Counter(row[name] for row in rows) for name in ("kind", "review_status"))
    reviewed = {
        "blinks": kinds["blink"],
        "closures": kinds["closure"],
        "blinks_per_minute": 60.0 * kinds["blink"] / seen_s if seen_s else math.nan,
        "blinks_found": record.summary["blinks"],
        "unreviewed": statuses[actions.ReviewStatus.UNREVIEWED],
    }
    return replace(record, summary={**record.summary, **reviewed})


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
    result = read_automatic_result(place)
    session, state = result.session, _review_of(result)
    if state is None:
        return SessionReport(place, {}, summarise(session, {}))
    counts = Counter(event.status for event in state.events)
    review = {status.value: counts[status] for status in actions.ReviewStatus if counts[status]}
    if not reviewed:
        return SessionReport(place, review, summarise(session, {}))
    write_reviewed_blinks(result, state, result.review_folder)
    open_numbers = {event.blink_id for event in state.events if event.awaits_review}
    candidates = zip(result.events[len(session.blinks) :], session.left_out, strict=True)
    left_out = tuple(candidate for event, candidate in candidates if event.blink_id in open_numbers)
    after = replace(session, blinks=reviewed_blinks(result, state), left_out=left_out)
    remarks = SessionReport(place, review, summarise(after, {})).review_words
    after = replace(after, warnings=(*after.warnings, f"these are the reviewed blinks: {remarks}"))
    written = write_outputs(after, place.parent / REVIEWED_FOLDER, progress=progress)
    return SessionReport(place, review, summarise(after, written.files))


def write_reviewed_sessions(study: Path) -> Path:
    """Write ``sessions_reviewed.csv`` of a study: its sessions as their reviews have them."""
    records = [as_reviewed(read_record(folder), folder) for folder in study_folders(study)]
    path = study / "sessions_reviewed.csv"
    write_sessions_table(path, records)
    return path


def _review_of(result: AutomaticResult) -> actions.ReviewState | None:
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
