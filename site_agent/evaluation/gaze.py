"""Scores of a gaze network: angles between the gaze that it finds and the true one.

Features of eye patches are scored by linear heads fitted to few labelled shots: ridge regression
from features to yaw and pitch. It has one solution, so that features are compared and not the luck
of a training. The penalty is that of the smallest error on sessions left out, one after the other,
or on single shots of one session: with pictures of its own session next to it, a shot tells too
little of other days.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze.records import GazeSamples, angular_errors_deg, target_errors
from site_agent.errors import EvaluationError
from site_agent.evaluation import Interval, bootstrap_intervals
from site_agent.networks.architectures import find_architecture, require_kind
from site_agent.networks.files import read_network
from site_agent.networks.views import ANGLES, Target
from site_agent.work import Progress, no_progress

Float64 = NDArray[np.float64]
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PersonScore:
    """The mean error of one person, and that of the constant mean gaze, in the target's unit."""

    person: str
    samples: int
    mean_error_deg: float
    constant_error_deg: float


@dataclass(frozen=True, eq=False)
class GazeScores:
    """Errors of a gaze network, in the unit of its target."""

    mean_error_deg: float
    median_error_deg: float
    """Over all samples: the angle between the true direction and that found."""
    constant_error_deg: float
    """Mean error of a predictor that always answers the mean gaze of these samples; a network that
    is not much better has learned nothing."""
    persons: tuple[PersonScore, ...]
    intervals: dict[str, Interval]
    errors_deg: Float64 = field(repr=False)
    gaze: Float64 = field(repr=False)
    """Of shape (n, 2). True yaw and pitch in radians, or the numbers of the target."""
    target: Target = ANGLES

    @property
    def protocol(self) -> str:
        """A few words on how the scores were measured, so that only like is compared with like."""
        return self.target.measure

    @property
    def images(self) -> int:
        """Number of samples."""
        return len(self.errors_deg)

    @property
    def faces(self) -> int:
        """Number of samples, each of one face."""
        return len(self.errors_deg)

    @property
    def metrics(self) -> dict[str, float]:
        """The headline numbers by name; those of persons say how fair a network is."""
        means = np.array([person.mean_error_deg for person in self.persons])
        metrics = {
            "mean_error_deg": self.mean_error_deg,
            "median_error_deg": self.median_error_deg,
            "constant_error_deg": self.constant_error_deg,
            "person_mean_error_deg": float(means.mean()),
            "best_person_error_deg": float(means.min()),
            "worst_person_error_deg": float(means.max()),
            "person_range_deg": float(np.ptp(means)),
            "person_sd_deg": float(means.std(ddof=1)) if len(means) > 1 else 0.0,
        }
        return {self.named(name): value for name, value in metrics.items()}

    def named(self, name: str) -> str:
        """Return the name of a score, such as ``mean_error_deg``, in the target's unit."""
        return self.target.named(name)

    def to_dict(self, *, per_image: bool = False) -> dict[str, Any]:  # noqa: ARG002
        """Return plain data for JSON; of eye patches there is nothing to say one by one."""
        return {
            "kind": "network",
            **self.metrics,
            "samples": len(self.errors_deg),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "persons": [
                {self.named(key): item for key, item in asdict(person).items()}
                for person in self.persons
            ],
        }


def evaluate_networks(
    networks: Sequence[Path],
    samples: GazeSamples,
    *,
    resamples: int = 1000,
    progress: Progress = no_progress,
) -> list[GazeScores]:
    """Score networks on the same samples."""
    from site_agent.networks.modules import predict_gaze, to_module

    if not len(samples):
        raise EvaluationError("there are no samples to score networks on")
    scores = []
    for number, path in enumerate(networks):
        progress(number / len(networks), f"network {number + 1} of {len(networks)}")
        network = read_network(path)
        module = to_module(network, str(path))
        name = network.metadata["architecture"]
        require_kind(name, "gaze", str(path))
        predicted = predict_gaze(module, samples.patches, samples.head)
        target = find_architecture(name).view.target
        for doubt in convention_doubts(predicted, samples, target):
            _log.warning("%s: %s", path, doubt)
        scores.append(score_gaze(predicted, samples, target=target, resamples=resamples))
    return scores


_FEWEST_TO_DOUBT, _CLEAR = 50, 0.5


def convention_doubts(
    predicted: Float64, samples: GazeSamples, target: Target = ANGLES
) -> Iterator[str]:
    """Say where the numbers of a network and of the labels, shape (n, 2), run against each other.

    Right and left eyes are looked at apart: one of them may be mirrored.
    """
    question = "are labels or pictures of another convention, or mirrored?"
    for eye in np.unique(samples.eye).tolist():
        at = samples.eye == eye
        if at.sum() < _FEWEST_TO_DOUBT:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            alike = np.corrcoef(predicted[at].T, samples.gaze[at].T)[:2, 2:]
        first, second = target.axes
        for axis, same in zip(target.axes, alike.diagonal(), strict=True):
            if same < -_CLEAR:
                yield (
                    f"{axis} falls as that of the labels rises ({eye} eyes, correlation "
                    f"{same:.2f}): {question}"
                )
        crossed = np.abs(alike[[0, 1], [1, 0]])
        if crossed.min() > _CLEAR > np.abs(alike.diagonal()).max():
            yield (
                f"{first} follows the {second} of the labels, and {second} the {first} ({eye} "
                f"eyes, correlations {crossed[0]:.2f} and {crossed[1]:.2f}): {question}"
            )


