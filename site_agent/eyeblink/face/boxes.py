"""Boxes of faces, the settings by which faces are found, and landmarks placed in boxes.

Landmarks are placed from several starts: less noise, and a measure of how sure they are.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.records import FaceBox, Float64, UInt8
from site_agent.faces.models import Detection
from site_agent.settings import Settings


class FaceSettings(Settings, error=InvalidInputError):
    """Settings of finding and following faces."""

    face: str = "largest"
    """Which face when several are visible: largest, central (nearest to the middle of the picture),
    or a number: 1 is the leftmost in the picture."""
    face_track: bool = False
    """Stay with the face that was chosen first: when it is lost, only a face near its last place is
    taken for it, the nearer the shorter it was lost (one width of the face a second)."""
    region: tuple[int, ...] = ()
    """X,Y,WIDTH,HEIGHT in pixels of a fixed place where the face is, as a detector would box it;
    then no detector runs. For high-speed cameras and heads at rest."""
    detect_interval_ms: float = Field(default=500.0, ge=0)
    """The detector checks a followed face this often; 0: in every frame, nothing is followed."""
    search_side_px: int = Field(default=640, ge=0)
    """Whole frames are searched at this length of their longer side; 0: as they are. Where nothing
    is found so, the frame is searched as it is."""
    threshold: float = 0.0
    """Added to the score that a face needs."""
    starts: int = Field(default=7, ge=1, le=9)
    """Landmarks are placed from this many slightly different boxes (1 to 9), and the median
    counts: the place of a face box changes landmarks, which adds noise to the eye aspect ratio."""

    def __post_init__(self) -> None:
        numbered = self.face.isdecimal() and int(self.face) >= 1
        if self.face not in {"largest", "central"} and not numbered:
            raise self.refused("face", self.face, "largest, central or a number from 1 (leftmost)")
        if self.region and (len(self.region) != 4 or min(self.region[2:]) < 16):
            raise self.refused(
                "region", self.region, "X,Y,WIDTH,HEIGHT in pixels, at least 16 wide and high"
            )


BLEND = 0.3
"""How far the place where landmarks start moves towards the detector's when a check confirms it:
detectors' boxes lie on a coarse grid, and each jump would show in the eye aspect ratio."""


@dataclass(frozen=True)
class BoxRelation:
    """The place of the detector's box relative to centre and spread of the landmarks."""

    offset_x: float
    offset_y: float
    width: float
    height: float

    @classmethod
    def between(cls, box: FaceBox, landmarks: Float64) -> "BoxRelation":
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
    centre: Float64 = landmarks.sum(axis=0) / len(landmarks)  # faster than mean for few points
    away = (landmarks - centre).ravel()
    return centre, max(math.sqrt(float(away @ away) / len(landmarks)), 1e-6)


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


class Predictor(Protocol):
    """The interface of a landmark model."""

    @property
    def part_count(self) -> int: ...

    @property
    def initial_shape(self) -> NDArray[np.float32]: ...

    def predict(self, grey: UInt8, boxes: ArrayLike) -> Float64: ...


# How far the boxes differ, in widths of the face.
_START_SPREAD = 0.03
# Shift right, shift down, growth; in units of that.
_STARTS = (
    (0.0, 0.0, 0.0),
    (1.0, 0.5, 0.0),
    (-1.0, -0.5, 0.0),
    (-0.5, 1.0, 0.0),
    (0.5, -1.0, 0.0),
    (0.0, 0.0, 1.0),
    (0.0, 0.0, -1.0),
    (1.0, -1.0, -1.0),
    (-1.0, 1.0, 1.0),
)


@dataclass(frozen=True, eq=False)
class Placed:
    """Landmarks, float64 (parts, 2) in pixels, and how far the starts ended apart.

    The latter is the mean over landmarks of the median distance from the result, in spreads of the
    face; 0 for a single start.
    """

    landmarks: Float64
    disagreement: float


def _median(values: Float64) -> Float64:
    """Return the median over the first axis, for few values far faster than `numpy.median`."""
    ordered = np.sort(values, axis=0)
    middle: Float64 = (ordered[(len(values) - 1) // 2] + ordered[len(values) // 2]) / 2.0
    return middle


class LandmarkPlacer:
    """Runs a landmark model from boxes framed as its training data were."""

    def __init__(self, predictor: Predictor, settings: FaceSettings) -> None:
        self._predictor = predictor
        starts = np.array(_STARTS[: max(1, settings.starts)]) * _START_SPREAD
        self._moves = starts[:, [0, 1, 0, 1]] + starts[:, 2:] * np.array([[-0.5, -0.5, 0.5, 0.5]])

    def place_in(self, image: UInt8, box: FaceBox) -> Float64:
        """Place the landmarks once, from a detector's box as it is."""
        corners = [[box.left, box.top, box.right, box.bottom]]
        landmarks: Float64 = self._predictor.predict(image, corners)[0]
        return landmarks

    def place(self, image: UInt8, box: FaceBox) -> Placed:
        """Place the landmarks from several boxes around this one and take their median."""
        corners = np.array([box.left, box.top, box.right, box.bottom])
        points = self._predictor.predict(image, corners + self._moves * box.width)
        if len(points) == 1:
            return Placed(points[0], 0.0)
        landmarks = _median(points)
        apart = _median(np.hypot(*np.moveaxis(points - landmarks, -1, 0)))
        return Placed(landmarks, float(apart.mean()) / centre_and_spread(landmarks)[1])

    def start_over(self, landmarks: Float64, box: FaceBox) -> FaceBox:
        """Return the box in which the model's initial shape lies over these landmarks.

        It is framed as the model's training data were, with any framing of the detector.
        """
        aspect = box.height / box.width
        shape = self._predictor.initial_shape.astype(np.float64) * [1.0, aspect]
        shape_centre, shape_spread = centre_and_spread(shape)
        centre, spread = centre_and_spread(landmarks)
        width = spread / shape_spread
        left, top = centre - width * shape_centre
        return FaceBox(float(left), float(top), float(left + width), float(top + width * aspect))
