"""Placing landmarks from several starts: less noise, and a measure of how sure they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from site_agent.eyeblink.face.boxes import centre_and_spread
from site_agent.eyeblink.face.settings import FaceSettings
from site_agent.eyeblink.records import FaceBox, Float64, UInt8


class Predictor(Protocol):
    """What is asked of a landmark model."""

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
        found = self._predictor.predict(image, corners + self._moves * box.width)
        if len(found) == 1:
            return Placed(found[0], 0.0)
        landmarks: Float64 = np.median(found, axis=0)
        apart = np.median(np.hypot(*np.moveaxis(found - landmarks, -1, 0)), axis=0)
        return Placed(landmarks, float(apart.mean()) / centre_and_spread(landmarks)[1])

    def start_over(self, landmarks: Float64, box: FaceBox) -> FaceBox:
        """Return the box in which the model's initial shape lies over these landmarks.

        It is framed as the model's training data were, whatever the framing of the detector.
        """
        aspect = box.height / box.width
        shape = self._predictor.initial_shape.astype(np.float64) * [1.0, aspect]
        shape_centre, shape_spread = centre_and_spread(shape)
        centre, spread = centre_and_spread(landmarks)
        width = spread / shape_spread
        left, top = centre - width * shape_centre
        return FaceBox(float(left), float(top), float(left + width), float(top + width * aspect))