def score_gaze(
    predicted: Float64, samples: GazeSamples, *, target: Target = ANGLES, resamples: int = 1000
) -> GazeScores:
    """Score the numbers of a target, float64 (n, 2), that were found for samples."""
    errors = target_errors(target, predicted, samples.gaze)
    constant = np.broadcast_to(samples.gaze.mean(axis=0), samples.gaze.shape)
    constants = target_errors(target, constant, samples.gaze)
    names, person_of_sample = np.unique(samples.person, return_inverse=True)
    units = person_of_sample
    if len(names) == 1:
        _, units = np.unique(samples.session, return_inverse=True)
    statistics = _Statistics(errors, constants, units)
    count = int(units.max()) + 1
    persons = []
    for number, name in enumerate(names.tolist()):
        of_person = person_of_sample == number
        means = (float(errors[of_person].mean()), float(constants[of_person].mean()))
        persons.append(PersonScore(name, int(of_person.sum()), *means))
    return GazeScores(
        **statistics(np.ones(count, dtype=np.int64)),
        persons=tuple(persons),
        intervals={
            target.named(name): ends
            for name, ends in bootstrap_intervals(statistics, count, resamples=resamples).items()
        },
        errors_deg=errors,
        gaze=samples.gaze,
        target=target,
    )


class _Statistics:
    def __init__(self, errors: Float64, constants: Float64, units: NDArray[np.intp]) -> None:
        self._units = units
        self._order = np.argsort(errors, kind="stable")
        self._errors = errors
        sums = [np.bincount(units, weights) for weights in (errors, constants)]
        self._sums, self._constant_sums = sums
        self._counts = np.bincount(units)

    def __call__(self, times: NDArray[np.int64]) -> dict[str, float]:
        total = int((times * self._counts).sum())
        ends = np.cumsum(times[self._units[self._order]])
        middle = np.searchsorted(ends, [(total - 1) // 2, total // 2], side="right")
        return {
            "mean_error_deg": float((times * self._sums).sum()) / total,
            "median_error_deg": float(self._errors[self._order[middle]].mean()),
            "constant_error_deg": float((times * self._constant_sums).sum()) / total,
        }


Index = NDArray[np.intp]

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Relative to the number of shots, for features of standard deviation 1."""
_LEAST_DEVIATION = 1e-6
_FEWEST_FOR_SLOPES = 3


@dataclass(frozen=True, eq=False)
class LinearHead:
    """Yaw and pitch in radians as a linear function of features."""

    weight: Float64
    """float64, shape (2, features)."""
    bias: Float64
    """float64, shape (2,)."""

    def __call__(self, features: Float64) -> Float64:
        """Return yaw and pitch, shape (n, 2), of features (n, features)."""
        return features @ self.weight.T + self.bias


def fit_head(
    features: Float64, gaze: Float64, sessions: NDArray[np.str_] | None = None
) -> LinearHead:
    """Fit a head to shots.

    `features` (float64, shape (shots, features)): No features are allowed: the head then always
    answers the mean gaze. `gaze` (float64, shape (shots, 2)): Yaw and pitch in radians; at least 1.
    `sessions`: Of the shots; None: unknown.
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
    names = np.unique(sessions) if sessions is not None else ()
    groups = [np.flatnonzero(sessions == name) for name in names]
    if len(groups) < 2:
        groups = list(np.arange(len(features))[:, None])
    errors = []
    for penalty in PENALTIES:
        kept = sizes**2 / (sizes**2 + penalty * len(features))
        residual = gaze - mean - left @ (kept[:, None] * targets)
        error = 0.0
        for group in groups:
            leverage = (left[group] * kept) @ left[group].T + 1 / len(features)
            rest = (1 + 1e-9) * np.eye(len(group)) - leverage
            error += float(np.square(np.linalg.solve(rest, residual[group])).sum())
        errors.append(error)
    penalty = PENALTIES[int(np.argmin(errors))] * len(features)
    slopes = (right.T * (sizes / (sizes**2 + penalty))) @ targets
    weight = (scale[:, None] * slopes).T
    return LinearHead(weight, mean - weight @ centre)


def few_shot_error(
    features: Float64,
    gaze: Float64,
    test_features: Float64,
    test_gaze: Float64,
    sessions: NDArray[np.str_] | None = None,
) -> float:
    """Return the mean angular error in degrees on test samples of a head fitted to shots.

    `sessions`: Of the shots, as for `fit_head`.
    """
    predicted = fit_head(features, gaze, sessions)(test_features)
    return float(angular_errors_deg(predicted, test_gaze).mean())


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
    """The directions in which patches differ most."""

    mean: Float64
    """float64, shape (pixels,)."""
    directions: Float64
    """float64, shape (components, pixels); orthonormal, the largest variance first."""

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
