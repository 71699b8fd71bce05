"""Running landmark models on images."""

from __future__ import annotations

from aggregators.predictors.landmarks import DlibCompatiblePredictor, LandmarkPredictor, to_grey

__all__ = ["DlibCompatiblePredictor", "LandmarkPredictor", "to_grey"]
