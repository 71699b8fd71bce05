"""The geometry of a drawn head: outline, landmarks, relief, and its projection into a picture.

The head is a relief: a height z over the frontal plane (x right, y down, z towards the viewer;
face units, see `persons`). Turning it by up to about 25 degrees folds nothing, so that a picture
can be made by looking up, for every pixel, which place of the frontal plane is seen there.
Landmarks lie on the same relief and therefore follow every pose exactly.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from site_agent.datasets.synthetic import canvas
from site_agent.datasets.synthetic.persons import Person

Side = Literal[-1, 1]

# The part of the frontal plane that is modelled, and the fineness of the relief.
LEFT, RIGHT, TOP, BOTTOM = -1.70, 1.70, -2.35, 2.20
RELIEF_PX_PER_UNIT = 36.0
# The head turns about a point between the ears.
_PIVOT = np.array([0.0, 0.35, -0.9])
_CLOSED_SAG = 0.55


@dataclass(frozen=True)
class Pose:
    """The turn of a head: to the right of the picture, up, and clockwise where positive.

    Yaw and pitch are drawn well within +-25 degrees.
    """

    yaw_deg: float = 0.0
    pitch_deg: float = 0.0
    roll_deg: float = 0.0

    def matrix(self) -> canvas.Float64:
        """Return the rotation of shape (3, 3) that takes head coordinates to picture axes."""
        yaw, pitch, roll = np.radians([self.yaw_deg, self.pitch_deg, self.roll_deg])
        about_y = [[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]]
        about_x = [[1, 0, 0], [0, np.cos(pitch), -np.sin(pitch)], [0, np.sin(pitch), np.cos(pitch)]]
        about_z = [[np.cos(roll), -np.sin(roll), 0], [np.sin(roll), np.cos(roll), 0], [0, 0, 1]]
        return np.array(about_z) @ np.array(about_x) @ np.array(about_y)


@dataclass(frozen=True)
class Expression:
    """The shape of the mouth."""

    mouth_open: float = 0.0
    """0..1."""
    smile: float = 0.0
    """-1..1."""


@dataclass(frozen=True)
class Placement:
    """The place of a head in a picture, in weak perspective."""

    rotation: canvas.Float64
    scale: float
    """Pixels per face unit."""
    centre: tuple[float, float]
    """The point about which the head turns."""

    def project(self, points: canvas.Float64) -> canvas.Float64:
        """Project head points, shape (n, 3), to pixels, shape (n, 2)."""
        seen: canvas.Float64 = (points - _PIVOT) @ self.rotation[:2].T * self.scale + self.centre
        return seen


@dataclass(frozen=True, eq=False)
class HeadShape:
    """The geometry of one person with one expression, all in face units.

    Jaw, brows, nose and mouth are landmarks, shape (n, 2).
    """

    person: Person
    expression: Expression
    jaw: canvas.Float64
    skull: canvas.Float64
    """Upper outline from the right end of the jaw line over the top to the left end."""
    brows: canvas.Float64
    nose: canvas.Float64
    mouth: canvas.Float64
    relief: canvas.Float32 = field(repr=False)
    """Height over the plane, `RELIEF_PX_PER_UNIT` samples per unit from (LEFT, TOP)."""

    @property
    def outline(self) -> canvas.Float64:
        """The head without hair and ears, a closed polygon."""
        return np.concatenate([self.jaw, self.skull[1:-1]])

    def lift(self, points: canvas.Float64) -> canvas.Float64:
        """Add their height to points of the plane, shape (n, 2); return shape (n, 3)."""
        at = ((points - (LEFT, TOP)) * RELIEF_PX_PER_UNIT).astype(np.float32)
        heights = canvas.sampled(self.relief, at[None, :, 0], at[None, :, 1])[0]
        return np.column_stack([points, heights.astype(np.float64)])

    def landmarks(self, closure_right: float, closure_left: float) -> canvas.Float64:
        """The 68 landmarks on the relief, shape (68, 3), in the order of iBUG 300-W.

        `closure_right` is that of the subject's right eye, on the left of the picture.
        """
        eyes = [
            eye_landmarks(self.person, -1, closure_right),
            eye_landmarks(self.person, 1, closure_left),
        ]
        flat = np.concatenate([self.jaw, self.brows, self.nose, *eyes, self.mouth])
        return self.lift(flat)


def head_shape(person: Person, expression: Expression) -> HeadShape:
    """Work out the geometry of a person with an expression."""
    drop = 0.16 * expression.mouth_open
    jaw = _jaw(person, drop)
    skull = _skull(person)
    mouth = _mouth(person, expression)
    nose = _nose(person)
    relief = _relief(person, np.concatenate([jaw, skull[1:-1]]), mouth)
    return HeadShape(person, expression, jaw, skull, _brows(person), nose, mouth, relief)


def _jaw(person: Person, drop: float) -> canvas.Float64:
    chin, full = person.chin_y, 0.04 * person.cheek_fullness
    half = np.array(
        [
            (0.990, -0.02),
            (0.985 + full / 2, 0.22 * chin),
            (0.945 + full, 0.44 * chin),
            (person.jaw_width + full, 0.67 * chin),
            (person.jaw_width * 0.72, 0.855 * chin),
            (person.chin_width, 0.965 * chin),
            (0.0, chin),
        ]
    )
    half[3:, 1] += drop * np.array([0.3, 0.7, 1.0, 1.0])
    mirrored = half[::-1][1:] * (1, 1)
    knots = np.concatenate([half * (-1, 1), mirrored])
    return canvas.smooth_line(knots, 17)


def _skull(person: Person) -> canvas.Float64:
    angle = np.linspace(0, np.pi, 41)
    bulge = 0.99 + (person.skull_width - 0.99) * np.abs(np.sin(2 * angle))
    x = bulge * np.sign(np.cos(angle)) * np.abs(np.cos(angle)) ** 0.76
    y = -0.02 + (person.skull_y + 0.02) * np.sin(angle) ** 0.92
    return np.stack([x, y], axis=1)


def _brows(person: Person) -> canvas.Float64:
    halves = []
    for side in (-1, 1):
        inner = person.eye_x - person.brow_length * 0.56
        outer = person.eye_x + person.brow_length * 0.50
        lift = person.asymmetry[1] * side * 0.5
        x = np.linspace(inner, outer, 5)
        t = np.linspace(0, 1, 5)
        arch = person.brow_arch * np.sin(np.pi * np.clip(t * 0.85 + 0.05, 0, 1)) * 1.4
        y = person.brow_y - arch + 0.07 * t**3 + 0.015 * (1 - t) + lift
        brow = np.stack([x * side, y], axis=1)
        halves.append(brow if side == 1 else brow[::-1])
    return np.concatenate(halves)


def _nose(person: Person) -> canvas.Float64:
    lean, width, base = person.asymmetry[2], person.nose_width, person.nose_y
    tip = base - 0.13 * base / 0.75
    bridge_t = np.linspace(0, 1, 4)
    bridge = np.stack([lean * bridge_t, 0.02 + (tip - 0.02) * bridge_t], axis=1)
    across = np.array([-0.62, -0.32, 0.0, 0.32, 0.62]) * width + lean
    down = base + np.array([-0.035, -0.005, 0.025, -0.005, -0.035])
    return np.concatenate([bridge, np.stack([across, down], axis=1)])


def _mouth(person: Person, expression: Expression) -> canvas.Float64:
    half = person.mouth_half_width * (1 + 0.12 * expression.smile - 0.10 * expression.mouth_open)
    gap = 0.36 * expression.mouth_open * person.mouth_half_width / 0.37
    upper, lower = person.upper_lip, person.lower_lip
    corner = -0.07 * expression.smile + 0.35 * gap
    x = np.array([-1.0, -0.62, -0.24, 0.0, 0.24, 0.62, 1.0])
    bow = np.array([0.0, 0.72, 1.04, 0.88, 1.04, 0.72, 0.0])
    bottom = np.array([0.0, 0.66, 0.96, 1.0, 0.96, 0.66, 0.0])
    arc = 1 - np.abs(x) ** 2.2  # how far the middle of the lips is from the line of the corners
    top_y = corner * (1 - arc) - upper * bow
    low_y = corner * (1 - arc) + gap * arc + lower * bottom
    outer = np.concatenate(
        [np.stack([x * half, top_y], 1), np.stack([x[-2:0:-1] * half, low_y[-2:0:-1]], 1)]
    )
    xi = np.array([-0.84, -0.30, 0.0, 0.30, 0.84])
    arc_in = 1 - np.abs(xi) ** 2.2
    upper_in = corner * (1 - arc_in) - 0.008 * (np.abs(xi) < 0.5)
    lower_in = corner * (1 - arc_in) + gap * arc_in + 0.008 * (np.abs(xi) < 0.5)
    inner = np.concatenate(
        [np.stack([xi * half, upper_in], 1), np.stack([xi[3:0:-1] * half, lower_in[3:0:-1]], 1)]
    )
    points = np.concatenate([outer, inner])
    tilt = person.asymmetry[3]
    points[:, 1] += tilt * points[:, 0] + person.mouth_y
    points[:, 0] += person.asymmetry[2] * 0.5
    return points


def lid_curves(
    person: Person, side: Side, closure: float, points: int = 17
) -> tuple[canvas.Float64, canvas.Float64]:
    """Return the edges of the upper and the lower lid, from left to right in the picture.

    `side` is -1 for the eye on the left of the picture. The gap between the lids, and with it the
    eye aspect ratio, is a linear function of `closure`.
    """
    width = 2 * person.eye_half_width
    s = np.linspace(-1, 1, points)
    inward = -s * side  # 1 at the nose
    shape_up = (1 - s**2) ** 0.68 * (1 + 0.10 * inward)
    shape_low = (1 - s**2) ** 0.80 * (1 - 0.12 * inward)
    # The landmarks of the aspect ratio lie at a third of the length.
    third = 8 / 9
    gap_open = person.ear_open * width
    gap_closed = person.ear_closed * width
    share = 0.66
    up_open, low_open = share * gap_open / third**0.68, (1 - share) * gap_open / third**0.80
    low_closed = _CLOSED_SAG * low_open + gap_closed / 2 / third**0.80
    up_closed = (gap_closed - low_closed * third**0.80) / third**0.68
    up = up_open + (up_closed - up_open) * closure
    low = low_open + (low_closed - low_open) * closure
    line = person.eye_tilt * inward + person.asymmetry[0] * side * 0.5
    x = side * person.eye_x + s * person.eye_half_width
    upper = np.stack([x, line - up * shape_up], axis=1)
    lower = np.stack([x, line + low * shape_low], axis=1)
    return upper, lower


def eye_landmarks(person: Person, side: Side, closure: float) -> canvas.Float64:
    """Return one eye's landmarks in the plane, shape (6, 2): clockwise from the left corner."""
    upper, lower = lid_curves(person, side, closure, points=7)
    return np.stack([upper[0], upper[2], upper[4], upper[6], lower[4], lower[2]])


