"""Things in front of a face: glasses, and the hose that puffs air at an eye."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from site_agent.datasets.synthetic.canvas import Canvas, Float32, Float64, moved, smooth_line
from site_agent.datasets.synthetic.head_model import HeadShape, Placement

_FRAMES = ((28, 26, 28), (70, 44, 30), (120, 122, 128), (150, 40, 44), (40, 60, 110))


@dataclass(frozen=True)
class Accessories:
    """What a person wears in a picture.

    Attributes
    ----------
    glasses : bool
    hose : {None, 'right', 'left'}
        The subject's eye at which an air-puff hose points; 'right' is on the left of the picture.
    """

    glasses: bool = False
    hose: Literal["right", "left"] | None = None


def draw_glasses(
    picture: Float32, shape: HeadShape, placement: Placement, brightness: float
) -> None:
    """Draw the person's pair of glasses, in place, onto a head that is drawn already."""
    person = shape.person
    rng = np.random.default_rng([0x61A55, person.number])
    colour = np.asarray(_FRAMES[rng.integers(len(_FRAMES))]) * brightness
    thick = float(rng.uniform(0.022, 0.06))
    power = float(rng.uniform(2.0, 4.5))  # 2 is round, more is square
    half_width, half_height = 0.34 + 0.04 * rng.random(), 0.20 + 0.10 * rng.random()
    canvas = Canvas(picture)
    bridge_height = float(shape.lift(np.array([[0.0, 0.12]]))[0, 2]) + 0.04

    def seen(plane: Float64) -> Float64:
        bow = bridge_height - 0.22 * plane[:, 0] ** 2
        return placement.project(np.column_stack([plane, bow]))

    angle = np.linspace(0, 2 * np.pi, 41)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    ring = np.sign(ring) * np.abs(ring) ** (2 / power) * (half_width, half_height)
    scale = placement.scale
    centre_x = person.eye_x + 0.02
    for side in (-1, 1):
        lens = moved(ring, side * centre_x, 0.05)
        canvas.fill(seen(lens), (250, 252, 255), opacity=0.05)
        glare = lens[2:9] * 0.72 + np.array([side * centre_x, 0.05]) * 0.28 - (0, 0.16)
        canvas.ribbon(
            seen(glare),
            0.05 * scale,
            (255, 255, 255),
            opacity=0.22 * rng.random(),
            softness=0.02 * scale,
        )
        canvas.ribbon(seen(lens), thick * scale, colour, softness=0.004 * scale)
        outer = side * (centre_x + half_width)
        hinge, ear = seen(np.array([[outer, 0.0]]))[0], np.array([[side * 1.0, -0.04]])
        behind = placement.project(shape.lift(ear))[0]
        temple = np.stack([hinge, (hinge + behind) / 2, behind])
        canvas.ribbon(temple, thick * 0.9 * scale, colour, softness=0.004 * scale)
    gap = centre_x - half_width
    bridge = smooth_line([(-gap, 0.0), (0.0, -0.045), (gap, 0.0)], 9)
    canvas.ribbon(seen(bridge), thick * scale, colour, softness=0.004 * scale)


def draw_hose(
    picture: Float32,
    shape: HeadShape,
    placement: Placement,
    side: Literal["right", "left"],
    brightness: float,
) -> None:
    """Draw a tube that comes from the lower corner of the picture and ends before an eye."""
    sign = -1 if side == "right" else 1
    person = shape.person
    rng = np.random.default_rng([0x405E, person.number])
    scale = placement.scale
    outer = sign * (person.eye_x + person.eye_half_width)
    tip_plane = np.array([outer + sign * rng.uniform(0.10, 0.2), rng.uniform(0.12, 0.24)])
    height = float(shape.lift(np.array([[outer, 0.0]]))[0, 2])
    nozzle = np.array(
        [
            [*tip_plane, height + 0.28],
            [tip_plane[0] + sign * 0.16, tip_plane[1] + 0.09, height + 0.34],
            [tip_plane[0] + sign * 0.38, tip_plane[1] + 0.25, height + 0.40],
        ]
    )
    near = placement.project(nozzle)
    rows = picture.shape[0]
    drop = near[2] + np.array([sign * rng.uniform(0.5, 0.9), rng.uniform(0.5, 0.9)]) * scale
    end = np.array(
        [near[2, 0] + sign * rng.uniform(0.6, 1.7) * scale, max(rows + 20, drop[1] + scale)]
    )
    tube = smooth_line([near[2], (near[2] + drop) / 2 + (0, -0.05 * scale), drop, end], 40)
    width = float(rng.uniform(0.12, 0.2)) * scale
    tone = np.asarray(
        ((70, 74, 80), (176, 186, 196), (60, 90, 140), (206, 204, 196))[rng.integers(4)]
    )
    canvas = Canvas(picture)
    shadow = np.concatenate([near, tube[1:14]]) + np.array([0.05, 0.09]) * scale
    canvas.ribbon(shadow, width, (0.72, 0.70, 0.70), multiply=True, softness=0.05 * scale)
    _round_tube(canvas, tube, width, tone * brightness)
    _round_tube(canvas, smooth_line(near, 12), width * 0.55, np.array([208, 210, 214]) * brightness)
    mouth = near[0]
    canvas.ellipse(mouth, (width * 0.2, width * 0.24), (25, 25, 28))


def _round_tube(canvas: Canvas, line: Float64, width: float, colour: Float64) -> None:
    """A band whose shade runs across it like that of a cylinder lit from the upper left."""
    canvas.ribbon(line, width, colour * 0.50)
    canvas.ribbon(
        line - (0.06 * width, 0.06 * width), width * 0.72, colour * 0.85, softness=width * 0.06
    )
    canvas.ribbon(
        line - (0.14 * width, 0.14 * width),
        width * 0.30,
        np.minimum(colour * 1.25, 255),
        softness=width * 0.07,
    )
