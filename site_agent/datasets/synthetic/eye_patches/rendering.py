"""Eye patches of one eye in one session: brightness of skin, brow, lids, ball and glasses.

Brightness is linear, 0 to about 1. Arrays are float32 of shape (frames, rays).
"""

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze.records import PATCH_SHAPE, Float64, UInt8
from site_agent.datasets.samples import Samples
from site_agent.datasets.synthetic.eye_patches.geometry import (
    FINE,
    BallHits,
    Float32,
    Lids,
    Rays,
    Surface,
    Vectors,
    camera_rays,
    head_rotation,
    lid_edges,
    meet_ball,
    meet_skin,
    optical_axes,
    soft_step,
)
from site_agent.datasets.synthetic.eye_patches.persons import EyePerson, EyeShape, Recording

# The lenses stand this far before the eye, their middles a little lower and further outwards.
_LENS_MM, _LENS_X, _LENS_Y = -14.0, 0.8, 2.2


@dataclass(frozen=True)
class BallEdges:
    """The surroundings of points of the ball, each array of shape (hits,).

    Distances to the upper and the lower lid in millimetres, the place between the corners, and the
    radius of the pupil in iris radii.
    """

    below_upper: Float32
    above_lower: Float32
    along: Float32
    pupil: Float32


def paint_skin(surface: Surface, lids: Lids, person: EyePerson, lamp: "Lamp") -> Float32:
    """Return the skin with its fold, shadows and brow, without lashes."""
    x, y = surface.x, surface.y
    tone = np.full_like(x, person.skin_tone)
    for across, down, phase, size in person.spots:
        wave = np.sin(0.16 * across * x + 0.16 * down * y + 3 * phase)
        tone *= 1 + 0.03 * size * wave
    light = lamp.ambient + lamp.diffuse * lamp.shade(surface.normal)
    above, below = lids.upper - y, y - lids.lower
    height, depth = person.crease
    # The fold flattens as the lid comes down.
    fold = np.exp(-(((above - height) / 0.7) ** 2)) * np.sqrt(lids.arch)
    hollow = np.exp(-(((above - height - 2.2) / 2.5) ** 2)) * lids.arch
    light = light * (1 - depth * fold) * (1 - 0.4 * depth * hollow)
    bag = np.exp(-(((below - 4.5) / 0.9) ** 2)) * lids.arch
    rim = np.exp(-((below / 0.7) ** 2)) * soft_step((lids.along - 0.02) / 0.05)
    light = light * (1 - person.bag * bag) * (1 + 0.12 * rim)
    corner = np.exp(-(((x + 17) ** 2 + (y - 1) ** 2) / 30))
    light = light * (1 - 0.25 * corner)
    skin = tone * light
    return _with_brow(skin, x, y, person, light)


def paint_ball(
    hits: BallHits, edges: BallEdges, eye: EyeShape, lamp: "Lamp", direction: Vectors
) -> Float32:
    """Return sclera, iris, pupil, glints and the shadow of the lids, shape (hits,)."""
    below, above, along = edges.below_upper, edges.above_lower, edges.along
    shade = lamp.ambient + lamp.diffuse * lamp.shade(hits.normal)
    # The lashes shade the ball below the upper lid; the ball is darker towards the corners.
    shade = shade * (1 - 0.65 * np.exp(-below / 1.7)) * (1 - 0.25 * np.exp(-above / 0.8))
    shade = shade * (0.55 + 0.45 * np.sqrt(np.minimum(4 * along * (1 - along), 1)))
    sclera = eye.sclera_tone * (1 - eye.redness * (1 - 4 * along * (1 - along)) ** 2)
    flesh = 0.42 * eye.sclera_tone
    white = np.where(hits.on_ball, sclera, flesh)
    iris = _iris_tone(hits, eye, edges.pupil)
    tone = white + (iris - white) * hits.cornea
    bright = tone * shade
    caruncle = soft_step((0.115 - along) / 0.035)
    bright = bright + caruncle * (0.62 * eye.sclera_tone * shade - bright)
    wet = np.exp(-(((along - 0.085) / 0.02) ** 2)) * 0.12
    return bright + wet + lamp.glint(hits.normal, direction) * (0.12 + 0.88 * hits.cornea)


