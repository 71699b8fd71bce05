"""Running landmark models on images."""

from __future__ import annotations

from aggregators.predictors.landmarks import LandmarkPredictor, to_grey

__all__ = ["LandmarkPredictor", "to_grey"]
