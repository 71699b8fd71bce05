"""Rendering the eye patches of one eye in one session."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.datasets.gaze.records import PATCH_SHAPE, Float64, UInt8
from site_agent.datasets.synthetic.eye_patches.geometry import (
    FINE,
    Float32,
    camera_rays,
    head_rotation,
    lid_edges,
    meet_ball,
    meet_skin,
    optical_axes,
)
from site_agent.datasets.synthetic.eye_patches.painting import (
    BallEdges,
    Lamp,
    paint_ball,
    paint_glasses,
    paint_lashes,
    paint_skin,
)
from site_agent.datasets.synthetic.eye_patches.persons import EyePerson, EyeShape, Recording

# As many frames as fit the processor's caches.
_BLOCK = 4


@dataclass(frozen=True)
class EyeFrames:
    """What differs from frame to frame.

    Attributes
    ----------
    gaze, head : float64, shape (n, 2)
        Yaw and pitch in radians in the frame of the camera, of left eyes.
    opening : float64, shape (n,)
        Of the upper lid; 1 usual, 0.7 sleepy, 1.15 astonished.
    pupil : float64, shape (n,)
        Radius of the pupil, in radii of the iris.
    shift_px : float64, shape (n, 2)
        Error of the place of the patch: right and down.
    """

    gaze: Float64
    head: Float64
    opening: Float64
    pupil: Float64
    shift_px: Float64

    def __len__(self) -> int:
        return len(self.gaze)


def render_patches(
    person: EyePerson,
    eye: EyeShape,
    recording: Recording,
    frames: EyeFrames,
    rng: np.random.Generator,
) -> UInt8:
    """Return eye patches as a camera takes them, shape (n, 36, 60); `rng` draws the noise."""
    patches = np.empty((len(frames), *PATCH_SHAPE), dtype=np.uint8)
    for start in range(0, len(frames), _BLOCK):
        block = slice(start, start + _BLOCK)
        part = EyeFrames(*(values[block] for values in vars(frames).values()))
        patches[block] = _taken(_painted(person, eye, recording, part), recording, rng)
    return patches


def _painted(person: EyePerson, eye: EyeShape, recording: Recording, frames: EyeFrames) -> Float32:
    """Return linear brightness, shape (n, FINE * 36, FINE * 60)."""
    rotation = head_rotation(frames.head)
    axes = optical_axes(frames.gaze, rotation, eye).astype(np.float32)
    rays = camera_rays(rotation, frames.shift_px)
    lamp = Lamp(recording, rotation)
    surface = meet_skin(rays, person, eye)
    opening = frames.opening.astype(np.float32)[:, None]
    lids = lid_edges(surface, eye, axes[:, 1:2], opening)
    bright = paint_skin(surface, lids, person, lamp)
    frame, ray = np.nonzero(lids.open)
    here = (frame, ray)
    hits = meet_ball(rays, frame, ray, eye, axes)
    edges = BallEdges(
        surface.y[here] - lids.upper[here],
        lids.lower[here] - surface.y[here],
        lids.along[here],
        frames.pupil.astype(np.float32)[frame],
    )
    x, y, z = (part[here] for part in rays.direction)
    ball = paint_ball(hits, edges, eye, lamp.at(frame), (x, y, z))
    bright[here] += lids.open[here] * (ball - bright[here])
    rise = np.clip(0.75 - 2.2 * axes[:, 1:2], -0.8, 1.0)
    paint_lashes(bright, surface, lids, person, rise)
    bright = paint_glasses(bright, rays, person, recording)
    high, wide = PATCH_SHAPE
    return bright.reshape(-1, high * FINE, wide * FINE)


def _taken(bright: Float32, recording: Recording, rng: np.random.Generator) -> UInt8:
    """Return what a camera makes of it: blur, exposure, gamma, noise, 8 bits."""
    soft = _blurred(_blurred(bright, recording.blur_px * FINE, 1), recording.blur_px * FINE, 2)
    count, high, wide = soft.shape
    pixels = soft.reshape(count, high // FINE, FINE, wide // FINE, FINE).mean(axis=(2, 4))
    # Automatic exposure aims at a mean, which the session misses by its own factor.
    level = pixels.mean(axis=(1, 2), keepdims=True)
    exposed = np.clip(pixels * (0.24 * recording.exposure / level), 0, 1)
    grey = 255 * exposed ** (recording.gamma / 1.7)
    grey = grey + rng.normal(0, recording.noise, grey.shape)
    taken: UInt8 = np.clip(np.round(grey), 0, 255).astype(np.uint8)
    return taken


def _blurred(picture: Float32, sigma: float, axis: int) -> Float32:
    radius = int(np.ceil(2.5 * sigma))
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).astype(np.float32)
    margin = [(0, 0), (0, 0), (0, 0)]
    margin[axis] = (radius, radius)
    padded = np.pad(picture, margin, mode="edge")
    length = picture.shape[axis]
    parts = [
        weight * np.take(padded, np.arange(k, k + length), axis=axis)
        for k, weight in enumerate(weights)
    ]
    return np.sum(parts, axis=0, dtype=np.float32)
