"""The files of an analysis, read back for a review, which never changes them."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
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
from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.records import FaceBox, Float64
from site_agent.eyeblink.review.actions import Add, ReviewEvent
from site_agent.eyeblink.session import AnalysedSession
from site_agent.eyeblink.session_folder import SourceFile
from site_agent.eyeblink.session_reading import read_session
from site_agent.training_record import recall_place


@dataclass(frozen=True, eq=False)
class FrameColumns:
    """frames.csv: one entry a frame."""

    timestamps_s: Float64
    signals: Mapping[str, Float64]
    """Of shape (n,). EAR, FEC and confidence by column; NaN where not known."""
    boxes: Float64
    """Of shape (n, 4). Face boxes in pixels, NaN where there is none."""
    gap_codes: np.typing.NDArray[np.uint8]
    """Of shape (n,). `Gap`."""

    @classmethod
    def of(cls, session: AnalysedSession) -> "FrameColumns":
        trace = session.trace
        signals = {
            "ear": trace.ear,
            "ear_left": trace.ear_left,
            "ear_right": trace.ear_right,
            "fec": session.fec(),
            "fec_left": session.fec_left(),
            "fec_right": session.fec_right(),
            "confidence": trace.confidence,
        }
        no_boxes = np.full((len(trace.ear), 4), np.nan)
        boxes = no_boxes if trace.face is None else trace.face.boxes
        return cls(trace.timestamps_s, signals, boxes, trace.gaps)

    def __len__(self) -> int:
        return len(self.timestamps_s)

    def nearest(self, time_s: float) -> int:
        """Return the frame nearest in time."""
        after = int(np.searchsorted(self.timestamps_s, time_s))
        if after == 0:
            return 0
        if after == len(self):
            return after - 1
        before_s, after_s = self.timestamps_s[after - 1], self.timestamps_s[after]
        return after - 1 if time_s - before_s <= after_s - time_s else after

    def box(self, frame: int) -> FaceBox | None:
        corners = self.boxes[frame]
        return FaceBox(*map(float, corners)) if np.isfinite(corners).all() else None


@dataclass(frozen=True, eq=False)
class AutomaticResult:
    """The result of an analysis."""

    folder: Path
    prefix: str
    session: AnalysedSession
    frames: FrameColumns
    events: tuple[ReviewEvent, ...]
    rows: Mapping[int, Mapping[str, str]]
    """Of blinks.csv by number, as they are written."""
    columns: tuple[str, ...]
    blinks_sha256: str

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
    columns, rows = _read_blinks(blinks_file)
    try:
        session = read_session(blinks_file)
    except (StudyFolderError, TableFileError) as error:
        raise ReviewFolderError(str(error)) from error
    return AutomaticResult(
        folder=blinks_file.parent,
        prefix=session_folder.name_prefix(blinks_file),
        session=session,
        frames=FrameColumns.of(session),
        events=tuple(map(_event, session.blinks)),
        rows=rows,
        columns=columns,
        blinks_sha256=file_digest(blinks_file),
    )


def find_output(place: Path | str, name: str) -> Path:
    """Return the file that an output of the session is (see `session_folder.find_output`)."""
    path = Path(place)
    if not path.exists():
        raise ReviewFolderError(f"{path}: no such folder; expected the results of poolctl blink")
    try:
        return session_folder.find_output(path, name)
    except StudyFolderError as error:
        raise ReviewFolderError(str(error)) from error


def _read_blinks(path: Path) -> tuple[tuple[str, ...], dict[int, dict[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            columns = tuple(reader.fieldnames or ())
            for name in ("blink_id", "kind", "onset_s", "peak_s", "offset_s", "completeness"):
                if name not in columns:
                    raise ReviewFolderError(f"{path}: has no column {name}")
            return columns, {int(row["blink_id"]): row for row in reader}
    except (OSError, ValueError, TypeError) as error:
        raise ReviewFolderError(f"{path}: cannot be read: {error}") from error


def _event(blink: Blink) -> ReviewEvent:
    times_s = (blink.onset_s, blink.peak_s, blink.offset_s)
    return ReviewEvent(blink.number, blink.kind, *times_s, blink.completeness)


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
LONGEST_HALF_S = 0.5
SURROUNDINGS_S = 1.0
EDGE_SHARE = 0.15
"""A blink begins and ends where the lid has left its level by this share of its way."""


def suggest_blink(result: AutomaticResult, frame: int) -> Add:
    """Suggest a blink around a frame: from the trace where it shows one, else 200 ms long."""
    frames, settings = result.frames, result.session.settings.blinks
    times_s, fec = frames.timestamps_s, frames.signals["fec"]
    near = slice(
        frames.nearest(times_s[frame] - SEARCH_S), frames.nearest(times_s[frame] + SEARCH_S) + 1
    )
    wide = slice(
        frames.nearest(times_s[frame] - SURROUNDINGS_S),
        frames.nearest(times_s[frame] + SURROUNDINGS_S) + 1,
    )
    if not np.isfinite(fec[near]).any():
        return _suggest_fixed(frames, frame)
    peak = near.start + int(np.nanargmax(fec[near]))
    level = float(np.nanmedian(fec[wide]))
    edge = level + EDGE_SHARE * (float(fec[peak]) - level)
    onset, offset = _edge(frames, peak, edge, -1), _edge(frames, peak, edge, +1)
    if not onset < peak < offset:
        return _suggest_fixed(frames, peak)
    deep = float(fec[peak]) >= settings.complete_fec
    half = (level + float(fec[peak])) / 2.0
    half_s = times_s[_edge(frames, peak, half, +1)] - times_s[_edge(frames, peak, half, -1)]
    long = half_s * 1000 > settings.longest_blink_ms
    return Add(
        onset_s=float(times_s[onset]),
        peak_s=float(times_s[peak]),
        offset_s=float(times_s[offset]),
        kind="closure" if long else "blink",
        completeness="complete" if deep else "partial",
    )


def _edge(frames: FrameColumns, peak: int, edge_fec: float, step: int) -> int:
    """Go from the peak to the first frame at or below an FEC."""
    times_s, fec = frames.timestamps_s, frames.signals["fec"]
    place = peak
    while 0 <= place + step < len(frames):
        place += step
        value = float(fec[place])
        far = abs(times_s[place] - times_s[peak]) >= LONGEST_HALF_S
        if math.isnan(value) or value <= edge_fec or far:
            break
    return place


def _suggest_fixed(frames: FrameColumns, frame: int) -> Add:
    time_s = float(frames.timestamps_s[frame])
    onset, offset = frames.nearest(time_s - 0.08), frames.nearest(time_s + 0.12)
    if onset == offset:
        offset = min(onset + 1, len(frames) - 1)
        onset = max(offset - 1, 0)
    times_s = frames.timestamps_s
    return Add(
        onset_s=float(times_s[onset]),
        peak_s=float(np.clip(time_s, times_s[onset], times_s[offset])),
        offset_s=float(times_s[offset]),
        completeness="partial",
    )


# The order in which to review: by how uncertain an automatic blink is.

GAP_MARGIN_S = 0.1
"""Eyes that are lost so shortly before or after a blink may have cut it."""


@dataclass(frozen=True)
class Doubt:
    """The doubts about an automatic blink."""

    score: float
    """0 (clear) to about 2."""
    reasons: tuple[str, ...]
    """In words, the weightiest first."""


def doubt_of(event: ReviewEvent, result: AutomaticResult) -> Doubt:
    """Weigh the doubts about an automatic blink: low confidence, partial, eyes not seen."""
    row = result.rows.get(event.blink_id, {})
    confidence = float(row.get("confidence") or "nan")
    doubts: list[tuple[float, str]] = []
    if math.isfinite(confidence):
        doubts.append((1.0 - confidence, f"confidence {confidence:.2f}"))
    if event.completeness == "partial":
        doubts.append((0.25, "partial"))
    if event.kind == "closure":
        doubts.append((0.1, "long closure"))
    lost = _lost_share(event, result)
    if lost > 0:
        doubts.append((0.2 + 0.5 * lost, f"eyes not seen in {100 * lost:.0f} % of it"))
    doubts.sort(key=lambda entry: -entry[0])
    reasons = tuple(text for weight, text in doubts if weight >= 0.05)
    return Doubt(round(sum(weight for weight, _ in doubts), 4), reasons)


def _lost_share(event: ReviewEvent, result: AutomaticResult) -> float:
    times_s, ear = result.frames.timestamps_s, result.frames.signals["ear"]
    first = int(np.searchsorted(times_s, event.onset_s - GAP_MARGIN_S))
    last = int(np.searchsorted(times_s, event.offset_s + GAP_MARGIN_S, side="right"))
    return float(np.mean(~np.isfinite(ear[first:last]))) if last > first else 0.0
