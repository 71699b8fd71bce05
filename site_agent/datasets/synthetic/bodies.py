"""What is below and behind a head: neck, shoulders, clothes and hanging hair."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.datasets.synthetic.canvas import Canvas, Float32, Float64, smooth_line
from site_agent.datasets.synthetic.head_model import Placement, Pose
from site_agent.datasets.synthetic.persons import Person
from site_agent.datasets.synthetic.rendering import Light

_HAIR_DEPTH, _NECK_DEPTH, _CLOTH_DEPTH = -1.3, -1.05, -1.0


@dataclass(frozen=True)
class _Body:
    """A body to be painted: its measures in face units, and where it is in the picture."""

    person: Person
    canvas: Canvas
    placement: Placement

    @property
    def infant(self) -> bool:
        return self.person.age_group == "infant"

    @property
    def neck(self) -> float:
        return 0.44 if self.infant else 0.38 + 0.34 * self.person.jaw_width

    @property
    def base(self) -> float:
        """Height at which the neck meets the shoulders."""
        return self.person.chin_y + (0.20 if self.infant else 0.38)

    def seen(self, knots: list[tuple[float, float]], depth: float) -> Float64:
        """A smooth line through the knots, in pixels."""
        plane = smooth_line(knots, 40)
        return self.placement.project(np.column_stack([plane, np.full(len(plane), depth)]))


def draw_body(
    picture: Float32, person: Person, placement: Placement, pose: Pose, light: Light
) -> None:
    """Draw neck, shoulders and the hair behind them, in place, before the head is drawn.

    The body follows the head only in part: turning the head leaves the shoulders where they are.
    """
    upright = Pose(0.25 * pose.yaw_deg, 0.2 * pose.pitch_deg, 0.25 * pose.roll_deg).matrix()
    where = Placement(upright, placement.scale, placement.centre)
    body = _Body(person, Canvas(picture), where)
    tint = np.asarray(light.colour) * (light.ambient + 0.5 * light.strength)
    if person.hair_style in ("long", "bob"):
        _draw_hanging_hair(body, tint)
    _draw_neck(body, tint, lit_from_left=light.azimuth_deg <= 0)
    _draw_clothes(body, tint)


def _draw_hanging_hair(body: _Body, tint: Float64) -> None:
    person, scale = body.person, body.placement.scale
    length = person.chin_y + (0.75 if person.hair_style == "long" else -0.35)
    wide = 1.12 + 0.8 * person.hair_volume
    half = [(0.8, length), (wide, length * 0.6), (wide, 0.0), (0.7, -0.6)]
    knots = [(-x, y) for x, y in reversed(half)] + half
    colour = np.asarray(person.hair) * tint * 0.62
    body.canvas.fill(body.seen(knots, _HAIR_DEPTH), colour, softness=0.02 * scale)


def _draw_neck(body: _Body, tint: Float64, *, lit_from_left: bool) -> None:
    canvas, scale = body.canvas, body.placement.scale
    chin, neck, base = body.person.chin_y, body.neck, body.base
    half = [
        (neck + 0.5, base + 0.3),
        (neck + 0.05, base),
        (neck, chin),
        (neck, 0.55 * chin),
    ]
    knots = [*((-x, y) for x, y in reversed(half)), (0.0, base + 0.75), *half]
    skin = np.asarray(body.person.skin) * tint
    canvas.fill(body.seen(knots, _NECK_DEPTH), skin * 0.80, softness=0.012 * scale)
    # The chin keeps the light away from the neck.
    half = [(neck * 0.9, chin + 0.10), (neck, 0.6 * chin)]
    knots = [*((-x, y) for x, y in reversed(half)), (0.0, chin + 0.22), *half]
    shadow = (0.58, 0.52, 0.50)
    canvas.fill(body.seen(knots, _NECK_DEPTH), shadow, multiply=True, softness=0.07 * scale)
    far = neck if lit_from_left else -neck
    edge = [(far * 0.75, 0.6 * chin), (far * 0.78, chin), (far * 0.9, base + 0.1)]
    canvas.ribbon(
        body.seen(edge, _NECK_DEPTH),
        0.25 * scale,
        (0.84, 0.80, 0.79),
        multiply=True,
        softness=0.08 * scale,
    )


def _draw_clothes(body: _Body, tint: Float64) -> None:
    canvas, scale, neck, base = body.canvas, body.placement.scale, body.neck, body.base
    shoulder = 1.35 if body.infant else 2.25
    top = base + 0.12
    half = [
        (neck + 0.02, top + 0.02),
        (neck + 0.30, top),
        (shoulder * 0.8, base + 0.45),
        (shoulder, base + 0.85),
        (shoulder * 1.03, base + 1.6),
    ]
    knots = [*((-x, y) for x, y in reversed(half)), (0.0, base + 0.42), *half]
    edge = body.seen(knots, _CLOTH_DEPTH)
    floor = canvas.pixels.shape[0] + 10.0
    lower = np.array([(edge[-1, 0], floor), (edge[0, 0], floor)])
    if floor > max(edge[0, 1], edge[-1, 1]):
        edge = np.concatenate([edge, lower])
    canvas.fill(edge, np.asarray(body.person.clothes) * tint, softness=0.008 * scale)
    half = [(neck * 0.6, base + 0.36), (neck + 0.12, top)]
    knots = [*((-x, y) for x, y in reversed(half)), (0.0, base + 0.47), *half]
    collar = body.seen(knots, _CLOTH_DEPTH)
    soft = 0.012 * scale
    canvas.ribbon(collar, 0.09 * scale, (0.80, 0.80, 0.80), multiply=True, softness=soft)
    for x, lean in ((-0.9, 0.2), (0.55, -0.25), (1.3, -0.1), (-1.45, 0.1)):
        if abs(x) < shoulder - 0.4:
            fold = [(x, base + 0.7), (x + lean, base + 1.3), (x + lean * 1.5, base + 2.0)]
            canvas.ribbon(
                body.seen(fold, _CLOTH_DEPTH),
                0.12 * scale,
                (0.86, 0.86, 0.87),
                multiply=True,
                softness=0.06 * scale,
            )
