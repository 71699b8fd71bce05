"""What a landmark error in pixels is divided by, so that large and small faces count alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.landmark_schemes import PART_GROUPS, ibug_places
from site_agent.errors import EvaluationError

Float64 = NDArray[np.float64]

_IBUG_EYES = (PART_GROUPS["right-eye"], PART_GROUPS["left-eye"])
_IBUG_OUTER_CORNERS = (range(36, 37), range(45, 46))
NAMES = ("inter-ocular", "outer-corners", "box", "none")


@dataclass(frozen=True)
class Normaliser:
    """A length in the face.

    Attributes
    ----------
    name : str
        ``"inter-ocular"``: distance of the eye centres, each the mean of the six points around
        the eye (the paper's). ``"outer-corners"``: distance of the outer eye corners. ``"box"``:
        square root of the box's area. ``"none"``: 1, for errors in pixels. ``"parts"``: distance
        between the means of two named groups of landmarks.
    first, second : tuples of int
        Indices of the landmarks of the two groups, empty for ``"box"`` and ``"none"``.
    """

    name: str
    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()

    def scale(self, parts: Float64, corners: tuple[int, int, int, int]) -> float:
        """Return the length in pixels, NaN where a landmark of it is not marked.

        Parameters
        ----------
        parts : float64, shape (parts, 2)
            True landmarks, NaN where one is not marked.
        """
        if self.name == "none":
            return 1.0
        if self.name == "box":
            left, top, right, bottom = corners
            return math.sqrt((right - left + 1) * (bottom - top + 1))
        between = parts[list(self.first)].mean(axis=0) - parts[list(self.second)].mean(axis=0)
        return float(np.hypot(*between))


def normaliser_for(names: Sequence[str], wanted: str | None = None) -> Normaliser:
    """Choose a normaliser for landmarks of these names.

    Parameters
    ----------
    wanted : str, optional
        One of `NAMES`, or two groups of part names, ``"36,39/42,45"``. By default
        ``"inter-ocular"`` where the landmarks are iBUG's 68, or an excerpt of them that is named
        by their numbers and has both eyes; ``"box"`` otherwise.

    Raises
    ------
    EvaluationError
        An unknown name, or landmarks that the scheme does not have.
    """
    if wanted is None:
        eyes = _ibug_groups(names, _IBUG_EYES)
        return Normaliser("inter-ocular", *eyes) if eyes else Normaliser("box")
    if wanted in ("box", "none"):
        return Normaliser(wanted)
    if wanted in ("inter-ocular", "outer-corners"):
        numbers = _IBUG_EYES if wanted == "inter-ocular" else _IBUG_OUTER_CORNERS
        groups = _ibug_groups(names, numbers)
        if groups is None:
            raise EvaluationError(
                f"the normaliser {wanted!r} needs the eyes of the 68-landmark scheme, and there "
                f"are {len(names)} landmarks; use 'box', or name two groups of parts: '1,2/5,6'"
            )
        return Normaliser(wanted, *groups)
    if wanted.count("/") == 1:
        first, second = (_named_group(names, group) for group in wanted.split("/"))
        return Normaliser("parts", first, second)
    raise EvaluationError(
        f"unknown normaliser {wanted!r}; expected {', '.join(NAMES)}, "
        "or two groups of parts '1,2/5,6'"
    )


def _ibug_groups(
    names: Sequence[str], groups: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Indices of the landmarks with these iBUG numbers, None where there are none."""
    place = ibug_places(names)
    if any(number not in place for group in groups for number in group):
        return None
    first, second = (tuple(place[number] for number in group) for group in groups)
    return first, second


def _named_group(names: Sequence[str], text: str) -> tuple[int, ...]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in wanted if name not in names]
    if not wanted or unknown:
        raise EvaluationError(
            f"no landmark is called {', '.join(map(repr, unknown)) or 'nothing'}; "
            f"there are {', '.join(names[:8])}{' ...' if len(names) > 8 else ''}"
        )
    return tuple(names.index(name) for name in wanted)
