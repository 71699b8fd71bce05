"""Scores of detectors, landmark models and gaze networks on annotated data.

``poolctl evaluate MODEL... DATA`` goes this way: `cli.vision.evaluate` reads the data set and
fetches models of the pool; `model_runs.evaluate_models` scores the first model here and, from its
time, decides whether the others get processes of their own; `detection` and `landmarks` run one
model over all images, several at once (`site_agent.faces.models`), `gaze` one network over
all samples, and compare the result with annotations; `landmark_scores` makes means of that,
and `bootstrap_intervals` intervals, by resampling images: other images would have given other
scores. `report` writes them as JSON, CSV and pictures. With ``--post`` the command sends the
scores to the pool, images never.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float]
_COVERED_PERCENT = 95.0
_FEWEST_IMAGES = 3


def bootstrap_intervals(
    statistics: Callable[[NDArray[np.int64]], dict[str, float]],
    images: int,
    *,
    resamples: int,
    seed: int = 0,
) -> dict[str, Interval]:
    """Return 95 % percentile intervals from resampling whole images.

    Faces of one image are not independent of each other, so images are drawn and not faces. Fewer
    than three images, and images that are all alike, say nothing about others: no interval.

    `statistics`: From how often each image was drawn, int64 (images,), to scores by name; NaN where
    a resample has none.
    """
    if images < _FEWEST_IMAGES or resamples < 1:
        return {}
    generator = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(resamples):
        picks = generator.integers(0, images, images)
        for name, value in statistics(np.bincount(picks, minlength=images)).items():
            drawn.setdefault(name, []).append(value)
    intervals = {name: _interval(np.array(values)) for name, values in drawn.items()}
    return {
        name: (low, high)
        for name, (low, high) in intervals.items()
        if high - low > 1e-9 * max(abs(low), abs(high))
    }


def _interval(values: NDArray[Any]) -> Interval:
    # A resample may hold nothing to measure, such as no face at all; its value is NaN.
    finite = values[np.isfinite(values)]
    if not finite.size:
        return float("nan"), float("nan")
    tail = (100.0 - _COVERED_PERCENT) / 2
    low, high = np.percentile(finite, [tail, 100.0 - tail])
    return float(low), float(high)
