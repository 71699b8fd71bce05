"""Frames of which both eyes are there: what representations are learned from."""

from collections import Counter

import numpy as np

from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError

PATCHES_OF_A_PAIR = 4
"""Of two frames, each with both eyes."""


def both_eyes(samples: GazeSamples) -> GazeSamples:
    """Return the samples of frames with both eyes, ordered by frame, the left eye first."""
    order = np.lexsort((samples.eye, samples.frame, samples.session, samples.person))
    first, second = order[:-1], order[1:]
    same = np.ones(len(first), dtype=np.bool_)
    for name in ("person", "session", "frame"):
        values = getattr(samples, name)
        same &= values[first] == values[second]
    same &= (samples.eye[first] == "left") & (samples.eye[second] == "right")
    return samples[np.stack([first[same], second[same]], axis=1).ravel()]


def require_both_eyes(samples: GazeSamples, source: object) -> GazeSamples:
    """Return the samples of frames with both eyes; each person of `source` has to have pairs."""
    found = both_eyes(samples)
    sessions = zip(found.person.tolist(), found.session.tolist(), strict=True)
    counts = Counter(sessions).items()
    paired = {person for (person, _), count in counts if count >= PATCHES_OF_A_PAIR}
    if lacking := sorted(set(samples.person.tolist()) - paired):
        raise InvalidInputError(
            f"{source}: no session of {', '.join(lacking)} has two frames with both eyes; "
            "representations are learned from such pairs",
            hint="Choose the persons who have some ('poolctl dataset stats' counts them).",
        )
    return found