def _bump(
    x: canvas.Float64, y: canvas.Float64, at: tuple[float, float], size: tuple[float, float]
) -> canvas.Float64:
    """A smooth hill of height 1 on the grid of the vectors `y` and `x`."""
    return np.outer(
        np.exp(-0.5 * ((y - at[1]) / size[1]) ** 2), np.exp(-0.5 * ((x - at[0]) / size[0]) ** 2)
    )


def _relief(person: Person, outline: canvas.Float64, mouth: canvas.Float64) -> canvas.Float32:
    rows, columns = (
        round((BOTTOM - TOP) * RELIEF_PX_PER_UNIT) + 1,
        round((RIGHT - LEFT) * RELIEF_PX_PER_UNIT) + 1,
    )
    x, y = np.linspace(LEFT, RIGHT, columns), np.linspace(TOP, BOTTOM, rows)
    z = _skull_relief(person, outline, x, y)
    z += _nose_relief(person, x, y)
    full = person.cheek_fullness
    nose, chin = person.nose_y, person.chin_y
    for side in (-1.0, 1.0):
        eye = side * person.eye_x
        z -= 0.12 * _bump(x, y, (eye * 0.97, -0.04), (0.25, 0.13))
        z += 0.085 * _bump(x, y, (eye, 0.0), (0.13, 0.09))
        z += 0.07 * _bump(x, y, (eye * 0.9, person.brow_y + 0.06), (0.28, 0.09))
        z += (0.08 + 0.08 * full) * _bump(x, y, (side * 0.58, nose * 0.82), (0.24, 0.24))
        fold = (0.02 + 0.05 * person.wrinkles) * _bump(
            x, y, (side * (person.nose_width + 0.12), nose + 0.12), (0.035, 0.13)
        )
        z -= fold
    centre = (float(mouth[3, 0]), person.mouth_y)
    half = person.mouth_half_width
    low = float(mouth[9, 1])
    z += 0.10 * _bump(x, y, (centre[0], person.mouth_y), (half * 0.9, 0.24))
    z += 0.05 * _bump(x, y, (centre[0], person.mouth_y - 0.05), (half * 0.55, 0.045))
    z += 0.07 * _bump(x, y, (centre[0], low - 0.06), (half * 0.5, 0.05))
    z -= 0.05 * _bump(x, y, (centre[0], low + 0.09), (half * 0.6, 0.05))
    z += 0.10 * _bump(x, y, (0.0, low + 0.62 * (chin - low) + 0.05), (0.19, 0.14))
    return np.ascontiguousarray(z, dtype=np.float32)


