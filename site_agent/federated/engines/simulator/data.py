"""Gaze data divided into sites, and what is held out to score the networks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from site_agent.datasets.gaze import GazeSamples, join_digests, join_samples, open_gaze
from site_agent.datasets.gaze.angles import Float64
from site_agent.datasets.gaze.digest import person_digest
from site_agent.errors import InvalidInputError
from site_agent.runs.progress import Progress, no_progress

Holdout = Literal["sessions", "persons", "none"]
HELD_OUT_SHARE = 0.2


@dataclass(frozen=True)
class PersonData:
    """The samples of one person that train, and the sessions that do not."""

    person: str
    samples: int
    held_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class SiteData:
    """Where the samples of a site are; its process reads them itself."""

    path: Path
    persons: tuple[PersonData, ...]

    @property
    def samples(self) -> int:
        return sum(each.samples for each in self.persons)

    def read(self) -> GazeSamples:
        """Return the samples with which the site trains."""
        dataset = open_gaze(self.path)
        parts = [(each, dataset.read_person(each.person)) for each in self.persons]
        return join_samples(
            [part[~np.isin(part.session, list(each.held_out))] for each, part in parts]
        )


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

    A fifth is held out: of each person with two sessions or more the last ones, or whole persons,
    drawn by SHA-256 of the seed and their names.

    Raises
    ------
    InvalidInputError
        There are too few persons or sessions.
    AnnotationFileError
        The data cannot be read.
    """
    dataset = open_gaze(path)
    outside = _drawn_persons(dataset.persons, seed) if holdout == "persons" else frozenset()
    digests, training, held_out = {}, [], []
    total = np.zeros(2)
    for number, person in enumerate(dataset.persons):
        progress(number / len(dataset.persons), f"reading {person}")
        samples = dataset.read_person(person)
        digests[person] = person_digest(samples)
        if person in outside:
            held_out.append(samples)
            continue
        sessions = _last_sessions(samples) if holdout == "sessions" else ()
        is_out = np.isin(samples.session, list(sessions))
        if is_out.any():
            held_out.append(samples[is_out])
        training.append(PersonData(person, int((~is_out).sum()), sessions))
        total += samples.gaze[~is_out].sum(axis=0)
    if holdout == "sessions" and not held_out:
        raise InvalidInputError(
            f"{path}: no person has two sessions, so that none can be held out",
            hint="Hold out persons instead.",
        )
    sites = _dealt(path, training, site_count)
    return DividedData(
        join_digests(digests),
        sites,
        join_samples(held_out) if held_out else None,
        total / sum(each.samples for each in training),
    )


def _dealt(path: Path, persons: list[PersonData], count: int | None) -> dict[str, SiteData]:
    if count is None:
        return {each.person: SiteData(path, (each,)) for each in persons}
    if count > len(persons):
        raise InvalidInputError(
            f"{path}: has {len(persons)} persons to train with, expected at least {count}, "
            "one for each site"
        )
    width = len(str(count))
    return {
        f"site-{number + 1:0{width}}": SiteData(path, tuple(persons[number::count]))
        for number in range(count)
    }


def _last_sessions(samples: GazeSamples) -> tuple[str, ...]:
    names = [str(name) for name in np.unique(samples.session)]
    return tuple(names[-_share_of(len(names)) :]) if len(names) > 1 else ()


def _drawn_persons(persons: tuple[str, ...], seed: int) -> frozenset[str]:
    if len(persons) < 2:
        raise InvalidInputError("there is one person, so that none can be held out")

    def drawn(person: str) -> bytes:
        return hashlib.sha256(f"poolctl-holdout/1|{seed}|{person}".encode()).digest()

    return frozenset(sorted(persons, key=drawn)[: _share_of(len(persons))])


def _share_of(count: int) -> int:
    return math.ceil(HELD_OUT_SHARE * count - 1e-9)


@cache
def read_once(data: SiteData) -> GazeSamples:
    """Return the samples of a site, which stay in the memory of its process."""
    return data.read()
