"""Rays of the camera and the surfaces they meet: skin, lids, the ball with its cornea, and the
iris.

The camera is that of normalised gaze data: 600 mm from the eye with a focal length of 960 px, so
that a pixel of the patch is 0.625 mm wide. Arrays are float32 of shape (frames, rays).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze.records import PATCH_SHAPE, Float64, gaze_angles, gaze_vectors
from site_agent.datasets.synthetic.eye_patches.persons import EyePerson, EyeShape

Float32 = Any
"""A float32 array; NumPy's stubs widen its arithmetic with Python numbers to float64."""
Vectors = tuple[Float32, Float32, Float32]
"""The x, y and z of vectors, each an array."""

FINE = 2
"""Rays per pixel in each direction."""
PIXEL_MM = 0.625
_DISTANCE_MM, _FOCAL_PX = 600.0, 960.0
_CORNEA_RADIUS = 7.8
_REFRACTION = 1 / 1.336
_LID_THICKNESS = 1.3
# How far the lids follow the limbus up and down, and the lower lid less (millimetre a millimetre).
_UPPER_FOLLOWS, _LOWER_FOLLOWS = 0.78, 0.35


@dataclass(frozen=True)
class Rays:
    """Rays in the frame of the head: origin (mm) of each frame, direction of each ray."""

    origin: Vectors
    direction: Vectors


@dataclass(frozen=True)
class Surface:
    """Skin as if the lids were shut: where rays meet it, and how it faces the camera."""

    x: Float32
    y: Float32
    normal: Vectors


@dataclass(frozen=True)
class Lids:
    """Edges of the lids above each point: y of both, and its place 0..1 between the corners."""

    upper: Float32
    lower: Float32
    along: Float32
    arch: Float32
    """0 at the corners and 1 in the middle."""
    open: Float32
    """Share of a point between the lids, 0 to 1."""


@dataclass(frozen=True)
class BallHits:
    """The points where rays meet the eyeball, each array of shape (hits,)."""

    on_ball: NDArray[np.bool_]
    normal: Vectors
    cornea: Float32
    """0 on the sclera and 1 on the cornea."""
    iris_radius: Float32
    """Distance from the middle of the iris in iris radii after refraction, only of rays through the
    cornea."""
    iris_angle: Float32


def head_rotation(head: Float64) -> Float64:
    """Return rotations from the head to the camera, shape (n, 3, 3), of yaws and pitches."""
    yaw, pitch = head[:, 0], head[:, 1]
    zero, one = np.zeros_like(yaw), np.ones_like(yaw)
    turn = np.array(
        [[np.cos(yaw), zero, np.sin(yaw)], [zero, one, zero], [-np.sin(yaw), zero, np.cos(yaw)]]
    )
    nod = np.array(
        [
            [one, zero, zero],
            [zero, np.cos(pitch), np.sin(pitch)],
            [zero, -np.sin(pitch), np.cos(pitch)],
        ]
    )
    rotation: Float64 = np.einsum("ijn,jkn->nik", turn, nod)
    return rotation


def optical_axes(gaze: Float64, rotation: Float64, eye: EyeShape) -> Float64:
    """Return the axes of the eyeballs in the head, shape (n, 3).

    People look along the visual axis, which lies nasal of the optical axis that one sees.
    """
    visual = gaze_angles(np.einsum("nij,ni->nj", rotation, gaze_vectors(gaze)))
    return gaze_vectors(visual - np.array(eye.kappa))


def camera_rays(rotation: Float64, shift_px: Float64) -> Rays:
    """Return the rays of all pixels; `shift_px` of shape (n, 2) moves the picture."""
    high, wide = PATCH_SHAPE
    u = (np.arange(wide * FINE) + 0.5) / FINE - wide / 2
    v = (np.arange(high * FINE) + 0.5) / FINE - high / 2
    across, down = np.meshgrid(u, v)
    x = ((across.ravel() - shift_px[:, :1]) / _FOCAL_PX).astype(np.float32)
    y = ((down.ravel() - shift_px[:, 1:]) / _FOCAL_PX).astype(np.float32)
    R = rotation.astype(np.float32)[:, :, :, None]
    dx, dy, dz = (x * R[:, 0, i] + y * R[:, 1, i] + R[:, 2, i] for i in range(3))
    ox, oy, oz = (-_DISTANCE_MM * R[:, 2, i] for i in range(3))
    return Rays((ox, oy, oz), (dx, dy, dz))


def meet_skin(rays: Rays, person: EyePerson, eye: EyeShape) -> Surface:
    """Follow the rays to the skin, a height above the plane of the corners of the eye."""
    (ox, oy, oz), (dx, dy, dz) = rays.origin, rays.direction
    depth: Float32 = np.zeros_like(dx)
    x = y = depth
    for _ in range(3):
        far = (depth - oz) / dz
        x, y = ox + far * dx, oy + far * dy
        depth = _skin_depth(x, y, person, eye)
    high, wide = PATCH_SHAPE
    grid = depth.reshape(-1, high * FINE, wide * FINE)
    step = PIXEL_MM / FINE
    slope_y, slope_x = np.gradient(grid, step, axis=(1, 2))
    slope_x, slope_y = slope_x.reshape(depth.shape), slope_y.reshape(depth.shape)
    length = 1 / np.sqrt(slope_x**2 + slope_y**2 + 1)
    return Surface(x, y, (slope_x * length, slope_y * length, -length))


