"""The room behind the persons."""

from __future__ import annotations

from typing import Literal

import numpy as np

from site_agent.datasets.synthetic.canvas import (
    Canvas,
    Float32,
    blurred,
    cloud,
    resized,
    smooth_line,
)

Background = Literal["plain", "room", "clutter"]

# A background is out of focus: it is painted coarsely and enlarged.
_COARSENESS = 2


def background(rng: np.random.Generator, size: tuple[int, int], kind: Background) -> Float32:
    """A room without persons, float32 of shape (height, width, 3), colours in 0..255.

    'plain' is a wall, 'room' adds some furniture, 'clutter' many things of every colour, among
    them round ones in the colours of skin.
    """
    width, height = size
    rows, columns = max(4, height // _COARSENESS), max(4, width // _COARSENESS)
    wall = rng.uniform(50, 215) * (1 + 0.10 * rng.normal(size=3))
    canvas = Canvas(np.empty((rows, columns, 3), dtype=np.float32))
    slope_x = np.linspace(-1, 1, columns) * rng.uniform(-0.25, 0.25)
    slope_y = np.linspace(-1, 1, rows) * rng.uniform(-0.25, 0.25)
    shade = 1 + slope_x[None, :] + slope_y[:, None]
    canvas.pixels[:] = wall * shade[..., None]
    things = {"plain": 0, "room": 5, "clutter": 22}[kind]
    for _ in range(things):
        _paint_thing(canvas, rng, kind == "clutter")
    grain = cloud(rng, (rows, columns), rng.uniform(2, 18))
    canvas.pixels *= (1 + rng.uniform(0, 0.06) * grain)[..., None]
    focus = blurred(canvas.pixels, rng.uniform(0.4, 2.5))
    return np.clip(resized(focus, (height, width)), 0, 255).astype(np.float32)


def _paint_thing(canvas: Canvas, rng: np.random.Generator, busy: bool) -> None:
    rows, columns = canvas.pixels.shape[:2]
    at = rng.uniform((0, 0), (columns, rows))
    span = rng.uniform(0.04, 0.45 if busy else 0.6, 2) * min(rows, columns)
    colour = rng.uniform(20, 235) * (1 + 0.25 * rng.normal(size=3))
    opacity = float(rng.uniform(0.5, 1.0))
    form = rng.integers(5)
    if form == 0:  # box, door, shelf
        turn = rng.normal(0, 0.1 if not busy else 0.6)
        corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * span
        spin = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
        canvas.fill(at + corners @ spin, colour, opacity=opacity)
    elif form == 1:  # lamp, ball, or something in the colour of skin
        if busy and rng.random() < 0.5:
            colour = np.array([215, 165, 135]) * rng.uniform(0.4, 1.1)
        canvas.ellipse(at, span * 0.6, colour, opacity=opacity, softness=float(rng.uniform(0, 4)))
    elif form == 2:  # rails, cables, stripes of a curtain
        for k in range(int(rng.integers(2, 7))):
            offset = (k * span[0] * 0.22, 0) if rng.random() < 0.7 else (0, k * span[1] * 0.22)
            ends = at + offset + np.array([(0, -span[1]), (3, 0), (0, span[1])])
            canvas.ribbon(ends, float(rng.uniform(1, 5)), colour, opacity=opacity)
    elif form == 3:  # a picture or a screen with something on it
        frame = at + np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * span * 0.5
        canvas.fill(frame, colour * 0.4)
        canvas.fill((frame - at) * 0.85 + at, colour)
        for _ in range(4):
            spot = at + rng.uniform(-0.35, 0.35, 2) * span
            canvas.ellipse(spot, span * rng.uniform(0.04, 0.15), rng.uniform(0, 255, 3))
    else:  # a curved thing
        knots = at + rng.normal(0, 1, (4, 2)) * span
        canvas.ribbon(smooth_line(knots, 20), float(rng.uniform(2, 9)), colour, opacity=opacity)
