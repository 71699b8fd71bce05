"""MWMA: the mean weight matrix of HOG-SVM detectors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aggregators.methods.contract import AggregationMethod, Combined, NoOptions, Progress
from aggregators.methods.sub_models import SubModel, SubModels, require_equal
from aggregators.models import FhogDetector, Float64, Model


class Mwma(AggregationMethod[NoOptions]):
    """``W = sum(w_k W_k) / sum(w_k)`` for each filter, its threshold included.

    In float64, summed in the order of the digests and divided once: with equal weights, the bits
    are those of adding dlib's matrices and dividing by their number. The scanner, the overlap
    tester and the kind of file come from the first given input.

    Source: the PBLTA paper, section on Mean Weight Matrix Aggregation; its "including a copy of
    a sub-model" is a weight of 2.
    """

    name = "mwma"
    summary = "mean weight matrix of HOG-SVM detectors"
    kind = "hog-svm"
    options_type = NoOptions
    output_formats = ("dlib-fhog-detector",)

    def merge_key(self, fingerprint: Mapping[str, Any]) -> str | None:
        if fingerprint.get("kind") != self.kind:
            return None
        return (
            f"cell{fingerprint['cell_size_px']}-padding{fingerprint['padding_cells']}"
            f"-window{fingerprint['window_width_px']}x{fingerprint['window_height_px']}"
            f"-dimensions{fingerprint['dimensions']}-detectors{fingerprint['detectors']}"
        )

    def combine(
        self, sub_models: SubModels[Model], _options: NoOptions, _progress: Progress, /
    ) -> Combined:
        detectors = sub_models.narrow(FhogDetector)
        require_equal(detectors.in_given_order, _features)
        warnings = _warn_of_settings(detectors)
        first = detectors.first.model
        if detectors.only is not None:
            return Combined(first, warnings)
        merged = replace(
            first,
            weights=_weighted_mean(detectors, "weights"),
            thresholds=_weighted_mean(detectors, "thresholds"),
        )
        return Combined(merged, warnings)


def _weighted_mean(detectors: SubModels[FhogDetector], attribute: str) -> Float64:
    total: Float64 = np.zeros_like(getattr(detectors.first.model, attribute))
    for detector in detectors.in_sum_order:
        total += detector.weight * getattr(detector.model, attribute)
    # Divided once at the end: dlib's own average of equal weights does the same.
    total /= detectors.total_weight
    return total


def _features(detector: FhogDetector) -> dict[str, str]:
    """Return the settings that must be equal, for messages."""
    return {
        "cell size": f"{detector.cell_size_px}",
        "padding": f"{detector.padding_cells}",
        "window": f"{detector.window_width_px}x{detector.window_height_px}",
        "dimensions": f"{detector.dimensions}",
        "number of detectors": f"{detector.detector_count}",
    }


def _settings(detector: FhogDetector) -> dict[str, str]:
    """Return the settings that are taken from the first input, for messages."""
    upsampling = detector.upsampling
    return {
        "overlap tester": f"{detector.overlap_iou:g}/{detector.overlap_covered:g}",
        "upsampling": "not stored" if upsampling is None else f"{upsampling}",
        "nuclear norm strength": f"{detector.nuclear_norm_strength:g}",
        "pyramid levels": f"{detector.max_pyramid_levels}",
        "smallest pyramid layer": (f"{detector.min_layer_width_px}x{detector.min_layer_height_px}"),
    }


def _warn_of_settings(detectors: SubModels[FhogDetector]) -> tuple[str, ...]:
    first: SubModel[FhogDetector] = detectors.first
    kept = _settings(first.model)
    return tuple(
        f"{setting} differs: {kept[setting]} in {first.name}, {value} in {other.name}; "
        f"the merged detector has {kept[setting]}"
        for other in detectors.in_given_order[1:]
        for setting, value in _settings(other.model).items()
        if value != kept[setting]
    )
