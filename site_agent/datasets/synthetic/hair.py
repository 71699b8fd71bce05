"""Hair: its outlines in the plane of the head, its colour and strands, and what hangs behind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.datasets.synthetic.canvas import (
    Canvas,
    Float32,
    Float64,
    blurred,
    cloud,
    ellipse_outline,
    polygon_mask,
    sampled,
    smooth_line,
)
from site_agent.datasets.synthetic.head_model import HeadShape
from site_agent.datasets.synthetic.persons import Person

_MIDDLE = np.array([0.0, -0.2])
_SIDEBURN_Y = {"bob": 1.25, "long": 2.1, "curly": 0.45, "bun": 0.10, "fuzz": -0.15, "buzz": 0.08}


@dataclass(frozen=True, eq=False)
class HairShape:
    """Where the hair is in the plane of the head.

    Attributes
    ----------
    outer, hairline : float64, shape (n, 2)
        Both from the left to the right of the picture: against the background, and on the face.
    bun : float64, shape (n, 2), or None
    """

    outer: Float64
    hairline: Float64
    bun: Float64 | None

    def outlines(self, beyond: float = 1.0) -> list[Float64]:
        """Closed outlines; `beyond` above 1 moves the outer edges outwards."""
        grown = (self.outer - _MIDDLE) * beyond + _MIDDLE
        whole = [np.concatenate([grown, self.hairline[::-1]])]
        if self.bun is not None:
            middle = self.bun.mean(axis=0)
            whole.append((self.bun - middle) * (2 * beyond - 1) + middle)
        return whole


def hair_shape(shape: HeadShape, rng: np.random.Generator) -> HairShape | None:
    """Outlines of a person's hair; None for a bald person."""
    person = shape.person
    if person.hair_style == "bald":
        return None
    bun = None
    if person.hair_style == "bun":
        bun = ellipse_outline((0, person.skull_y - 0.18), (0.32, 0.28))
    return HairShape(_outer_edge(shape, rng), _hairline(person, rng), bun)


def hair_mask(canvas: Canvas, person: Person, hair: HairShape) -> Float32:
    """How much of each pixel is to be painted as hair, 0..1, shape (H, W).

    Reaches a little beyond the head, or skin would show through at the edge.
    """
    rows, columns = canvas.pixels.shape[:2]
    total = np.zeros((rows, columns), dtype=np.uint8)
    for outline in hair.outlines(beyond=1.06):
        points = (outline - canvas.origin) * canvas.scale
        total = np.maximum(total, polygon_mask((rows, columns), points))
    soft = {"fuzz": 0.10, "buzz": 0.035}.get(person.hair_style, 0.012)
    return blurred(total.astype(np.float32), max(0.5, soft * canvas.scale)) / np.float32(255)


def paint_hair(canvas: Canvas, person: Person, mask: Float32, rng: np.random.Generator) -> None:
    """Paint strands in the colour of the hair wherever the mask says."""
    opacity = {"fuzz": 0.38, "buzz": 0.78}.get(person.hair_style, 1.0)
    texture = _strands(canvas, person, rng)
    colour = np.asarray(person.hair, dtype=np.float32)
    paint = colour * (1 + texture[..., None]) + 10 * texture[..., None]
    canvas.pixels += (mask * np.float32(opacity))[..., None] * (paint - canvas.pixels)


def _outer_edge(shape: HeadShape, rng: np.random.Generator) -> Float64:
    """From the lower end on the left of the picture over the top to the one on the right."""
    person = shape.person
    volume = person.hair_volume
    top = shape.skull[::-1].copy()  # left to right
    grow = 1 + volume * np.array([0.75, 0.85])
    low_grow = np.clip((-top[:, 1]) / 0.6, 0, 1)[:, None]
    top = top * (1 + (grow - 1) * np.maximum(low_grow, 0.55))
    if person.hair_style == "curly":
        t = np.linspace(0, 26, len(top))
        bumps = 1 + 0.035 * np.sin(t * 1.9 + rng.uniform(0, 6)) + 0.02 * np.sin(t * 4.1)
        top = top * bumps[:, None]
    end = _SIDEBURN_Y.get(person.hair_style, 0.16)
    if end > 0.4:  # hair hangs down beside the face
        swing = 1.10 + 0.6 * volume
        side = smooth_line(
            [
                (1.03 + volume * 0.5, -0.05),
                (swing, 0.45 * end),
                (swing - 0.06, end * 0.85),
                (0.98, end),
            ],
            12,
        )
    else:
        side = smooth_line([(1.0 + volume * 0.4, -0.05), (1.0, end * 0.5), (0.975, end)], 8)
    return np.concatenate([(side * (-1, 1))[::-1], top[1:-1], side])


