"""Views of a person that networks take, and the two numbers that they find in them.

A data set offers one view or several; an architecture takes one. So a network never sees pictures,
or learns numbers, of another kind than its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from site_agent.errors import InvalidInputError


@dataclass(frozen=True)
class Target:
    """The two numbers that a network answers with."""

    measure: str
    unit: str
    suffix: str
    """Of the names of scores, such as ``mean_error_deg``."""
    axes: tuple[str, str]
    units_in_one: float
    """How many units are one of the numbers, which have the size of angles in radians: one rate of
    learning then suits all."""
    far: float
    """Largest usual number."""
    farthest: float
    """Largest possible one."""
    moves: bool = False
    """True where a shift of the picture changes the numbers."""

    def named(self, score: str) -> str:
        """Return the name of a score in degrees, such as ``mean_error_deg``, in this unit."""
        return f"{score.removesuffix('deg')}{self.suffix}" if score.endswith("_deg") else score


ANGLES = Target("angular error", "degrees", "deg", ("yaw", "pitch"), 180 / 3.141592653589793,
                1.0472, 1.5708)  # fmt: skip
"""Direction of gaze: yaw and pitch in radians."""
SCREEN = Target("distance on the screen", "cm", "cm", ("x", "y"), 10.0, 3.0, 10.0)
"""Point of gaze on the plane of the screen, right of and above the camera, in decimetres."""
PUPIL = Target("distance of the pupil", "px", "px", ("x", "y"), 640.0, 0.5, 0.5, moves=True)
"""Pupil's centre, right of and below the picture's middle, in widths of the picture; a picture
counts as 640 px wide, as those of LPW are."""


@dataclass(frozen=True)
class View:
    """One kind of picture, with its target."""

    name: str
    description: str
    shape: tuple[int, ...]
    """Of one sample's pictures, uint8: (height, width) in grey, or (channels, height, width)."""
    target: Target = ANGLES


GRID_CELLS, GRID_CHANNEL = 25, 9
"""Of the face grid, which is the channel behind three pictures in colour."""

VIEWS: Mapping[str, View] = {
    view.name: view
    for view in (
        View("eye", "eye patches of 60 x 36 pixels with head angles", (36, 60)),
        View("face", "full faces of 224 x 224 pixels", (3, 224, 224)),
        View("face-448", "full faces of 448 x 448 pixels", (3, 448, 448)),
        View(
            "face-eyes-grid", "face, left eye and right eye of 224 x 224 pixels with the face grid",
            (10, 224, 224), SCREEN,
        ),
        View("near-eye", "infrared pictures of one eye, 127 x 127 pixels", (1, 127, 127)),
        View(
            "near-eye-pupil", "infrared pictures of one eye, 127 x 127 pixels, with the pupil",
            (1, 127, 127), PUPIL,
        ),
    )
}  # fmt: skip
"""By name; a new one is a line."""
EYE = VIEWS["eye"]


def find_view(name: object, where: str) -> View:
    """Return the view of a name; `where`: the asker, for errors."""
    if name not in VIEWS:
        expected = ", ".join(VIEWS)
        raise InvalidInputError(f"{where}: found the view {name!r}, expected one of {expected}")
    return VIEWS[str(name)]
