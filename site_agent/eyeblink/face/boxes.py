"""Where faces lie: boxes, and how they relate to landmarks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.records import FaceBox, Float64
from site_agent.faces.detector import Detection

BLEND = 0.3
"""How far the place where landmarks start moves towards the detector's when a check confirms it:
detectors' boxes lie on a coarse grid, and each jump would show in the eye aspect ratio."""


@dataclass(frozen=True)
class BoxRelation:
    """Where the detector's box lies, relative to centre and spread of the landmarks."""

    offset_x: float
    offset_y: float
    width: float
    height: float

    @classmethod
    def between(cls, box: FaceBox, landmarks: Float64) -> BoxRelation:
        centre, spread = centre_and_spread(landmarks)
        return cls(
            ((box.left + box.right) / 2.0 - centre[0]) / spread,
            ((box.top + box.bottom) / 2.0 - centre[1]) / spread,
            box.width / spread,
            box.height / spread,
        )

    def box(self, landmarks: Float64) -> FaceBox:
        centre, spread = centre_and_spread(landmarks)
        middle_x, middle_y = centre[0] + self.offset_x * spread, centre[1] + self.offset_y * spread
        half_x, half_y = (self.width * spread - 1.0) / 2.0, (self.height * spread - 1.0) / 2.0
        return FaceBox(middle_x - half_x, middle_y - half_y, middle_x + half_x, middle_y + half_y)


def centre_and_spread(landmarks: Float64) -> tuple[Float64, float]:
    """Return the mean of points (n, 2), and their root mean square distance from it."""
    centre = landmarks.mean(axis=0)
    return centre, max(float(np.sqrt(np.mean((landmarks - centre) ** 2) * 2.0)), 1e-6)


def box_of(detection: Detection) -> FaceBox:
    return FaceBox(detection.left, detection.top, detection.right, detection.bottom)


def scaled_detection(detection: Detection, scale: float, left: int, top: int) -> Detection:
    """Scale a detection about the picture's corner and move it; pixels are areas, not points."""
    return Detection(
        detection.left * scale + left,
        detection.top * scale + top,
        (detection.right + 1.0) * scale - 1.0 + left,
        (detection.bottom + 1.0) * scale - 1.0 + top,
        detection.score,
        detection.detector_index,
    )


def overlap(one: FaceBox, other: FaceBox) -> float:
    """Return intersection over union."""
    width = min(one.right, other.right) - max(one.left, other.left) + 1.0
    height = min(one.bottom, other.bottom) - max(one.top, other.top) + 1.0
    if width <= 0 or height <= 0:
        return 0.0
    shared = width * height
    return shared / (one.width * one.height + other.width * other.height - shared)


def distance_in_widths(one: FaceBox, other: FaceBox) -> float:
    """Return the distance of the boxes' centres, in widths of the first."""
    across = (one.left + one.right - other.left - other.right) / 2.0
    down = (one.top + one.bottom - other.top - other.bottom) / 2.0
    return float(np.hypot(across, down)) / one.width


def blended(one: FaceBox, other: FaceBox, share: float) -> FaceBox:
    """Return the box `share` of the way from one to the other."""
    return FaceBox(
        one.left + share * (other.left - one.left),
        one.top + share * (other.top - one.top),
        one.right + share * (other.right - one.right),
        one.bottom + share * (other.bottom - one.bottom),
    )
