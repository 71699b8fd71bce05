"""Running landmark models on images."""

from __future__ import annotations

from aggregators.predictors.dlib_compatible import DlibCompatiblePredictor
from aggregators.predictors.landmarks import LandmarkPredictor, to_grey

__all__ = ["DlibCompatiblePredictor", "LandmarkPredictor", "to_grey"]