def paint_lashes(
    bright: Float32, surface: Surface, lids: Lids, person: EyePerson, rise: Float32
) -> None:
    """Paint lashes in place; `rise` (n, 1) is 1 where they stand up, negative where they hang."""
    length, density, strength = person.lashes
    farthest = 1.3 * length
    near = (np.abs(lids.upper - surface.y) < farthest) | (np.abs(surface.y - lids.lower) < 2)
    here = np.nonzero(near & (lids.along > 0.02) & (lids.along < 0.999))
    x, y, along, upright = surface.x[here], surface.y[here], lids.along[here], rise[here[0], 0]
    above, below = lids.upper[here] - y, y - lids.lower[here]
    between = soft_step((along - 0.1) / 0.08) * soft_step((0.995 - along) / 0.01)
    line = np.exp(-(((above - 0.15) / 0.6) ** 2)) * (0.6 + 0.4 * along)
    reach = length * (0.6 + 0.6 * along)
    lean = (along - 0.35) * 0.9
    up = _strokes(above / (reach * np.maximum(upright, 0.12)), x - lean * above, density)
    down = _strokes(-above / (reach * np.maximum(-upright, 0.12)), x + lean * above, density)
    low = _strokes(below / (0.45 * reach), x - lean * below, density * 0.8)
    cover = np.maximum.reduce([line, up, 0.8 * down, 0.35 * low]) * between * strength
    bright[here] += cover * (person.lash_tone - bright[here])


def paint_glasses(bright: Float32, rays: Rays, person: EyePerson, recording: Recording) -> Float32:
    """Return the picture seen through glasses, or unchanged without."""
    if person.glasses is None or not recording.glasses_on:
        return bright
    half_x, half_y, rim, tone = person.glasses
    (ox, oy, oz), (dx, dy, dz) = rays.origin, rays.direction
    far = (_LENS_MM - oz) / dz
    x, y = ox + far * dx - _LENS_X, oy + far * dy - _LENS_Y
    size = ((np.abs(x) / half_x) ** 3.2 + (np.abs(y) / half_y) ** 3.2) ** (1 / 3.2)
    edge = (size - 1) * half_y
    frame = soft_step((edge + rim) / 0.35) * soft_step((rim - edge) / 0.35)
    at_x, at_y, strength = recording.reflection
    streak = np.exp(-(((x - at_x) + 0.5 * (y - at_y)) ** 2 / 6 + (y - at_y) ** 2 / 40))
    lens = bright + (strength * streak - 0.07 * bright) * (edge < 0)
    return lens + frame * (tone - lens)


class Lamp:
    """The light of a session in the frames of turned heads."""

    def __init__(self, recording: Recording, rotation: Float64) -> None:
        self.ambient = np.float32(recording.ambient)
        self.diffuse = np.float32(recording.diffuse)
        self._recording = recording
        self._light = (recording.light @ rotation).astype(np.float32)
        self._glints = (recording.glints @ rotation).astype(np.float32)
        self._frame: Any = (slice(None), None)

    def at(self, frame: NDArray[np.intp]) -> "Lamp":
        """Return the light for points that are given one by one, with the frames they are in."""
        lamp = copy(self)
        lamp._frame = frame
        return lamp

    def shade(self, normal: Vectors) -> Float32:
        """Return how squarely the light falls on surfaces, 0 to 1."""
        light = self._light[self._frame]
        return np.maximum(sum(normal[i] * light[..., i] for i in range(3)), 0)

    def glint(self, normal: Vectors, direction: Vectors) -> Float32:
        """Return the mirrored lights, of rays with unit directions."""
        facing = 2 * sum(direction[i] * normal[i] for i in range(3))
        mirrored = [direction[i] - facing * normal[i] for i in range(3)]
        total = np.zeros_like(normal[0])
        recording = self._recording
        for k, strength in enumerate(recording.glint_strength):
            light = self._glints[:, k][self._frame]
            near = 1 - sum(mirrored[i] * light[..., i] for i in range(3))
            total += strength * np.exp(-recording.glint_sharpness[k] * near)
        return total


