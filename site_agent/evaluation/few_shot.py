"""What features of eye patches are worth: linear gaze heads that are fitted to few labelled shots.

A head is ridge regression from features to yaw and pitch. It has one solution, so that features are
compared and not the luck of a training. The penalty is that of the smallest leave-one-out error,
which needs no samples but the shots.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze import angular_errors_deg

Float64 = NDArray[np.float64]
Index = NDArray[np.intp]

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Relative to the number of shots, for features of standard deviation 1."""
_LEAST_DEVIATION = 1e-6
_FEWEST_FOR_SLOPES = 3


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Yaw and pitch in radians as a linear function of features.

    `weight` (float64, shape (2, features)). `bias` (float64, shape (2,)).
    """

    weight: Float64
    bias: Float64

    def __call__(self, features: Float64) -> Float64:
        """Return yaw and pitch, shape (n, 2), of features (n, features)."""
        return features @ self.weight.T + self.bias


def fit_head(features: Float64, gaze: Float64) -> LinearHead:
    """Fit a head to shots.

    `features` (float64, shape (shots, features)): No features are allowed: the head then always
    answers the mean gaze. `gaze` (float64, shape (shots, 2)): Yaw and pitch in radians; at least 1.
    """
    mean = gaze.mean(axis=0)
    if features.shape[1] == 0 or len(features) < _FEWEST_FOR_SLOPES:
        return LinearHead(np.zeros((2, features.shape[1])), mean)
    centre = features.mean(axis=0)
    deviation = features.std(axis=0)
    # A feature that never changes says nothing.
    scale = np.where(deviation > _LEAST_DEVIATION, 1 / np.maximum(deviation, _LEAST_DEVIATION), 0)
    left, sizes, right = np.linalg.svd((features - centre) * scale, full_matrices=False)
    targets = left.T @ (gaze - mean)
    errors = []
    for penalty in PENALTIES:
        kept = sizes**2 / (sizes**2 + penalty * len(features))
        leverage = np.minimum((left**2) @ kept + 1 / len(features), 1 - 1e-9)
        residual = gaze - mean - left @ (kept[:, None] * targets)
        errors.append(float(np.square(residual / (1 - leverage)[:, None]).sum()))
    penalty = PENALTIES[int(np.argmin(errors))] * len(features)
    slopes = (right.T * (sizes / (sizes**2 + penalty))) @ targets
    weight = (scale[:, None] * slopes).T
    return LinearHead(weight, mean - weight @ centre)


def few_shot_error(
    features: Float64, gaze: Float64, test_features: Float64, test_gaze: Float64
) -> float:
    """Return the mean angular error in degrees on test samples of a head fitted to shots."""
    found = fit_head(features, gaze)(test_features)
    return float(angular_errors_deg(found, test_gaze).mean())


def split_shots(count: int, most: int) -> tuple[Index, Index]:
    """Return which of a person's samples are shots, and which are the test.

    Shots are at most `most` of the first half, at equal distances; the second half is the test.
    """
    half = count // 2
    shots = np.linspace(0, half - 1, min(most, half)).round().astype(np.intp)
    return shots, np.arange(half, count)


def draw_shots(count: int, shots: int, seed: int) -> Index:
    """Return the numbers of `shots` of `count` samples, drawn at random; more shots keep the first.

    Shots of one seed are nested: the first five of a hundred are those of five.
    """
    return np.random.default_rng([0x5407, seed]).permutation(count)[:shots]


@dataclass(frozen=True, eq=False)
class PrincipalComponents:
    """The directions in which patches differ most.

    `mean` (float64, shape (pixels,)). `directions` (float64, shape (components, pixels)):
    Orthonormal, the largest variance first.
    """

    mean: Float64
    directions: Float64

    def __call__(self, patches: Float64) -> Float64:
        """Return components, shape (n, components), of patches (n, pixels)."""
        return (patches - self.mean) @ self.directions.T


def find_components(patches: Float64, count: int) -> PrincipalComponents:
    """Return the principal components of patches, float64 (n, pixels); at most n of them."""
    mean = patches.mean(axis=0)
    centred = patches - mean
    # Of both products, the smaller one.
    if len(patches) < patches.shape[1]:
        _, vectors = np.linalg.eigh(centred @ centred.T)
        chosen = centred.T @ vectors[:, ::-1][:, :count]
        lengths = np.maximum(np.linalg.norm(chosen, axis=0), _LEAST_DEVIATION)
        return PrincipalComponents(mean, (chosen / lengths).T)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return PrincipalComponents(mean, vectors[:, ::-1][:, :count].T)
