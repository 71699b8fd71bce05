"""Hair: its outline in the plane of the head, and its colour."""

from dataclasses import dataclass

import numpy as np

from site_agent.datasets.synthetic import canvas as drawing
from site_agent.datasets.synthetic import head_model, persons

_MIDDLE = np.array([0.0, -0.2])
# How far down beside the face the hair reaches.
_SIDEBURN_Y = {"short": 0.16, "long": 1.6}


@dataclass(frozen=True, eq=False)
class HairShape:
    """Where the hair is in the plane of the head.

    `outer` (against the background) and `hairline` (on the face) go from left to right.
    """

    outer: drawing.Float64
    hairline: drawing.Float64

    def outline(self, beyond: float = 1.0) -> drawing.Float64:
        """Return the closed outline; `beyond` above 1 moves the outer edge outwards."""
        grown = (self.outer - _MIDDLE) * beyond + _MIDDLE
        return np.concatenate([grown, self.hairline[::-1]])


def hair_shape(shape: head_model.HeadShape) -> HairShape | None:
    """Return the outline of a person's hair; None for a bald person."""
    person = shape.person
    if person.hair_style == "bald":
        return None
    end, volume = _SIDEBURN_Y[person.hair_style], person.hair_volume
    top = shape.skull[::-1] * (1 + volume * np.array([0.6, 0.85]))
    swing = 1.05 + 0.5 * volume
    side = drawing.smooth_line([(1.0 + volume * 0.4, -0.05), (swing, 0.5 * end), (0.98, end)], 12)
    outer = np.concatenate([(side * (-1, 1))[::-1], top[1:-1], side])
    line = person.hairline_y
    front = [(-0.86, -0.42), (-0.5, line + 0.05), (0, line), (0.5, line + 0.05), (0.86, -0.42)]
    down = drawing.smooth_line([(0.9, -0.3), (0.92, 0.5 * end), (0.95, end)], 10)
    left = (down * (-1, 1))[::-1]
    return HairShape(outer, np.concatenate([left, drawing.smooth_line(front, 25), down]))


def hair_mask(canvas: drawing.Canvas, hair: HairShape) -> drawing.Float32:
    """Return how much of each pixel is to be painted as hair, 0..1, shape (H, W).

    Reaches a little beyond the head, or skin would show through at the edge.
    """
    rows, columns = canvas.pixels.shape[:2]
    points = (hair.outline(beyond=1.06) - canvas.origin) * canvas.scale
    mask = drawing.polygon_mask((rows, columns), points).astype(np.float32)
    return drawing.blurred(mask, max(0.5, 0.03 * canvas.scale)) / np.float32(255)


def paint_hair(
    canvas: drawing.Canvas, person: persons.Person, mask: drawing.Float32, rng: np.random.Generator
) -> None:
    """Paint rough hair in the person's colour wherever the mask says."""
    shape = (canvas.pixels.shape[0], canvas.pixels.shape[1])
    grain = np.clip(0.18 * drawing.cloud(rng, shape, 0.05 * canvas.scale), -0.5, 0.5)[..., None]
    paint = np.asarray(person.hair, dtype=np.float32) * (1 + grain)
    canvas.pixels += mask[..., None] * (paint - canvas.pixels)
