"""Errors of networks on the samples that were held out, person by person."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from aggregators.models import StateDict
from site_agent.datasets.gaze import GazeSamples, angular_errors_deg
from site_agent.datasets.gaze.records import Float64
from site_agent.runs.workers import processor_count


@dataclass(frozen=True)
class PersonErrors:
    """Mean angle in degrees between found and true gaze, for each person."""

    by_person: Mapping[str, float]

    @property
    def mean_deg(self) -> float:
        """Mean over persons, each of whom counts the same."""
        return float(np.mean(list(self.by_person.values())))

    @property
    def worst(self) -> str:
        """The person with the largest error."""
        return max(self.by_person, key=lambda person: self.by_person[person])

    @property
    def worst_deg(self) -> float:
        return self.by_person[self.worst]

    @property
    def best_deg(self) -> float:
        return min(self.by_person.values())


def score_network(network: StateDict, samples: GazeSamples) -> PersonErrors:
    """Return the errors of a network."""
    from site_agent.networks import predict_gaze, to_module
    from site_agent.training.gaze.loop import repeatable

    with repeatable(processor_count()):
        found = predict_gaze(to_module(network), samples.patches, samples.head)
    return _by_person(found, samples)


def score_constant(gaze: Float64, samples: GazeSamples) -> PersonErrors:
    """Return the errors of a predictor that knows no patch: it always says `gaze`, shape (2,)."""
    return _by_person(np.tile(gaze, (len(samples), 1)), samples)


def _by_person(found: Float64, samples: GazeSamples) -> PersonErrors:
    errors = angular_errors_deg(found, samples.gaze)
    names = sorted({str(person) for person in samples.person})
    return PersonErrors({name: float(errors[samples.person == name].mean()) for name in names})
