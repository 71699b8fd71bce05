"""An analysed session, the source of all outputs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import Field

from aggregators import read_recipe, recipe_path
from aggregators.errors import AggregatorError
from aggregators.predictors import LandmarkPredictor
from site_agent import text_tables
from site_agent.datasets.landmark_schemes import EYE_POINTS
from site_agent.datasets.trials import Trial
from site_agent.errors import InvalidInputError
from site_agent.eyeblink import session_folder
from site_agent.eyeblink.blinks.finding import Blink, BlinkSettings, LeftOut, blink_of_frame
from site_agent.eyeblink.blinks.half_closings import SHUT_SHARE
from site_agent.eyeblink.blinks.likelihood import USUAL_SHUT_SHARE
from site_agent.eyeblink.blinks.statistics import blink_statistics
from site_agent.eyeblink.conditioning import ConditioningSettings
from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.conditioning.summary import SessionSummary
from site_agent.eyeblink.conditioning.trials import TrialTiming
from site_agent.eyeblink.face.boxes import FaceSettings
from site_agent.eyeblink.face.finding import FaceFollower, Follower, FoundFace, RegionFollower
from site_agent.eyeblink.face.landmarks import check_eyes
from site_agent.eyeblink.openness.signal import (
    Calibration,
    at_usual_pose,
    closure_paper_pct,
    fraction_eyelid_closure,
)
from site_agent.eyeblink.records import EyeTrace, FaceSource, Float64, Gap, Int64
from site_agent.eyeblink.video.seeking import SeekableVideo
from site_agent.faces.models import FaceDetector, open_detector, open_landmarks
from site_agent.pictures.video_reading import Frame
from site_agent.settings import Settings
from site_agent.training_record import read_beside, read_training_metadata, remember_place


class FileSettings(Settings, error=InvalidInputError):
    """Settings of the files that are read and written."""

    decimal: text_tables.Decimal = "auto"
    """Decimal sign in traces and in tables of trials."""
    eye_pictures: bool = True
    """The report shows the eyes at onset, peak and offset of each blink. Leave them out of a
    report that leaves your site."""


class BlinkAnalysisSettings(Settings, error=InvalidInputError):
    """All settings of an analysis; every one is written into the provenance."""

    files: FileSettings = Field(default_factory=FileSettings)
    faces: FaceSettings = Field(default_factory=FaceSettings)
    blinks: BlinkSettings = Field(default_factory=BlinkSettings)
    conditioning: ConditioningSettings = Field(default_factory=ConditioningSettings)
    """Used when trials are given."""
    trial_timing: TrialTiming = Field(default_factory=TrialTiming)
    """Used when trials are given."""
    labels: session_folder.SessionLabels = Field(default_factory=session_folder.SessionLabels)
    outputs: frozenset[str] = frozenset()
    """Outputs that are written on request only: overlay, nwb."""


def measured_trace(trace: EyeTrace, settings: BlinkAnalysisSettings) -> EyeTrace:
    """Return the trace that FEC and blinks come from: in the usual pose."""
    return at_usual_pose(trace) if settings.blinks.calibration.at_usual_pose else trace


class Footage(Protocol):
    """The pictures of a recording once more, for outputs that show them."""

    def pictures(self) -> Iterator[tuple[Frame, FoundFace | None]]:
        """Yield each frame in colour, uint8 (height, width, 3), and the face found in it."""
        ...


@dataclass(frozen=True, eq=False)
class AnalysedSession:
    """Signals, blinks and trials of one recording."""

    trace: EyeTrace
    calibration: Calibration
    blinks: tuple[Blink, ...]
    settings: BlinkAnalysisSettings
    sources: tuple[session_folder.SourceFile, ...]
    recording: Mapping[str, Any]
    warnings: tuple[str, ...]
    conditioning: ConditioningResult | None = None
    footage: Footage | None = None
    pictures: Callable[[], SeekableVideo] | None = None
    """Opens the recording for single frames."""
    start: session_folder.RecordingStart | None = None
    filtered: EyeTrace | None = None
    """See `measured_trace`; `trace` keeps the raw EAR."""
    trials: tuple[Trial, ...] = ()
    """As they were measured: on the video's clock."""
    left_out: tuple[LeftOut, ...] = ()

    @property
    def signal(self) -> EyeTrace:
        """The trace that FEC and blinks come from."""
        return self.filtered or self.trace

    def fec(self) -> Float64:
        return fraction_eyelid_closure(self.signal.ear, self.calibration)

    def fec_left(self) -> Float64:
        return fraction_eyelid_closure(self.signal.ear_left, self.calibration)

    def fec_right(self) -> Float64:
        return fraction_eyelid_closure(self.signal.ear_right, self.calibration)

    def closure_paper_pct(self) -> Float64:
        return closure_paper_pct(self.trace.ear)

    def blink_ids(self) -> Int64:
        return blink_of_frame(self.trace, list(self.blinks))


