"""The looks of eyes, persons and sessions: the numbers from which eye patches are rendered.

Lengths are millimetres in the frame of the head: x to the right of the picture, y down, z into
the head. All eyes are left eyes here, with the nose on the left of the picture; right eyes are
rendered as left ones and mirrored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from site_agent.datasets.gaze.records import Float64
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings

_PERSON_STREAM, _SESSION_STREAM = 0xE1E, 0x5E5


class Skews(Settings, error=InvalidInputError):
    """The differences between persons; 1 as between people, 0 for none."""

    appearance: float = Field(default=1.0, ge=0, le=2)
    """Iris, skin, lids, glasses, light and camera: the distribution of the pictures."""
    gaze: float = Field(default=1.0, ge=0, le=2)
    """Centre and range of gaze and head pose: the distribution of the labels."""
    eyeball: float = Field(default=1.0, ge=0, le=2)
    """Angle kappa and eyeball radius, which no picture shows: the label of a given picture."""
    amount: float = Field(default=20.0, ge=1, le=1000)
    """Largest over smallest number of samples of a person; 1 is equal numbers."""


@dataclass(frozen=True)
class EyeShape:
    """One eye of a person. Tones are 0 to 1."""

    kappa: tuple[float, float]
    """Nasal and upward, in radians."""
    radius: float
    depth: float
    iris_radius: float
    iris_tone: float
    iris_rays: tuple[float, ...]
    sclera_tone: float
    redness: float
    inner: tuple[float, float]
    outer: tuple[float, float]
    upper: float
    lower: float
    upper_skew: float
    lower_skew: float
    fullness: float


@dataclass(frozen=True)
class EyePerson:
    """A person: both eyes, skin, hair, habits of looking and how much data there is."""

    left: EyeShape
    right: EyeShape
    skin_tone: float
    spots: tuple[tuple[float, ...], ...]
    crease: tuple[float, float]
    bag: float
    brow: tuple[float, float, float, float]
    brow_tone: float
    lashes: tuple[float, float, float]
    lash_tone: float
    socket: float
    glasses: tuple[float, float, float, float] | None
    gaze_centre: tuple[float, float]
    gaze_spread: tuple[float, float]
    head_centre: tuple[float, float]
    head_spread: tuple[float, float]
    amount: float


@dataclass(frozen=True)
class Recording:
    """Light and camera of a session."""

    light: Float64
    """Unit vector from the head."""
    ambient: float
    diffuse: float
    glints: Float64
    """Unit vectors from the head."""
    glint_sharpness: tuple[float, ...]
    glint_strength: tuple[float, ...]
    blur_px: float
    noise: float
    gamma: float
    exposure: float
    reflection: tuple[float, float, float]
    glasses_on: bool
    gaze_shift: tuple[float, float]
    head_shift: tuple[float, float]


def make_person(seed: int, number: int, skews: Skews, glasses_share: float) -> EyePerson:
    """Return the person of a number; equal arguments give equal persons."""
    rng = np.random.default_rng([_PERSON_STREAM, seed, number])
    looks, gazes = skews.appearance, skews.gaze
    skin = _between(rng, 0.24, 0.68, looks)
    dark = float(np.clip(0.6 - 0.7 * (skin - 0.46) + looks * rng.normal(0, 0.3), 0, 1))
    left = _make_eye(rng, skews, dark)
    right = replace(
        left,
        kappa=(left.kappa[0] + skews.eyeball * _deg(rng, 0.5), left.kappa[1] * 0.9),
        upper=left.upper + looks * float(rng.normal(0, 0.2)),
        outer=(left.outer[0], left.outer[1] + looks * float(rng.normal(0, 0.25))),
    )
    brow = (
        -10.9 + looks * float(rng.normal(0, 1.3)),
        _between(rng, 0.006, 0.016, looks),
        _between(rng, 1.3, 2.8, looks),
        _between(rng, 0.5, 1.0, looks),
    )
    # The draw is made in any case: who wears glasses must not change the numbers that follow.
    worn = rng.random() < glasses_share
    frame = (
        _between(rng, 18.0, 24.0, looks),
        _between(rng, 8.5, 14.0, looks),
        _between(rng, 0.5, 1.7, looks),
        _between(rng, 0.04, 0.4, looks),
    )
    spread = np.exp(gazes * rng.normal(0, 0.3, 4))
    return EyePerson(
        left=left,
        right=right,
        skin_tone=skin,
        spots=tuple(map(tuple, rng.normal(0, 1, (3, 4)).tolist())),
        crease=(_between(rng, 1.6, 3.8, looks), _between(rng, 0.1, 0.6, looks)),
        bag=_between(rng, 0.0, 0.16, looks),
        brow=brow,
        brow_tone=_between(rng, 0.02, 0.1 + 0.2 * (1 - dark), looks),
        lashes=(
            _between(rng, 1.6, 3.8, looks),
            _between(rng, 0.45, 0.8, looks),
            _between(rng, 0.55, 1.0, looks),
        ),
        lash_tone=_between(rng, 0.02, 0.12, looks),
        socket=_between(rng, 0.5, 3.0, looks),
        glasses=frame if worn else None,
        gaze_centre=(gazes * _deg(rng, 4.0), np.deg2rad(-7) + gazes * _deg(rng, 4.0)),
        gaze_spread=(float(np.deg2rad(10.0) * spread[0]), float(np.deg2rad(6.0) * spread[1])),
        head_centre=(gazes * _deg(rng, 5.0), gazes * _deg(rng, 6.0)),
        head_spread=(float(np.deg2rad(6.0) * spread[2]), float(np.deg2rad(4.0) * spread[3])),
        amount=float(skews.amount ** rng.random()),
    )


def make_recording(
    seed: int, number: int, session: int, skews: Skews, person: EyePerson
) -> Recording:
    """Return light, camera and place of one session of a person."""
    rng = np.random.default_rng([_SESSION_STREAM, seed, number, session])
    looks, gazes = skews.appearance, skews.gaze
    lamp = _between(rng, 0.3, 0.9, looks)
    lights = int(rng.integers(1, 4))
    return Recording(
        light=_direction(looks * rng.normal(0, 45), 25 + looks * rng.normal(0, 22)),
        ambient=1 - lamp,
        diffuse=1.1 * lamp,
        glints=np.stack([_direction(*rng.normal((0, 8), 14)) for _ in range(lights)]),
        glint_sharpness=tuple(float(2 / np.deg2rad(w) ** 2) for w in rng.uniform(3, 9, lights)),
        glint_strength=tuple(rng.uniform(0.3, 1.0, lights).tolist()),
        blur_px=_between(rng, 0.3, 1.0, looks),
        noise=_between(rng, 1.0, 5.0, looks),
        gamma=_between(rng, 0.8, 1.25, looks),
        exposure=float(np.exp(looks * rng.normal(0, 0.22))),
        reflection=(*rng.uniform((-14, -9), (14, 9)).tolist(), float(rng.uniform(0, 0.35))),
        glasses_on=person.glasses is not None and rng.random() < 0.8,
        gaze_shift=(gazes * _deg(rng, 2.5), gazes * _deg(rng, 2.0)),
        head_shift=(gazes * _deg(rng, 4.0), gazes * _deg(rng, 3.0)),
    )


def session_numbers(seed: int, number: int, count: int, session_range: Sequence[int]) -> list[int]:
    """Return how many frames each session of a person has: unequal numbers, at least one each."""
    rng = np.random.default_rng([_SESSION_STREAM, seed, number])
    sessions = min(int(rng.integers(session_range[0], session_range[1] + 1)), count)
    shares = rng.uniform(0.5, 1.5, sessions)
    ends = np.round(np.cumsum(shares) / shares.sum() * (count - sessions)).astype(int)
    return [int(extra) + 1 for extra in np.diff(ends, prepend=0)]


def _make_eye(rng: np.random.Generator, skews: Skews, dark: float) -> EyeShape:
    looks = skews.appearance
    # Brown eyes are dark and even, blue and grey ones light with a dark rim.
    iris = 0.06 + 0.24 * (1 - dark) ** 1.3 + 0.02 * looks * float(rng.normal())
    tilt = -0.9 + looks * float(rng.normal(0, 0.7))
    return EyeShape(
        kappa=(
            float(np.deg2rad(5.0)) + skews.eyeball * _deg(rng, 1.5),
            skews.eyeball * _deg(rng, 1.5) + float(np.deg2rad(1.5)),
        ),
        radius=12.0 + skews.eyeball * float(np.clip(rng.normal(0, 0.5), -1.2, 1.2)),
        depth=7.6 + looks * float(rng.normal(0, 0.5)),
        iris_radius=5.85 + looks * float(np.clip(rng.normal(0, 0.22), -0.5, 0.5)),
        iris_tone=max(iris, 0.05),
        iris_rays=tuple(rng.uniform(0, 2 * np.pi, 4).tolist()),
        sclera_tone=_between(rng, 0.55, 0.75, looks),
        redness=_between(rng, 0.0, 0.2, looks),
        inner=(-14.3 + looks * float(rng.normal(0, 0.7)), 0.9),
        outer=(14.6 + looks * float(rng.normal(0, 0.8)), 0.9 + tilt),
        upper=4.9 + looks * float(rng.normal(0, 0.65)),
        lower=4.5 + looks * float(rng.normal(0, 0.45)),
        upper_skew=_between(rng, 0.75, 1.05, looks),
        lower_skew=_between(rng, 1.0, 1.35, looks),
        fullness=_between(rng, 0.6, 0.95, looks),
    )


def _between(rng: np.random.Generator, low: float, high: float, skew: float) -> float:
    middle = (low + high) / 2
    return middle + skew * (float(rng.uniform(low, high)) - middle)


def _deg(rng: np.random.Generator, spread_deg: float) -> float:
    return float(np.deg2rad(rng.normal(0, spread_deg)))


def _direction(azimuth_deg: float, elevation_deg: float) -> Float64:
    """Return a unit vector towards the camera's side, seen from the eye."""
    azimuth, elevation = np.deg2rad(np.clip([azimuth_deg, elevation_deg], -80, 80))
    flat = np.cos(elevation)
    return np.array([np.sin(azimuth) * flat, -np.sin(elevation), -np.cos(azimuth) * flat])
