"""Running landmark models on images."""

from aggregators.predictors.landmarks import LandmarkPredictor, to_grey

__all__ = ["LandmarkPredictor", "to_grey"]
