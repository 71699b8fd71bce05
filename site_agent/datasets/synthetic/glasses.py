"""Glasses on drawn faces: frames, lenses that shrink or tint the eyes, and what they reflect.

Lengths are in distances between the centres of the eyes, about 63 mm in an adult.
"""

import numpy as np

from site_agent.datasets.landmark_schemes import eyes_of
from site_agent.datasets.synthetic.canvas import (
    Canvas,
    Float32,
    Float64,
    blend,
    blurred,
    polygon_mask,
    sampled,
)

_ANGLES = np.linspace(0, 2 * np.pi, 41)


def draw_glasses(scene: Float32, landmarks: Float64, wearer: int, rng: np.random.Generator) -> None:
    """Draw glasses over a face, in place.

    Parameters
    ----------
    scene : float32, shape (H, W, 3)
        Colours in 0..255.
    landmarks : shape (68, 2)
        Of the face, in pixels.
    wearer : int
        The number of the person, which decides on the frame and the lenses.
    rng : Generator
        Decides on what differs between pictures: how far the glasses have slipped, and what the
        lenses reflect.
    """
    own = np.random.default_rng([0x61A55E5, wearer])
    left, right = (eye.mean(axis=0) for eye in eyes_of(landmarks))
    across = left - right
    turn = np.stack([across, (-across[1], across[0])])  # right and down, in pixels
    apart = float(np.linalg.norm(across))
    slipped = rng.uniform(0.05, 0.22) if rng.random() < 0.3 else rng.normal(0.02, 0.02)
    half_width, half_height = own.uniform(0.34, 0.46), own.uniform(0.2, 0.38)
    # A superellipse: 2 is round, 6 almost a rectangle.
    power = 2 / own.uniform(2, 6)
    shape = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
    shape = np.sign(shape) * np.abs(shape) ** power * (half_width, half_height)
    centres = [eye + (0, slipped) @ turn for eye in (right, left)]
    lenses = [centre + shape @ turn for centre in centres]
    shrink, tint = own.choice([1.0, 1.0, 0.93, 0.85, 1.08]), own.uniform(0.75, 1.0, 3) ** 0.5
    for centre, lens in zip(centres, lenses, strict=True):
        _look_through(scene, centre, lens, float(shrink), tint)
    reflection = rng.uniform(0.15, 0.85) if rng.random() < 0.5 else 0.0
    spot, brightness = rng.normal(0, 0.14, 2), rng.uniform(150, 255) * rng.uniform(0.9, 1, 3)
    window = rng.uniform((-0.3, -0.2), (-0.05, -0.05), (4, 2)) * (
        (1, 1),
        (-1, 1),
        (-1, -1),
        (1, -1),
    )
    for centre, lens in zip(centres, lenses, strict=True):
        _reflect(scene, lens, centre + (window + spot) @ turn, brightness, float(reflection))
    thick, colour = own.uniform(0.012, 0.075) * apart, own.uniform(10, 110) * own.uniform(0.6, 1, 3)
    canvas = Canvas(scene)
    for lens in lenses:
        canvas.ribbon(lens, thick, colour)
    inner, middle = 0.5 - half_width, np.mean(centres, axis=0)
    bridge = np.array([(-inner, 0.0), (0.0, -0.06), (inner, 0.0)])
    canvas.ribbon(middle + bridge @ turn, 1.2 * thick, colour)
    for side, centre in zip((-1, 1), centres, strict=True):
        arm = np.array([(half_width, -0.08), (half_width + 0.25, -0.1)]) * (side, 1)
        canvas.ribbon(centre + arm @ turn, 0.8 * thick, colour)


def _look_through(
    scene: Float32, centre: Float64, lens: Float64, shrink: float, tint: Float64
) -> None:
    """Make what is behind a lens smaller (`shrink` below 1) and darker."""
    rows, columns = np.indices(scene.shape[:2])
    x, y = ((place - at) / shrink + at for place, at in zip((columns, rows), centre, strict=True))
    seen = sampled(scene, x.astype(np.float32), y.astype(np.float32))
    blend(scene, seen * tint.astype(np.float32), _inside(scene, lens))


def _reflect(
    scene: Float32, lens: Float64, window: Float64, brightness: Float64, opacity: float
) -> None:
    """Lay the light of a window over the part of a lens that shows it."""
    if opacity:
        cover = blurred(_inside(scene, window), 1.0) * _inside(scene, lens) * np.float32(opacity)
        light = np.broadcast_to(brightness.astype(np.float32), scene.shape)
        blend(scene, np.ascontiguousarray(light), cover)


def _inside(scene: Float32, outline: Float64) -> Float32:
    mask: Float32 = polygon_mask(scene.shape[:2], outline).astype(np.float32) / np.float32(255)
    return mask
