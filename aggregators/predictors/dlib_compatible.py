"""A landmark predictor that is called as ``dlib.shape_predictor``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from aggregators.models import ForestEnsemble, ShapePredictor
from aggregators.predictors.landmarks import LandmarkPredictor, to_grey

if TYPE_CHECKING:
    import dlib


class DlibCompatiblePredictor:
    """``predictor(image, rect)`` returns a ``dlib.full_object_detection``.

    Programs written for ``dlib.shape_predictor`` can use it to run any landmark model, including
    WBA ensembles. Coordinates are rounded to whole pixels as in dlib; `LandmarkPredictor` does
    not round them. Needs dlib.
    """

    def __init__(self, model: ShapePredictor | ForestEnsemble) -> None:
        self.landmark_predictor = LandmarkPredictor(model)

    def __call__(self, image: NDArray[np.uint8], box: dlib.rectangle) -> dlib.full_object_detection:
        """Place the landmarks of one face.

        `image`, uint8 of shape (height, width) or (height, width, 3): grey or RGB.
        """
        import dlib

        corners: list[Any] = [box.left(), box.top(), box.right(), box.bottom()]
        landmarks = self.landmark_predictor.predict(to_grey(image), [corners])[0]
        rounded = np.floor(landmarks + 0.5).astype(np.int64)
        points = [dlib.point(int(x), int(y)) for x, y in rounded]
        return dlib.full_object_detection(box, points)
