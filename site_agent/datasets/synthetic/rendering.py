"""Render geometry and paint as pixels: light on the relief, and the turned head in the picture."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from site_agent.datasets.synthetic import canvas as drawing
from site_agent.datasets.synthetic import eyes, head_model, persons, skin

_MIDDLE = np.array([0.0, -0.2])
# How far down along the face the hair reaches.
_SIDEBURN_Y = {"short": 0.16, "long": 1.6}


@dataclass(frozen=True, eq=False)
class HairShape:
    """The outlines of the hair in the plane of the head, from left to right."""

    outer: drawing.Float64
    """Against the background."""
    hairline: drawing.Float64
    """On the face."""

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
    """Return the share of hair in each pixel, 0..1, shape (H, W).

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


# Paint is applied somewhat finer than it will be seen; finer still would only alias.
_PAINT_FINENESS = 1.15
_LEAST_DENSITY, _MOST_DENSITY = 26.0, 170.0
# Above and below the middle of the eyes nothing farther is painted with them, in face units.
_EYE_REACH = 0.5
_MOST_EYES_KEPT = 8
_HAIR_THICKNESS = 0.06


@dataclass(frozen=True)
class Light:
    """One lamp and the light that comes from everywhere.

    The lamp is in front at an azimuth of 0, on the right of the picture and above where angles are
    positive. `strength` + `ambient` near 1.1 exposes well.
    """

    azimuth_deg: float = -25.0
    elevation_deg: float = 35.0
    strength: float = 0.60
    ambient: float = 0.55
    colour: persons.Colour = (1.0, 0.99, 0.97)
    """Factors near 1."""

    def direction(self) -> drawing.Float64:
        """Return the unit vector towards the lamp in picture axes, z towards the viewer."""
        azimuth, elevation = np.radians([self.azimuth_deg, self.elevation_deg])
        return np.array(
            [
                np.sin(azimuth) * np.cos(elevation),
                -np.sin(elevation),
                np.cos(azimuth) * np.cos(elevation),
            ]
        )


@dataclass(frozen=True, eq=False)
class PaintedHead:
    """A head with its lasting paint; only eyes, light and pose are missing."""

    shape: head_model.HeadShape
    paint: drawing.Float32
    """Shape (H, W, 3): colours in even light."""
    cover: drawing.Float32
    """Shape (H, W): 1 on the head."""
    density: float
    """Pixels of `paint` per face unit."""
    height: drawing.Float32
    """Shape (h, w): relief with the hair on it."""
    normals: drawing.Float32
    openness: drawing.Float32
    """Share of the surrounding light that reaches each place, about 0.6..1.1."""

    @cached_property
    def edges(self) -> drawing.Float64:
        """Places on the relief, shape (n, 3), between which the head lies."""
        corners = np.argwhere(self.cover > 0.01)
        low, high = corners.min(axis=0) / self.density, corners.max(axis=0) / self.density
        x = np.linspace(head_model.LEFT + low[1], head_model.LEFT + high[1], 9)
        y = np.linspace(head_model.TOP + low[0], head_model.TOP + high[0], 9)
        return self.shape.lift(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))

    def with_eyes(
        self, closures: tuple[float, float], gaze: tuple[float, float]
    ) -> drawing.Float32:
        """The paint with the eyes in it; lasts until this is called again."""
        self._scratch[self._eye_rows] = self._paint_eyes(closures, gaze)
        return self._scratch

    @cached_property
    def _scratch(self) -> drawing.Float32:
        return self.paint.copy()

    @property
    def _eye_rows(self) -> slice:
        middle, reach = -head_model.TOP * self.density, _EYE_REACH * self.density
        return slice(max(0, round(middle - reach)), round(middle + reach))

    @cached_property
    def _paint_eyes(self) -> Callable[..., drawing.Float32]:
        """Paints the rows of the eyes, and keeps them for repeats."""

        @lru_cache(_MOST_EYES_KEPT)
        def paint(closures: tuple[float, float], gaze: tuple[float, float]) -> drawing.Float32:
            rows = self._eye_rows
            corner = (head_model.LEFT, head_model.TOP + rows.start / self.density)
            canvas = drawing.Canvas(self.paint[rows].copy(), self.density, corner)
            eyes.paint_eye(canvas, self.shape.person, -1, closures[0], gaze)
            eyes.paint_eye(canvas, self.shape.person, 1, closures[1], gaze)
            return canvas.pixels

        return paint