def _iris_tone(hits: BallHits, eye: EyeShape, pupil: Float32) -> Float32:
    r, angle = hits.iris_radius, hits.iris_angle
    rays = np.ones_like(r)
    for k, phase in zip((3, 7, 12, 19), eye.iris_rays, strict=True):
        rays += 0.06 * np.cos(k * angle + phase)
    collarette = 1 + 0.25 * np.exp(-(((r - pupil - 0.15) / 0.13) ** 2))
    rim = 1 - 0.5 * soft_step((r - 0.9) / 0.1)
    tone = eye.iris_tone * rays * collarette * rim
    return tone + soft_step((pupil - r) / 0.05) * (np.float32(0.015) - tone)


def _with_brow(skin: Float32, x: Float32, y: Float32, person: EyePerson, light: Float32) -> Float32:
    place, bend, thick, strength = person.brow
    middle = place + bend * (x - 4) ** 2
    taper = thick * soft_step((x + 19) / 5) * (1 - 0.35 * soft_step((x - 10) / 8)) + 0.05
    hair = 0.8 + 0.2 * np.sin(3.2 * (x + 0.6 * y))
    cover = strength * np.exp(-(np.square((y - middle) / taper) ** 2)) * hair
    return skin + cover * (person.brow_tone * light - skin)


def _strokes(reach: Float32, x: Float32, density: float) -> Float32:
    """Return strokes side by side, from 0 at their roots to 1 at their tips."""
    comb = 0.5 + 0.5 * np.sin(2 * np.pi * density * x + 1.3 * np.sin(0.9 * x))
    fade = np.clip(1 - reach, 0, 1) * (reach > -0.05)
    return fade * (0.35 + 0.65 * comb)


# As many frames as fit the processor's caches.
_BLOCK = 4


@dataclass(frozen=True)
class EyeFrames(Samples):
    """The values that differ from frame to frame."""

    gaze: Float64
    head: Float64
    """Of shape (n, 2). Yaw and pitch in radians in the frame of the camera, of left eyes."""
    opening: Float64
    """Of shape (n,). Of the upper lid; 1 usual, 0.7 sleepy, 1.15 astonished."""
    pupil: Float64
    """Of shape (n,). Radius of the pupil, in radii of the iris."""
    shift_px: Float64
    """Of shape (n, 2). Error of the place of the patch: right and down."""


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
        painted = _painted(person, eye, recording, frames[block])
        patches[block] = _taken(painted, recording, rng)
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
    """Return the camera's picture: blur, exposure, gamma, noise, 8 bits."""
    soft = _blurred(_blurred(bright, recording.blur_px * FINE, 1), recording.blur_px * FINE, 2)
    count, high, wide = soft.shape
    pixels = soft.reshape(count, high // FINE, FINE, wide // FINE, FINE).mean(axis=(2, 4))
    # Automatic exposure aims at a mean, which the session misses by its own factor.
    level = pixels.mean(axis=(1, 2), keepdims=True)
    exposed = np.clip(pixels * (0.24 * recording.exposure / level), 0, 1)
    grey = 255 * exposed ** (recording.gamma / 1.7)
    grey = grey + rng.normal(0, recording.noise, grey.shape)
    picture: UInt8 = np.clip(np.round(grey), 0, 255).astype(np.uint8)
    return picture


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