def _skin_depth(x: Float32, y: Float32, person: EyePerson, eye: EyeShape) -> Float32:
    brow = -person.socket * _rise((-9.5 - y) / 2.2)
    cheek = -1.5 * _rise((y - 11.0) / 3.0)
    nose = -5.0 * _rise((-19.0 - x) / 2.5)
    temple = 3.0 * _rise((x - 17.0) / 4.0)
    face = 1.5 + brow + cheek + nose + temple
    radius = eye.radius + _LID_THICKNESS
    inside = np.maximum(radius**2 - x**2 - (y + 0.3) ** 2, 0)
    lid = eye.depth - np.sqrt(inside)
    # The nearer of both, rounded where they meet.
    gap = lid - face
    return (lid + face - np.sqrt(gap * gap + 4.0)) / 2


def lid_edges(surface: Surface, eye: EyeShape, axis_y: Float32, opening: Float32) -> Lids:
    """Return the lids; `axis_y` (n, 1) is the y of the optical axes, `opening` (n, 1) near 1."""
    (inner_x, inner_y), (outer_x, outer_y) = eye.inner, eye.outer
    along = np.clip((surface.x - inner_x) / (outer_x - inner_x), 1e-4, 1 - 1e-4)
    moved = axis_y * math.sqrt(eye.radius**2 - eye.iris_radius**2)
    top = np.maximum((eye.upper - _UPPER_FOLLOWS * moved) * opening, -1.5)
    bottom = np.maximum(eye.lower + _LOWER_FOLLOWS * moved, 0.8 - np.minimum(top, 0))
    corner_line = inner_y + (outer_y - inner_y) * along
    high, low = along**eye.upper_skew, along**eye.lower_skew
    arch = (4 * high * (1 - high)) ** eye.fullness
    upper = corner_line - top * arch
    lower = corner_line + bottom * (4 * low * (1 - low)) ** eye.fullness
    edge = 0.3
    inside = soft_step((surface.y - upper) / edge) * soft_step((lower - surface.y) / edge)
    inside = (
        inside * soft_step((surface.x - inner_x) / edge) * soft_step((outer_x - surface.x) / edge)
    )
    return Lids(upper, lower, along, arch, inside)


def meet_ball(
    rays: Rays, frame: NDArray[np.intp], ray: NDArray[np.intp], eye: EyeShape, axes: Float32
) -> BallHits:
    """Follow the given rays of the given frames to the eyeball, and through the cornea to the iris.

    `axes` (n, 3) are the optical axes.
    """
    dx, dy, dz = (part[frame, ray] for part in rays.direction)
    d = _unit((dx, dy, dz))
    o = tuple(part[frame, 0] for part in rays.origin)
    o = (o[0], o[1] + np.float32(0.3), o[2] - np.float32(eye.depth))
    a = (axes[frame, 0], axes[frame, 1], axes[frame, 2])
    limbus = math.sqrt(eye.radius**2 - eye.iris_radius**2)
    middle = limbus - math.sqrt(_CORNEA_RADIUS**2 - eye.iris_radius**2)
    ball, is_hit = _meet_sphere(o, d, eye.radius)
    front = tuple(o[i] - middle * a[i] for i in range(3))
    bulge, met = _meet_sphere(front, d, _CORNEA_RADIUS)
    height = _dot(bulge, a) + middle
    cornea = np.where(met, soft_step((height - limbus) / 0.5), 0).astype(np.float32)
    clear = cornea > 0
    nx, ny, nz = (np.where(clear, bulge[i], ball[i]) for i in range(3))
    normal = _unit((nx, ny, nz))
    bent = _refract(d, normal)
    point = tuple(bulge[i] + middle * a[i] for i in range(3))
    far = (limbus - 0.3 - _dot(point, a)) / np.minimum(_dot(bent, a), -0.05)
    iris = tuple(point[i] + far * bent[i] - (limbus - 0.3) * a[i] for i in range(3))
    radius = np.sqrt(_dot(iris, iris)) / eye.iris_radius
    # The pattern of the iris turns with the eye about axes that stay level.
    flat = np.sqrt(a[0] ** 2 + a[2] ** 2)
    level = (-a[2] / flat, np.zeros_like(flat), a[0] / flat)
    angle = np.arctan2(iris[1] / flat, _dot(iris, level))
    return BallHits(is_hit | clear, normal, cornea, radius.astype(np.float32), angle)


def _meet_sphere(o: Vectors, d: Vectors, radius: float) -> tuple[Vectors, NDArray[np.bool_]]:
    """Return the nearest points on a sphere about the origin, and which rays meet it."""
    along = -_dot(o, d)
    near = tuple(o[i] + along * d[i] for i in range(3))
    rest = radius**2 - _dot(near, near)
    back = np.sqrt(np.maximum(rest, 0))
    x, y, z = (near[i] - back * d[i] for i in range(3))
    return (x, y, z), rest > 0


def _refract(d: Vectors, normal: Vectors) -> Vectors:
    facing = np.maximum(-_dot(d, normal), 0)
    bend = _REFRACTION * facing - np.sqrt(1 - _REFRACTION**2 * (1 - facing**2))
    x, y, z = (_REFRACTION * d[i] + bend * normal[i] for i in range(3))
    return x, y, z


def _dot(a: Vectors, b: Vectors) -> Float32:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _unit(a: Vectors) -> Vectors:
    length = np.maximum(np.sqrt(_dot(a, a)), 1e-6)
    return a[0] / length, a[1] / length, a[2] / length


def soft_step(t: Float32) -> Float32:
    """Rise from 0 to 1 while `t` goes from -1 to 1."""
    s = np.clip(t * 0.5 + 0.5, 0, 1)
    return s * s * (3 - 2 * s)


def _rise(t: Float32) -> Float32:
    """Rise from 0 to 1 gently, a half at 0."""
    return 0.5 + 0.5 * np.tanh(t)
