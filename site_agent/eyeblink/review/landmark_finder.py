"""Landmarks of single frames, placed as the analysis places them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.eyeblink.face.finding import FaceFollower
from site_agent.eyeblink.face.landmarks import check_eyes, check_part_count
from site_agent.eyeblink.face.settings import FaceSettings
from site_agent.eyeblink.records import FaceBox, Float64, UInt8
from site_agent.faces.detector import open_detector
from site_agent.faces.landmarks import open_landmarks


@dataclass(frozen=True, eq=False)
class FoundLandmarks:
    """A face in one frame: its box and float64 (68, 2) landmarks, in pixels."""

    box: FaceBox
    landmarks: Float64


class LandmarkFinder:
    """Places landmarks in boxes of frames.csv, or where a detector finds the face."""

    def __init__(self, landmarks: Path | str, detector: Path | str | None = None) -> None:
        self._predictor = open_landmarks(landmarks)
        check_part_count(self._predictor.part_count, str(landmarks))
        check_eyes(self._predictor, str(landmarks))
        self._detector = open_detector(detector)
        self._lock = threading.Lock()

    def find(self, picture: UInt8, box: FaceBox | None) -> FoundLandmarks | None:
        """Return the landmarks of an RGB picture; None where there is no face to be found."""
        grey = np.asarray(Image.fromarray(picture).convert("L"), dtype=np.uint8)
        follower = FaceFollower(self._detector, self._predictor, FaceSettings())
        with self._lock:
            if box is not None:
                return FoundLandmarks(box, follower.landmarks_in(grey, box))
            face = follower.step(grey, 0.0)
        return FoundLandmarks(face.box, face.landmarks) if face is not None else None
