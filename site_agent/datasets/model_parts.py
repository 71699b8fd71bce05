"""Finding which landmarks of a data set a model places when it does not place all of them.

A model file holds no names of landmarks, but it holds its mean shape. The mean shapes of the groups
of iBUG's landmarks differ, so a model of such a group is recognised wherever it comes from: merged,
refined, downloaded. Any other excerpt has to be named.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.landmark_schemes import (
    IBUG_PARTS,
    PART_GROUPS,
    expand_parts,
    ibug_mean_face,
    ibug_places,
)
from site_agent.datasets.part_order import as_complex, misfit_and_turn

# Of mean shapes on photographs and drawn faces: 0.003 to 0.07 of their own group, 0.74 and more of
# another one of as many landmarks, on the same side of the face.
_LARGEST_MISFIT = 0.16
_LARGEST_TURN_RAD = np.radians(30)
_NUMBERS = tuple(str(number) for number in range(IBUG_PARTS))


def find_model_parts(
    names: Sequence[str], initial_shape: NDArray[np.floating], words: Sequence[str] = ()
) -> tuple[tuple[str, ...], list[str]]:
    """Find the landmarks of a data set that a model places.

    `words` are what the user calls them, as in `expand_parts`. Without any: all where the numbers
    are equal, else the group of iBUG's landmarks that the mean shape (in box coordinates) shows.

    Returns
    -------
    (parts, unknown)
        The names in the model's order, none where nothing is known; and words that mean none.
    """
    if words:
        return expand_parts(words, names)
    if len(names) == len(initial_shape):
        return tuple(names), []
    group = group_of_shape(initial_shape, names)
    return expand_parts([group], names) if group else ((), [])


def group_of_shape(
    initial_shape: NDArray[np.floating], names: Sequence[str] = _NUMBERS
) -> str | None:
    """Return the group of `PART_GROUPS` whose landmarks a model places, or None.

    `initial_shape` is in box coordinates; models have landmarks in the order of their names.
    """
    number_of = {index: number for number, index in ibug_places(names).items()}
    ordered = [number_of[index] for index in sorted(number_of)]
    face = ibug_mean_face()
    shape = np.asarray(initial_shape, dtype=np.float64)
    misfits = {}
    for group, numbers in PART_GROUPS.items():
        members = [number for number in ordered if number in numbers]
        if len(members) == len(numbers) == len(shape) and _same_side(shape, face[members]):
            misfits[group] = _misfit(shape, face[members])
    best = min(misfits, key=lambda group: misfits[group], default=None)
    return best if best is not None and misfits[best] <= _LARGEST_MISFIT else None


def _same_side(shape: NDArray[np.float64], like: NDArray[np.float64]) -> bool:
    """Return whether a shape lies in the same half of its box as in the mean face.

    The two eyes, and the two brows, are alike but for their places.
    """
    centre = float(like[:, 0].mean())
    if abs(centre) < 0.1 * float(np.ptp(ibug_mean_face()[:, 0])):
        return True
    return (float(shape[:, 0].mean()) > 0.5) == (centre > 0)


def _misfit(shape: NDArray[np.float64], like: NDArray[np.float64]) -> float:
    misfit, turn_rad = misfit_and_turn(as_complex(shape), as_complex(like))
    return 1.0 if abs(turn_rad) > _LARGEST_TURN_RAD else misfit
