"""The models that a session is analysed with, and doubts about them.

A landmark model that does not follow the lids is named, with what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aggregators import read_recipe, recipe_path
from aggregators.errors import AggregatorError
from aggregators.predictors import LandmarkPredictor
from site_agent.datasets.landmark_schemes import EYE_POINTS
from site_agent.errors import BlinkAnalysisError
from site_agent.eyeblink.face.boxes import FaceSettings
from site_agent.eyeblink.face.finding import FaceFollower, Follower
from site_agent.eyeblink.face.followers import FaceCrowd, RegionFollower
from site_agent.eyeblink.face.landmarks import check_eyes
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.eyeblink.sources import SourceFile, source_file
from site_agent.faces.models import FaceDetector, open_detector, open_landmarks
from site_agent.training_record import read_training_metadata


@dataclass(frozen=True, eq=False)
class FaceModels:
    """Detector (None for a fixed region) and landmark model, opened.

    `doubts` says why the landmark model may miss blinks.
    """

    detector: FaceDetector | None
    predictor: LandmarkPredictor
    settings: FaceSettings
    sources: tuple[SourceFile, ...]
    doubts: tuple[str, ...] = ()

    @classmethod
    def open(
        cls,
        landmarks: Path | str,
        detector: Path | str | None,
        settings: FaceSettings,
        addresses: Mapping[str, str],
    ) -> FaceModels:
        """Open the models and check that they fit the analysis."""
        predictor = open_landmarks(landmarks)
        check_eyes(predictor, str(landmarks))
        points = source_file("landmarks", Path(landmarks), addresses.get("landmarks"))
        doubts = model_doubts(Path(landmarks), points.address, predictor.part_count)
        if settings.region:
            if detector is not None:
                raise BlinkAnalysisError("give either a detector or a fixed region, not both")
            place = ",".join(str(value) for value in settings.region)
            fixed = SourceFile("detector", f"fixed region {place} (x, y, width, height)", None)
            return cls(None, predictor, settings, (fixed, points), doubts)
        opened = open_detector(detector)
        finder = (
            SourceFile("detector", opened.name, None)
            if opened.path is None
            else source_file("detector", opened.path, addresses.get("detector"))
        )
        return cls(opened, predictor, settings, (finder, points), doubts)

    def new_follower(self) -> Follower:
        """Return a follower that has seen nothing yet."""
        if self.detector is None:
            return RegionFollower(self.predictor, self.settings)
        return FaceFollower(self.detector, self.predictor, self.settings)

    def new_crowd(self) -> FaceCrowd:
        """Return followers of all faces; only where there is a detector."""
        if self.detector is None:
            raise BlinkAnalysisError("all faces are found by a detector, not in a fixed region")
        return FaceCrowd(self.detector, self.predictor, self.settings)


HALF_OPEN_SHARE = 0.5
"""Landmarks that follow the lids put the closed eye at 0.05 to 0.26 of the open one, models that
keep the lids half open at 0.6 (seven webcam recordings with two models, four with another)."""

_AVERAGING = ("wba-cascade", "wba-final")
_ADVICE = (
    "Eye models (poolctl train ert --for blinks), merged and then refined in rounds (poolctl "
    "rounds, or poolctl refine), find most blinks"
)


def model_doubts(landmarks: Path, address: str | None, part_count: int) -> tuple[str, ...]:
    """Return a warning if what is known of a landmark model speaks against it for blinks.

    Known are the number of its landmarks, and what its recipe or its training record beside it
    says.
    """
    doubt = _training_doubt(landmarks) or _merge_doubt(landmarks)
    if not doubt and part_count != EYE_POINTS and not recipe_path(landmarks).is_file():
        doubt = "places all landmarks of the face, which leaves the lids less exact"
    return (f"{address or landmarks.name} {doubt}. {_ADVICE}",) if doubt else ()


def range_doubts(calibration: Calibration) -> list[str]:
    """Return a warning if the eyes of a session were never seen more than about half closed."""
    if not calibration.reliable or calibration.closed_ear < HALF_OPEN_SHARE * calibration.open_ear:
        return []
    return [
        f"the eye aspect ratio falls from {calibration.open_ear:.2f} to "
        f"{calibration.closed_ear:.2f} only: either no eye was closed fully, or the landmark model "
        f"keeps the lids half open and misses blinks. {_ADVICE}"
    ]


def _training_doubt(landmarks: Path) -> str:
    record = read_training_metadata(landmarks) or {}
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
