"""Numbers of a gaze data set: persons, sessions, counts and ranges of angles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.datasets.gaze.angles import Float64, angular_errors_deg
from site_agent.datasets.gaze.digest import person_digest
from site_agent.datasets.gaze.records import GazeDataset, GazeSamples
from site_agent.runs.progress import Progress, no_progress


@dataclass(frozen=True)
class Spread:
    """Mean and percentiles of angles in degrees."""

    mean: float
    p5: float
    p95: float


@dataclass(frozen=True)
class PersonStatistics:
    """Numbers of one person; `both_eyes` counts frames of which both eyes are there.

    `constant_error_deg` is the mean error of always predicting this person's mean direction: how
    hard the person's own data is.
    """

    person: str
    samples: int
    sessions: int
    left: int
    right: int
    both_eyes: int
    yaw: Spread
    pitch: Spread
    head_yaw: Spread
    head_pitch: Spread
    brightness: float
    constant_error_deg: float
    digest: str


def gaze_statistics(
    dataset: GazeDataset, progress: Progress = no_progress
) -> list[PersonStatistics]:
    """Return the numbers of each person, read one after the other.

    Raises
    ------
    AnnotationFileError
        A file is damaged or missing.
    """
    found = []
    for done, person in enumerate(dataset.persons):
        progress(done / len(dataset.persons), f"person {person}")
        found.append(_of_person(person, dataset.read_person(person)))
    return found


def _of_person(person: str, samples: GazeSamples) -> PersonStatistics:
    right = samples.eye == "right"
    frames = [
        set(zip(samples.session[eye].tolist(), samples.frame[eye].tolist(), strict=True))
        for eye in (right, ~right)
    ]
    constant = np.broadcast_to(samples.gaze.mean(axis=0), samples.gaze.shape)
    return PersonStatistics(
        person=person,
        samples=len(samples),
        sessions=len(np.unique(samples.session)),
        left=int((~right).sum()),
        right=int(right.sum()),
        both_eyes=len(frames[0] & frames[1]),
        yaw=_spread(samples.gaze[:, 0]),
        pitch=_spread(samples.gaze[:, 1]),
        head_yaw=_spread(samples.head[:, 0]),
        head_pitch=_spread(samples.head[:, 1]),
        brightness=float(samples.patches.mean()),
        constant_error_deg=float(angular_errors_deg(samples.gaze, constant).mean()),
        digest=person_digest(samples),
    )


def _spread(angles: Float64) -> Spread:
    degrees = np.rad2deg(angles)
    low, high = np.percentile(degrees, [5, 95])
    return Spread(float(degrees.mean()), float(low), float(high))