def paint_head(
    person: persons.Person, expression: head_model.Expression, scale: float
) -> PaintedHead:
    """Paint a person for pictures in which a face unit is about `scale` pixels.

    The same arguments give the same paint, so that a person looks the same everywhere.
    """
    rng = np.random.default_rng([0x9A1E7, person.number, 0])
    density = float(np.clip(scale * _PAINT_FINENESS, _LEAST_DENSITY, _MOST_DENSITY))
    shape = head_model.head_shape(person, expression)
    rows, columns = (
        round((head_model.BOTTOM - head_model.TOP) * density) + 1,
        round((head_model.RIGHT - head_model.LEFT) * density) + 1,
    )
    canvas = drawing.Canvas(
        np.empty((rows, columns, 3), np.float32), density, (head_model.LEFT, head_model.TOP)
    )
    skin.paint_skin(canvas, shape, rng)
    skin.paint_ears(canvas, person)
    relief, outlines = shape.relief, [shape.outline, *skin.ear_outlines(person)]
    hair = hair_shape(shape)
    if hair is not None:
        mask = hair_mask(canvas, hair)
        paint_hair(canvas, person, mask, rng)
        relief = _with_hair(relief, mask)
        outlines.append(hair.outline())
    np.clip(canvas.pixels, 0, 255, out=canvas.pixels)
    cover = _cover(canvas, outlines)
    normals, openness = _surface(relief)
    return PaintedHead(shape, canvas.pixels, cover, density, relief, normals, openness)


def draw_head(
    picture: drawing.Float32,
    head: PaintedHead,
    placement: head_model.Placement,
    light: Light,
    *,
    closures: tuple[float, float] = (0.0, 0.0),
    gaze: tuple[float, float] = (0.0, 0.0),
) -> None:
    """Draw a head into a picture, in place.

    `picture` (float32, shape (H, W, 3)): Colours in 0..255. `closures`: Of the subject's right eye
    (left in the picture) and left eye: 0 open, 1 closed. `gaze`: Each in -1..1.
    """
    window = head_window(picture.shape, head, placement)
    left, top, right, bottom = window
    if left >= right or top >= bottom:
        return
    shade, gloss = lit(head, placement.rotation, light)
    x, y = head_model.plane_grid(placement, head.shape.relief, window)
    x -= np.float32(head_model.LEFT)
    y -= np.float32(head_model.TOP)
    fine = drawing.lookup(x * np.float32(head.density), y * np.float32(head.density))
    coarse = drawing.lookup(
        x * np.float32(head_model.RELIEF_PX_PER_UNIT), y * np.float32(head_model.RELIEF_PX_PER_UNIT)
    )
    colour = drawing.shaded(
        drawing.sampled(head.with_eyes(closures, gaze), *fine),
        drawing.sampled(shade, *coarse),
        light.colour,
        drawing.sampled(gloss, *coarse),
    )
    drawing.blend(picture[top:bottom, left:right], colour, drawing.sampled(head.cover, *fine))