@dataclass(frozen=True)
class BlinkSession:
    """Summary of an analysis."""

    frames: int
    seconds: float
    face_found_pct: float
    valid_pct: float
    blinks: int
    closures: int
    perclos_pct: float
    blinks_per_minute: float
    open_ear: float
    closed_ear: float
    warnings: tuple[str, ...]
    files: Mapping[str, Path]
    conditioning: SessionSummary | None = None
    trials: tuple[Trial, ...] = ()
    """As they were measured: on the video's clock."""
    calibrated: bool = True
    damaged_frames: int = 0
    """Frames behind damage in the video, which were not judged."""


def summarise(session: AnalysedSession, files: Mapping[str, Path]) -> BlinkSession:
    """Count the events of a session."""
    trace = session.trace
    frames = len(trace.timestamps_s)
    valid_share = float(np.mean(trace.valid)) if frames else 0.0
    if trace.face is None:
        found_share = valid_share
    else:
        found_share = float(np.mean(trace.face.sources != FaceSource.MISSING)) if frames else 0.0
    counts = blink_statistics(trace, session.blinks, session.fec())
    return BlinkSession(
        frames=frames,
        seconds=trace.duration_s,
        face_found_pct=100.0 * found_share,
        valid_pct=100.0 * valid_share,
        blinks=counts.blinks,
        closures=counts.closures,
        perclos_pct=counts.perclos_pct,
        blinks_per_minute=counts.blinks_per_minute,
        open_ear=session.calibration.open_ear,
        closed_ear=session.calibration.closed_ear,
        warnings=session.warnings,
        files=files,
        conditioning=session.conditioning.summary if session.conditioning is not None else None,
        trials=session.trials,
        calibrated=session.calibration.reliable,
        damaged_frames=int(np.sum(trace.gaps == Gap.VIDEO_DAMAGED)),
    )


@dataclass(frozen=True, eq=False)
class FaceModels:
    """Detector (None for a fixed region) and landmark model, opened."""

    detector: FaceDetector | None
    predictor: LandmarkPredictor
    settings: FaceSettings
    sources: tuple[session_folder.SourceFile, ...]
    doubts: tuple[str, ...] = ()
    """Reasons why the landmark model may miss blinks or not be used."""
    closed_share: float | None = None
    """See `closed_share_of`."""

    @classmethod
    def open(
        cls,
        landmarks: Path | str,
        detector: Path | str | None,
        settings: FaceSettings,
        addresses: Mapping[str, str],
    ) -> "FaceModels":
        """Open the models and check that they fit the analysis."""
        predictor = open_landmarks(landmarks)
        check_eyes(predictor, str(landmarks))
        points = session_folder.source_file(
            "landmarks", Path(landmarks), addresses.get("landmarks")
        )
        _remember(points, Path(landmarks))
        doubts = model_doubts(Path(landmarks), points.address, predictor.part_count)
        if points.sha256 == STOCK_SHA256:
            doubts += (f"{points.name} {_STOCK_LICENCE}",)
        share = closed_share_of(Path(landmarks), points.sha256)
        if settings.region:
            if detector is not None:
                raise InvalidInputError("give either a detector or a fixed region, not both")
            place = ",".join(str(value) for value in settings.region)
            fixed = session_folder.SourceFile(
                "detector", f"fixed region {place} (x, y, width, height)", None
            )
            return cls(None, predictor, settings, (fixed, points), doubts, share)
        opened = open_detector(detector)
        finder = (
            session_folder.SourceFile("detector", opened.name, None)
            if opened.path is None
            else session_folder.source_file("detector", opened.path, addresses.get("detector"))
        )
        if opened.path is not None:
            _remember(finder, opened.path)
        return cls(opened, predictor, settings, (finder, points), doubts, share)

    def new_follower(self) -> Follower:
        """Return a follower that has seen nothing yet."""
        if self.detector is None:
            return RegionFollower(self.predictor, self.settings)
        return FaceFollower(self.detector, self.predictor, self.settings)


