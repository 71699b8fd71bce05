"""Gaze data divided into sites, and scores on the samples that are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from aggregators.models import StateDict
from site_agent.datasets.gaze import (
    GazeSamples,
    angular_errors_deg,
    join_digests,
    join_samples,
    open_gaze,
)
from site_agent.datasets.gaze.records import (
    HELD_OUT_SHARE,
    Float64,
    held_out_sessions,
    person_digest,
)
from site_agent.errors import InvalidInputError
from site_agent.runs.progress import Progress, no_progress
from site_agent.runs.workers import processor_count

Holdout = Literal["sessions", "persons", "none"]


@dataclass(frozen=True)
class SiteData:
    """Where the samples of a site are; its process reads them itself.

    Attributes
    ----------
    samples : int
        Number of those that train.
    """

    path: Path
    persons: tuple[str, ...]
    samples: int
    without_held_out_sessions: bool

    def read(self) -> GazeSamples:
        """Return the samples with which the site trains."""
        samples = open_gaze(self.path).read(self.persons)
        return samples[~held_out_sessions(samples)] if self.without_held_out_sessions else samples


@dataclass(frozen=True, eq=False)
class DividedData:
    """Gaze data for a federation.

    Attributes
    ----------
    digest : str
        Of all the data; see `gaze_digest`.
    sites : mapping of str to SiteData
    held_out : GazeSamples or None
        What no site trains with.
    mean_gaze : float64, shape (2,)
        Mean yaw and pitch in radians of the samples that train.
    """

    digest: str
    sites: Mapping[str, SiteData]
    held_out: GazeSamples | None
    mean_gaze: Float64


def divide(
    path: Path,
    *,
    site_count: int | None = None,
    holdout: Holdout = "sessions",
    seed: int = 0,
    progress: Progress = no_progress,
) -> DividedData:
    """Divide gaze data: each person is a site, or the persons are dealt to some sites.

    A fifth is held out: sessions, as `held_out_sessions` chooses them, or persons, drawn by
    SHA-256 of the seed and their names.

    Raises
    ------
    InvalidInputError
        There are too few persons or sessions.
    AnnotationFileError
        The data cannot be read.
    """
    dataset = open_gaze(path)
    outside = _draw_persons(dataset.persons, seed) if holdout == "persons" else frozenset()
    digests, counts, held_out = {}, {}, []
    total = np.zeros(2)
    for number, person in enumerate(dataset.persons):
        progress(number / len(dataset.persons), f"reading {person}")
        samples = dataset.read_person(person)
        digests[person] = person_digest(samples)
        is_out = np.full(len(samples), person in outside)
        if holdout == "sessions":
            is_out = held_out_sessions(samples)
        if is_out.any():
            held_out.append(samples[is_out])
        if person not in outside:
            counts[person] = int((~is_out).sum())
        total += samples.gaze[~is_out].sum(axis=0)
    if holdout == "sessions" and not held_out:
        raise InvalidInputError(
            f"{path}: no person has two sessions, so that none can be held out",
            hint="Hold out persons instead.",
        )
    sites = {
        site: SiteData(
            path, persons, sum(counts[person] for person in persons), holdout == "sessions"
        )
        for site, persons in _deal(path, list(counts), site_count).items()
    }
    return DividedData(
        join_digests(digests),
        sites,
        join_samples(held_out) if held_out else None,
        total / sum(counts.values()),
    )


def _deal(path: Path, persons: list[str], count: int | None) -> dict[str, tuple[str, ...]]:
    if count is None:
        return {person: (person,) for person in persons}
    if count > len(persons):
        raise InvalidInputError(
            f"{path}: has {len(persons)} persons to train with, expected at least {count}, "
            "one for each site"
        )
    width = len(str(count))
    return {f"site-{number + 1:0{width}}": tuple(persons[number::count]) for number in range(count)}


def _draw_persons(persons: tuple[str, ...], seed: int) -> frozenset[str]:
    if len(persons) < 2:
        raise InvalidInputError("there is one person, so that none can be held out")

    def drawn(person: str) -> bytes:
        return hashlib.sha256(f"poolctl-holdout/1|{seed}|{person}".encode()).digest()

    count = max(1, round(HELD_OUT_SHARE * len(persons)))
    return frozenset(sorted(persons, key=drawn)[:count])


@cache
def read_once(data: SiteData) -> GazeSamples:
    """Return the samples of a site, which stay in the memory of its process."""
    return data.read()


@dataclass(frozen=True)
class PersonErrors:
    """Mean angle in degrees between found and true gaze, for each person."""

    by_person: Mapping[str, float]

    @property
    def mean_deg(self) -> float:
        """Mean over persons, each person counts the same."""
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