def _skull_relief(
    person: Person, outline: canvas.Float64, x: canvas.Float64, y: canvas.Float64
) -> canvas.Float64:
    wide = np.abs(x)
    # Beyond the head the slope stays what it is at its edge, so that ears and hair do not fold.
    across = np.where(wide < 1.1, -0.70 * wide**2.3, -0.70 * 1.1**2.3 - 1.8 * (wide - 1.1))
    up = np.maximum(-0.35 - y, 0)
    down = np.maximum(y - 0.8 * person.chin_y, 0)
    z = (-0.26 * up**2.0 - 0.25 * down**2)[:, None] + across[None, :]
    mask = canvas.polygon_mask(z.shape, (outline - (LEFT, TOP)) * RELIEF_PX_PER_UNIT)
    # Blurred, because distances have creases along the middle lines of the outline.
    inside = canvas.blurred(canvas.depth_inside(mask), 2.5).astype(np.float64) / RELIEF_PX_PER_UNIT
    jaw_only = np.clip((y - 0.15) / 0.6, 0, 1)[:, None]
    return z - 0.20 * jaw_only * np.exp(-inside / 0.11)


def _nose_relief(person: Person, x: canvas.Float64, y: canvas.Float64) -> canvas.Float64:
    base, lean = person.nose_y, person.asymmetry[2]
    tip = base - 0.13 * base / 0.75
    t = np.clip((y + 0.05) / (tip + 0.05), 0, 1)
    height = person.nose_height * (0.16 + 0.84 * t**1.5)
    height = np.where(y < -0.05, height * np.exp(-0.5 * ((y + 0.05) / 0.14) ** 2), height)
    beyond = np.maximum(y - tip, 0) / (0.55 * (base - tip))
    height = height * np.exp(-0.5 * beyond**2)
    width = person.bridge_width * (1 + 0.55 * t**2)
    middle = lean * np.clip(y / tip, 0, 1.2)
    z = height[:, None] * np.exp(-0.5 * ((x[None, :] - middle[:, None]) / width[:, None]) ** 2)
    for side in (-1.0, 1.0):
        wing = (side * person.nose_width * 0.62 + lean, base - 0.075)
        z += 0.30 * person.nose_height * _bump(x, y, wing, (0.075, 0.065))
    return z