def _remember(source: session_folder.SourceFile, path: Path) -> None:
    """Let a review find a local model again."""
    if source.sha256 is not None and source.address is None:
        remember_place(source.sha256, path)


STOCK_SHA256 = "fbdc2cb80eb9aa7a758672cbfdda32ba6300efe9b6e6c7a299ff7e736b11b92f"
"""Of dlib's stock model of 68 landmarks."""
_STOCK_LICENCE = (
    "is dlib's stock model, trained on the iBUG 300-W faces: these are for research only, and "
    "dlib's author asks to clear commercial use of the model with Imperial College London"
)
_AVERAGING = ("wba-cascade", "wba-final")
_ADVICE = (
    "Eye models (poolctl train ert --for blinks), merged and then refined in rounds (poolctl "
    "rounds, or poolctl refine), find most blinks"
)


def model_doubts(landmarks: Path, address: str | None, part_count: int) -> tuple[str, ...]:
    """Return a warning if the known facts of a landmark model speak against it for blinks.

    Known are the number of its landmarks, and its recipe or the training record next to it.
    """
    doubt = _training_doubt(landmarks) or _merge_doubt(landmarks)
    if not doubt and part_count != EYE_POINTS and not recipe_path(landmarks).is_file():
        doubt = "places all landmarks of the face, which leaves the lids less exact"
    return (f"{address or landmarks.name} {doubt}. {_ADVICE}",) if doubt else ()


def closed_share_of(landmarks: Path, digest: str | None = None) -> float | None:
    """Return the EAR at which a model shows closed eyes, as a share of that of open ones.

    It follows from the EAR range of the evaluation that was saved next to it; None without one, and
    where it was measured on faces that the model had been trained on.
    """
    record = read_beside(landmarks, "evaluation", digest) or {}
    ear_range = record.get("metrics", {}).get("ear_range")
    if ear_range is None or record.get("training_images"):
        return None
    return 1.0 - min(float(ear_range), 1.0) * (1.0 - USUAL_SHUT_SHARE)


LEAST_SEEN_FEC = 0.72
"""Where no lids came down this far by the model's evaluation, no eye may have been closed."""


def range_doubts(calibration: Calibration) -> list[str]:
    """Return a warning if the eyes of a session were never seen more than about half closed."""
    open_ear, closed_ear, share = (
        calibration.open_ear,
        calibration.closed_ear,
        calibration.model_share,
    )
    most = SHUT_SHARE if share is None else 1.0 - LEAST_SEEN_FEC * (1.0 - share)
    if not calibration.reliable or closed_ear < most * open_ear:
        return []
    doubt = (
        f"the eye aspect ratio falls from {open_ear:.2f} to {closed_ear:.2f} only: either no eye "
        "was closed fully, and half-closings may have been counted as blinks, or the landmark "
        "model keeps the lids half open and misses blinks. "
    )
    if share is None:
        return [doubt + _ADVICE]
    return [
        f"{doubt}By its evaluation it shows closed eyes at {share * open_ear:.2f}; where no "
        "glasses hide the lids, '--set closed_from=model' leaves half-closings out"
    ]


def _training_doubt(landmarks: Path) -> str:
    record = read_training_metadata(landmarks) or {}
    if record.get("details", {}).get("drawn"):
        return "has seen drawn faces only: take it for a first look, not for results"
    if record.get("details", {}).get("closed_eyes") != 0:
        return ""
    return "was trained on faces whose eyes are all open, so it may keep closed lids half open"


def _merge_doubt(landmarks: Path) -> str:
    path = recipe_path(landmarks)
    try:
        method = read_recipe(path).method.name if path.is_file() else ""
    except (AggregatorError, OSError):
        return ""
    if method not in _AVERAGING:
        return ""
    return f"is a merge ({method}) that was not refined, and averaging keeps closed lids half open"
