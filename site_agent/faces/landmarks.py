"""Opening landmark models, whatever file they are in."""

from __future__ import annotations

from pathlib import Path

from aggregators.errors import FormatError
from aggregators.formats import read_model, recognise
from aggregators.models import FhogDetector, ForestEnsemble, ShapePredictor
from aggregators.predictors import LandmarkPredictor
from site_agent.errors import FaceModelError


def open_landmarks(path: Path | str) -> LandmarkPredictor:
    """Open a landmark model: dlib's ``.dat``, or this project's forest file.

    Returns
    -------
    LandmarkPredictor
        ``part_count``, and ``predict(grey, boxes)`` with unrounded coordinates.

    Raises
    ------
    FaceModelError
        The file is not a landmark model.
    """
    path = Path(path)
    try:
        found = recognise(path)
        model = read_model(path)
    except FormatError as error:
        raise FaceModelError(f"{error}; expected a landmark model (.dat)") from error
    except OSError as error:
        raise FaceModelError(f"{path}: {error.strerror or error}") from error
    if not isinstance(model, ShapePredictor | ForestEnsemble):
        hint = "; a detector is given with --detector" if isinstance(model, FhogDetector) else ""
        raise FaceModelError(
            f"{path}: found {found.summary}, expected a landmark model (.dat){hint}"
        )
    return LandmarkPredictor(model)