def lit(
    head: PaintedHead, rotation: drawing.Float64, light: Light
) -> tuple[drawing.Float32, drawing.Float32]:
    """Return the light on the relief of a turned head.

    Returns
    -------
    shade : float32, shape (h, w)
        Factor for the colour of the paint.
    gloss : float32, shape (h, w)
        Light reflected independent of the colour, in 0..255.
    """
    lamp = (rotation.T @ light.direction()).astype(np.float32)
    viewer = rotation.T @ np.array([0.0, 0.0, 1.0])
    facing = head.normals @ lamp
    # Skin scatters light a little way round the edge of a shadow.
    diffuse = np.maximum((facing + np.float32(0.18)) / np.float32(1.18), 0)
    diffuse *= 1 - 0.5 * _cast_shadow(head.height, lamp)
    shade = np.float32(light.ambient) * head.openness + np.float32(light.strength) * diffuse
    half = (lamp + viewer) / np.linalg.norm(lamp + viewer)
    gloss = np.maximum(head.normals @ half.astype(np.float32), 0) ** 22
    return shade.astype(np.float32), (gloss * np.float32(26 * light.strength)).astype(np.float32)


def _cast_shadow(height: drawing.Float32, lamp: drawing.Float32) -> drawing.Float32:
    """Share of the lamp that the relief itself keeps away, 0..1, soft."""
    rows, columns = height.shape
    small = drawing.resized(height, (rows // 2, columns // 2))
    step = head_model.RELIEF_PX_PER_UNIT / 2
    across = lamp[:2] / max(float(lamp[2]), 0.25)
    x, y = np.meshgrid(
        np.arange(columns // 2, dtype=np.float32), np.arange(rows // 2, dtype=np.float32)
    )
    deepest = np.zeros_like(small)
    for rise in (0.07, 0.14, 0.24, 0.36):
        # A place that this much higher on the way to the lamp is still relief lies in shadow.
        shifted = drawing.sampled(
            small, x + np.float32(across[0] * rise * step), y + np.float32(across[1] * rise * step)
        )
        deepest = np.maximum(deepest, shifted - small - np.float32(rise))
    shadow = np.clip(deepest / np.float32(0.07), 0, 1)
    return drawing.resized(drawing.blurred(shadow, 1.4), (rows, columns))


def _surface(relief: drawing.Float32) -> tuple[drawing.Float32, drawing.Float32]:
    down, right = np.gradient(relief, np.float32(1 / head_model.RELIEF_PX_PER_UNIT))
    normals = np.stack([-right, -down, np.ones_like(relief)], axis=2)
    normals /= np.sqrt((normals**2).sum(axis=2, keepdims=True))
    around = drawing.blurred(relief, 0.16 * head_model.RELIEF_PX_PER_UNIT)
    openness = np.clip(1 + 1.7 * (relief - around), 0.55, 1.12)
    # Surfaces facing down see the dark chest rather than the ceiling.
    openness *= 1 - 0.16 * np.clip(normals[..., 1], 0, 1)
    return normals.astype(np.float32), openness.astype(np.float32)


def _with_hair(relief: drawing.Float32, hair: drawing.Float32) -> drawing.Float32:
    soft = drawing.blurred(
        drawing.resized(hair, relief.shape[:2]), 0.05 * head_model.RELIEF_PX_PER_UNIT
    )
    return relief + np.float32(_HAIR_THICKNESS) * soft


def _cover(canvas: drawing.Canvas, outlines: list[drawing.Float64]) -> drawing.Float32:
    rows, columns = canvas.pixels.shape[:2]
    total = np.zeros((rows, columns), dtype=np.uint8)
    for outline in outlines:
        points = (outline - canvas.origin) * canvas.scale
        total = np.maximum(total, drawing.polygon_mask(total.shape, points))
    return drawing.blurred(total.astype(np.float32), 0.7) / np.float32(255)


def head_window(
    shape: tuple[int, ...], head: PaintedHead, placement: head_model.Placement
) -> tuple[int, int, int, int]:
    """The part of a picture that the head can reach: left, top, right, bottom, half-open."""
    seen = placement.project(head.edges)
    left, top = np.floor(seen.min(axis=0)).astype(int) - 3
    right, bottom = np.ceil(seen.max(axis=0)).astype(int) + 4
    return max(left, 0), max(top, 0), min(right, shape[1]), min(bottom, shape[0])
