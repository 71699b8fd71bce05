"""The models that a session is analysed with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aggregators.predictors import LandmarkPredictor
from site_agent.errors import BlinkAnalysisError
from site_agent.eyeblink.face.crowd import FaceCrowd
from site_agent.eyeblink.face.finding import FaceFollower, Follower
from site_agent.eyeblink.face.landmarks import check_eyes
from site_agent.eyeblink.face.lid_doubts import model_doubts
from site_agent.eyeblink.face.region import RegionFollower
from site_agent.eyeblink.face.settings import FaceSettings
from site_agent.eyeblink.session import SourceFile, source_file
from site_agent.faces.detector import FaceDetector, open_detector
from site_agent.faces.landmarks import open_landmarks


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
        """Open the models and check that they fit the analysis.

        Raises
        ------
        FaceModelError, BlinkAnalysisError
        """
        settings.check()
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