def plane_grid(
    placement: Placement, relief: canvas.Float32, window: tuple[int, int, int, int]
) -> tuple[canvas.Float32, canvas.Float32]:
    """Return which place of the frontal plane is seen at each pixel of a window of the picture.

    Solves ``p = scale * R[:2] @ ((x, y, z(x, y)) - pivot) + centre`` for (x, y) by fixed point
    iteration, which converges because the slope of the relief is below 1 / tan(25 degrees).

    `relief`, float32 of shape (H, W). `window`: half-open, in pixels.

    Returns x and y (float32, shape (bottom - top, right - left)) in face units.
    """
    left, top, right, bottom = window
    # A lattice of every other pixel is enough: the mapping is smooth.
    px = np.arange(left, right + 2, 2, dtype=np.float32)
    py = np.arange(top, bottom + 2, 2, dtype=np.float32)
    rotation = placement.rotation
    inverse = np.linalg.inv(rotation[:2, :2])
    dx = (px[None, :] - placement.centre[0]) / placement.scale
    dy = (py[:, None] - placement.centre[1]) / placement.scale
    flat_x = (inverse[0, 0] * dx + inverse[0, 1] * dy + _PIVOT[0]).astype(np.float32)
    flat_y = (inverse[1, 0] * dx + inverse[1, 1] * dy + _PIVOT[1]).astype(np.float32)
    shift = (inverse @ rotation[:2, 2]).astype(np.float32)
    x, y = flat_x, flat_y
    for _ in range(7):
        height = canvas.sampled(
            relief,
            (x - np.float32(LEFT)) * np.float32(RELIEF_PX_PER_UNIT),
            (y - np.float32(TOP)) * np.float32(RELIEF_PX_PER_UNIT),
        ) - np.float32(_PIVOT[2])
        x, y = flat_x - shift[0] * height, flat_y - shift[1] * height
    shape = (bottom - top, right - left)
    return canvas.doubled(x, shape), canvas.doubled(y, shape)
