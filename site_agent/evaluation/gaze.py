"""Scores of a gaze network: angles between the gaze that it finds and the true one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze import GazeSamples, angular_errors_deg
from site_agent.errors import EvaluationError
from site_agent.evaluation.bootstrap import Interval, bootstrap_intervals
from site_agent.runs.progress import Progress, no_progress

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class PersonScore:
    """The mean angular error of one person, and that of the constant mean gaze."""

    person: str
    samples: int
    mean_error_deg: float
    constant_error_deg: float


@dataclass(frozen=True, eq=False)
class GazeScores:
    """Angular errors of a network on eye patches.

    `mean_error_deg`, `median_error_deg`: Over all samples: the angle between the true direction and
    that found. `constant_error_deg`: Mean error of a predictor that always answers the mean gaze of
    these samples; a network that is not much better has learned nothing. `gaze` (float64, shape (n,
    2)): True yaw and pitch in radians.
    """

    mean_error_deg: float
    median_error_deg: float
    constant_error_deg: float
    persons: tuple[PersonScore, ...]
    intervals: dict[str, Interval]
    errors_deg: Float64 = field(repr=False)
    gaze: Float64 = field(repr=False)

    @property
    def images(self) -> int:
        """Number of eye patches."""
        return len(self.errors_deg)

    @property
    def faces(self) -> int:
        """Number of eye patches, each of one face."""
        return len(self.errors_deg)

    @property
    def metrics(self) -> dict[str, float]:
        """The headline numbers by name; those of persons say how fair a network is."""
        means = np.array([each.mean_error_deg for each in self.persons])
        return {
            "mean_error_deg": self.mean_error_deg,
            "median_error_deg": self.median_error_deg,
            "constant_error_deg": self.constant_error_deg,
            "person_mean_error_deg": float(means.mean()),
            "best_person_error_deg": float(means.min()),
            "worst_person_error_deg": float(means.max()),
            "person_range_deg": float(np.ptp(means)),
            "person_sd_deg": float(means.std(ddof=1)) if len(means) > 1 else 0.0,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "kind": "network",
            **self.metrics,
            "samples": len(self.errors_deg),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "persons": [asdict(each) for each in self.persons],
        }


def evaluate_networks(
    networks: Sequence[Path],
    samples: GazeSamples,
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = no_progress,
) -> list[GazeScores]:
    """Score networks on the same samples."""
    from site_agent.networks import predict_gaze, read_network, to_module
    from site_agent.networks.architectures import require_kind

    if not len(samples):
        raise EvaluationError("there are no samples to score networks on")
    scores = []
    for done, path in enumerate(networks):
        progress(done / len(networks), path.name)
        network = read_network(path)
        module = to_module(network, str(path))
        require_kind(network.metadata["architecture"], "gaze", str(path))
        found = predict_gaze(module, samples.patches, samples.head)
        scores.append(score_gaze(found, samples, resamples=resamples, seed=seed))
    return scores


def score_gaze(
    found: Float64, samples: GazeSamples, *, resamples: int = 1000, seed: int = 0
) -> GazeScores:
    """Score yaws and pitches, float64 (n, 2) in radians, that were found for samples."""
    errors = angular_errors_deg(found, samples.gaze)
    constant = np.broadcast_to(samples.gaze.mean(axis=0), samples.gaze.shape)
    constants = angular_errors_deg(constant, samples.gaze)
    names, person_of_sample = np.unique(samples.person, return_inverse=True)
    units = person_of_sample
    if len(names) == 1:
        _, units = np.unique(samples.session, return_inverse=True)
    statistics = _Statistics(errors, constants, units)
    count = int(units.max()) + 1
    persons = []
    for number, name in enumerate(names.tolist()):
        own = person_of_sample == number
        means = (float(errors[own].mean()), float(constants[own].mean()))
        persons.append(PersonScore(name, int(own.sum()), *means))
    return GazeScores(
        **statistics(np.ones(count, dtype=np.int64)),
        persons=tuple(persons),
        intervals=bootstrap_intervals(statistics, count, resamples=resamples, seed=seed),
        errors_deg=errors,
        gaze=samples.gaze,
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
