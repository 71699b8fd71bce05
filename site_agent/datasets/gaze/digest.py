"""Digests by which networks trained on the same gaze data are known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import numpy as np

from site_agent.datasets.gaze.records import GazeDataset, GazeSamples

_MARK_DIGITS = 12


def gaze_digest(dataset: GazeDataset) -> str:
    """Hash the contents of a gaze data set: patches, angles, persons, sessions, frames, eyes.

    It does not depend on names of files, on their order, or on the layout: a copy in another
    layout has the same digest, if its angles have the same six decimals.
    """
    return join_digests(
        {name: person_digest(dataset.read_person(name)) for name in dataset.persons}
    )


def join_digests(persons: Mapping[str, str]) -> str:
    """Return the digest of a data set whose persons have these digests."""
    text = json.dumps(["poolctl-gaze/1", sorted(persons.items())], separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def person_digests(samples: GazeSamples) -> dict[str, str]:
    """Return the digest of each person's samples."""
    persons = np.unique(samples.person).tolist()
    return {name: person_digest(samples[samples.person == name]) for name in persons}


def sample_marks(samples: GazeSamples) -> tuple[str, ...]:
    """Return a short mark of each patch, by which a test on the same patches is known.

    A mark is a part of a hash; the patch cannot be recovered from it.
    """
    return tuple(
        hashlib.sha256(b"poolctl-patch/1" + patch.tobytes()).hexdigest()[:_MARK_DIGITS]
        for patch in samples.patches
    )


def person_digest(samples: GazeSamples) -> str:
    """Hash the samples of one person, whatever their order."""
    micro = np.round(np.concatenate([samples.gaze, samples.head], axis=1) * 1e6).astype(int)
    marks = []
    for i, patch in enumerate(samples.patches):
        place = [str(samples.session[i]), int(samples.frame[i]), str(samples.eye[i])]
        label = json.dumps([*place, *micro[i].tolist()], separators=(",", ":"))
        marks.append(hashlib.sha256(label.encode("ascii") + patch.tobytes()).hexdigest())
    return hashlib.sha256("".join(sorted(marks)).encode("ascii")).hexdigest()