def _hairline(person: Person, rng: np.random.Generator) -> Float64:
    """Edge of the hair on face and forehead, left to right of the picture."""
    style, line = person.hair_style, person.hairline_y
    end = _SIDEBURN_Y.get(style, 0.16)
    if style == "fringe":
        low = max(line, -0.62) + 0.03
        x = np.linspace(-0.80, 0.80, 17)
        y = low + 0.03 * rng.standard_normal(17) + 0.05 * np.abs(x)
        front = np.stack([x, y], axis=1)
    elif style in ("parted", "bob", "long"):
        part = 0.45 * person.parting
        front = np.array(
            [
                (-0.84, -0.42 if part > -0.1 else -0.55),
                ((part - 0.9) / 2, line + 0.10 + 0.10 * (part > 0)),
                (part, line - 0.06),
                ((part + 0.9) / 2, line + 0.10 + 0.10 * (part < 0)),
                (0.84, -0.42 if part < 0.1 else -0.55),
            ]
        )
        front = smooth_line(front, 21)
    else:
        recede = 0.16 if person.age_group == "elder" else 0.03
        front = smooth_line(
            [
                (-0.86, -0.42),
                (-0.66, line + 0.10 - recede),
                (-0.3, line - recede * 0.3),
                (0, line + 0.03),
                (0.3, line - recede * 0.3),
                (0.66, line + 0.10 - recede),
                (0.86, -0.42),
            ],
            25,
        )
        front[1:-1, 1] += 0.015 * rng.standard_normal(23)
    if end > 0.4:
        edge = 0.86 if style != "curly" else 0.92
        down = smooth_line(
            [(edge, -0.36), (edge + 0.04, 0.3 * end), (edge + 0.03, 0.7 * end), (edge + 0.1, end)],
            10,
        )
    else:
        down = smooth_line([(0.91, -0.3), (0.92, -0.05), (0.95, end)], 6)
    left = (down * (-1, 1))[::-1]
    return np.concatenate([left, front, down])


def _strands(canvas: Canvas, person: Person, rng: np.random.Generator) -> Float32:
    """Relative lightness of the hair, about -0.5..0.5, shape (H, W)."""
    shape = (canvas.pixels.shape[0], canvas.pixels.shape[1])
    if person.hair_style in ("curly", "fuzz", "buzz"):
        grain = cloud(rng, shape, (0.07 if person.hair_style == "curly" else 0.025) * canvas.scale)
        return np.asarray(np.clip(0.22 * grain, -0.5, 0.5), dtype=np.float32)
    # Strands run outwards from the parting: noise that varies with the angle about it.
    rows = np.arange(shape[0], dtype=np.float32)[:, None] / np.float32(canvas.scale)
    columns = np.arange(shape[1], dtype=np.float32)[None, :] / np.float32(canvas.scale)
    dx = columns + np.float32(canvas.origin[0] - 0.35 * person.parting)
    dy = rows + np.float32(canvas.origin[1] - person.skull_y * 1.12)
    angle = np.arctan2(dx, dy + np.float32(0.0001))
    radius = np.sqrt(dx * dx + dy * dy)
    fine = cloud(rng, (8, 240), 1.0)
    coarse = cloud(rng, (6, 60), 1.0)
    at = angle / np.float32(2 * np.pi) + np.float32(0.5)
    value = sampled(fine, at * 239, radius * 3) * 0.16 + sampled(coarse, at * 59, radius * 2) * 0.16
    gloss = 0.16 * np.exp(-(((radius - 0.55) / 0.2) ** 2))
    return np.asarray(np.clip(value + gloss, -0.5, 0.6), dtype=np.float32)
