"""Running landmark models on images."""

from __future__ import annotations

from aggregators.predictors.dlib_compatible import DlibCompatiblePredictor
from aggregators.predictors.grey import to_grey
from aggregators.predictors.landmarks import LandmarkPredictor

__all__ = ["DlibCompatiblePredictor", "LandmarkPredictor", "to_grey"]
