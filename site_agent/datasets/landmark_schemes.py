"""The 68 landmarks of iBUG's 300-W: their features and their mean face.

Landmarks are counted from 0 here. Right and left are the person's: the right eye (36 to 41) lies
on the left of an upright picture.
"""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

IBUG_PARTS = 68

PART_GROUPS: dict[str, tuple[int, ...]] = {
    "jaw": tuple(range(17)),
    "right-brow": tuple(range(17, 22)),
    "left-brow": tuple(range(22, 27)),
    "brows": tuple(range(17, 27)),
    "nose": tuple(range(27, 36)),
    "right-eye": tuple(range(36, 42)),
    "left-eye": tuple(range(42, 48)),
    "eyes": tuple(range(36, 48)),
    "mouth": tuple(range(48, 68)),
    "outer-mouth": tuple(range(48, 60)),
    "inner-mouth": tuple(range(60, 68)),
    "inner": tuple(range(17, 68)),
}
"""Names for groups of landmarks, for `expand_parts`; ``inner`` is all but the jaw."""

IBUG_MIRROR: tuple[int, ...] = (
    *range(16, -1, -1),
    *range(26, 16, -1),
    *range(27, 31),
    *range(35, 30, -1),
    *(45, 44, 43, 42, 47, 46, 39, 38, 37, 36, 41, 40),
    *range(54, 47, -1),
    *range(59, 54, -1),
    *range(64, 59, -1),
    *(67, 66, 65),
)
"""The landmark on the other side of the face, for each."""

# Mean of faces that `site_agent.datasets.synthetic` draws, made symmetric; the left half.
_HALF_FACE = (
    *((-106, -64), (-107, -34), (-106, -5), (-102, 25), (-93, 53), (-76, 77), (-55, 98)),
    *((-29, 111), (0, 116), (-76, -93), (-62, -101), (-49, -104), (-35, -103), (-21, -98)),
    *((0, -59), (0, -37), (0, -16), (0, 6), (-17, 16), (-8, 19), (0, 22), (-73, -62)),
    *((-58, -67), (-42, -67), (-27, -60), (-42, -57), (-58, -57), (-40, 53), (-25, 48)),
    *((-10, 46), (0, 47), (0, 69), (-10, 69), (-25, 64), (-34, 53), (-12, 53), (0, 53)),
    *((0, 58), (-12, 57)),
)
_HALF_NUMBERS = (
    *(*range(9), *range(17, 22), *range(27, 34), *range(36, 42)),
    *(*range(48, 52), *range(57, 60), *range(60, 63), *range(66, 68)),
)


def ibug_mean_face() -> Float64:
    """Return an upright mean face of the 68 landmarks: shape (68, 2), y down, any unit."""
    face = np.zeros((IBUG_PARTS, 2))
    for number, (x, y) in zip(_HALF_NUMBERS, _HALF_FACE, strict=True):
        face[number] = x, y
        face[IBUG_MIRROR[number]] = -x, y
    return face


def ibug_places(names: Sequence[str]) -> dict[int, int]:
    """Return the index of each iBUG number among landmarks of these names.

    Empty for another scheme. Names are numbers from 0 or from 1, or anything where there are
    just 68 (``p1`` to ``p68`` are numbers, too); numbers with gaps are an excerpt of the 68,
    counted from 0.
    """
    bare = without_prefix(names) if len(names) == IBUG_PARTS else names
    numbers = [int(name) for name in bare if name.isascii() and name.isdigit()]
    if not names:
        return {}
    first = min(numbers, default=0)
    if len(numbers) != len(names) or len(set(numbers)) != len(names):
        return {i: i for i in range(IBUG_PARTS)} if len(names) == IBUG_PARTS else {}
    if len(names) == IBUG_PARTS and max(numbers) - first == IBUG_PARTS - 1:
        return {number - first: index for index, number in enumerate(numbers)}
    # A run that begins at 0 or 1 is a scheme of its own; with gaps it is an excerpt of the 68.
    is_run = first <= 1 and max(numbers, default=0) - first == len(numbers) - 1
    if is_run or max(numbers) >= IBUG_PARTS:
        return {}
    return {number: index for index, number in enumerate(numbers)}


def without_prefix(names: Sequence[str]) -> tuple[str, ...]:
    """Return names without the letters that all have before a number: ``p1``, ``p2`` ..."""
    matches = [re.fullmatch(r"(\D*)([0-9]+)", name) for name in names]
    if len({match and match[1] for match in matches}) != 1:
        return tuple(names)
    return tuple(match[2] for match in matches if match) or tuple(names)


def expand_parts(terms: Sequence[str], names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Find the landmarks that words mean.

    Words are names of landmarks, ranges of numbers (``36-47``), or the groups of `PART_GROUPS`
    where the landmarks are iBUG's. Return the names meant, in the order of `names` (all
    landmarks), and the words that mean none.
    """
    places = ibug_places(names)
    chosen: set[str] = set()
    unknown = []
    for word in terms:
        meant = _meant_by(word, names, places)
        chosen.update(meant)
        if not meant:
            unknown.append(word)
    return tuple(name for name in names if name in chosen), unknown


def _meant_by(word: str, names: Sequence[str], places: dict[int, int]) -> set[str]:
    if word in names:
        return {word}
    group = PART_GROUPS.get(word.lower().replace("_", "-"), ())
    if group and all(number in places for number in group):
        return {names[places[number]] for number in group}
    if ends := re.fullmatch(r"(\d+)-(\d+)", word):
        first, last = int(ends[1]), int(ends[2])
        return {name for name in names if name.isdigit() and first <= int(name) <= last}
    return set()


LEFT_EYE = slice(42, 48)
"""The subject's left eye: landmarks 43..48 of the iBUG scheme, counted from 1."""
RIGHT_EYE = slice(36, 42)
"""The subject's right eye: landmarks 37..42."""
EYE_POINTS = 12
"""Landmarks of a model of the eyes alone."""


def eye_aspect_ratio(eye: NDArray[np.floating]) -> Float64:
    """Return height over width of eyes.

    `eye`, float of shape (..., 6, 2): corner, two points of the upper lid, other corner, two points
    of the lower lid.

    Returns float64, shape (...): ``(|2-6| + |3-5|) / (2 |1-4|)`` with points counted from 1; NaN
    for an eye of no width.

    Notes
    -----
    Soukupová and Čech 2016, and section V.A of the paper on merging landmark sub-models.
    """
    points = np.asarray(eye, dtype=np.float64)
    across = points[..., (1, 2, 0), :] - points[..., (5, 4, 3), :]
    lengths = np.hypot(across[..., 0], across[..., 1])
    heights, widths = lengths[..., 0] + lengths[..., 1], lengths[..., 2]
    known = widths > 0
    return np.where(known, heights / (2.0 * np.where(known, widths, 1.0)), np.nan)


def eyes_of(landmarks: NDArray[np.floating]) -> tuple[Float64, Float64]:
    """Return the points (left, right) of both eyes, each of shape (..., 6, 2).

    `landmarks`, float of shape (..., 68, 2) or (..., 12, 2): all landmarks of the iBUG scheme, or
    those of the eyes alone (37 to 48).
    """
    points = np.asarray(landmarks, dtype=np.float64)
    if points.shape[-2] == EYE_POINTS:
        return points[..., 6:, :], points[..., :6, :]
    return points[..., LEFT_EYE, :], points[..., RIGHT_EYE, :]


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
