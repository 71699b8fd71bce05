"""The files of an analysis, read back for a review, which never changes them."""

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from aggregators.formats import file_digest
from site_agent.errors import (
    ReviewFolderError,
    ReviewOutdatedError,
    StudyFolderError,
    TableFileError,
)
from site_agent.eyeblink import session_folder
from site_agent.eyeblink.blinks.extents import measure_extent
from site_agent.eyeblink.blinks.finding import Blink, Completeness
from site_agent.eyeblink.records import EyeTrace, Float64
from site_agent.eyeblink.review.actions import Add, ReviewEvent, ReviewStatus
from site_agent.eyeblink.session import AnalysedSession
from site_agent.eyeblink.session_folder import SourceFile
from site_agent.eyeblink.session_reading import read_session
from site_agent.plain_json import json_bytes
from site_agent.training_record import recall_place


@dataclass(frozen=True, eq=False)
class AutomaticResult:
    """The result of an analysis."""

    folder: Path
    prefix: str
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
        """The folder of the review, whether or not there is one; BIDS datasets ignore its name."""
        return self.folder / f"{self.prefix}review"

    def source(self, role: str) -> SourceFile | None:
        """Return the provenance's entry for the video, the trace or a model."""
        return next((source for source in self.session.sources if source.role == role), None)


def read_automatic_result(place: Path | str) -> AutomaticResult:
    """Read the results of ``poolctl blink`` from a folder."""
    blinks_file = find_output(place, "blinks.csv")
    try:
        session = read_session(blinks_file)
    except (StudyFolderError, TableFileError) as error:
        raise ReviewFolderError(str(error)) from error
    left_out = [asdict(event) for event in session.left_out]
    content = blinks_file.read_bytes() + (json_bytes(left_out) if left_out else b"")
    return AutomaticResult(
        folder=blinks_file.parent,
        prefix=session_folder.name_prefix(blinks_file),
        session=session,
        events=(*map(_event, session.blinks), *_candidates(session)),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def find_output(place: Path | str, name: str) -> Path:
    """Return the path of a session's output, as `session_folder.find_output`."""
    path = Path(place)
    if not path.exists():
        raise ReviewFolderError(f"{path}: no such folder; expected the results of poolctl blink")
    try:
        return session_folder.find_output(path, name)
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
    extent = measure_extent(trace.timestamps_s, trace.ear, lowest, level_ear, settings.extents)
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
    ``tests/benchmarks/blink_review.py`` measures the order.
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
