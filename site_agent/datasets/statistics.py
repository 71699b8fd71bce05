"""How far the eyes of annotated faces are open."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.landmark_schemes import PART_GROUPS, eye_aspect_ratio, ibug_places

Float64 = NDArray[np.float64]


def mean_eye_aspect_ratio(shapes: Float64, names: Sequence[str]) -> Float64 | None:
    """Return the mean eye aspect ratio of both eyes of faces, shape (faces, parts, 2).

    NaN where an eye is not marked; None where the landmarks have no eyes of iBUG's scheme.
    """
    places = ibug_places(names)
    eyes = [PART_GROUPS["right-eye"], PART_GROUPS["left-eye"]]
    if any(number not in places for eye in eyes for number in eye):
        return None
    right, left = (eye_aspect_ratio(shapes[:, [places[number] for number in eye]]) for eye in eyes)
    return (right + left) / 2.0
