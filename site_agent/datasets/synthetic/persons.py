"""Drawn persons: everything about a person that does not change from picture to picture.

Lengths are in *face units*: half the width of the face at the cheekbones, about 70 mm in an
adult. The origin of a head lies between the eyes; x to the right of the picture, y down.
"""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

Colour = tuple[float, float, float]
AgeGroup = Literal["infant", "adult", "elder"]
HairStyle = Literal["bald", "short", "long"]

# From very light to very dark; a person's tone is a point on this line.
_SKIN_TONES: tuple[Colour, ...] = (
    (236, 203, 184),
    (229, 188, 162),
    (214, 167, 135),
    (203, 150, 113),
    (168, 114, 80),
    (124, 80, 56),
    (84, 56, 42),
)
_DARK_HAIR: tuple[Colour, ...] = ((24, 20, 20), (40, 29, 24), (62, 42, 30))
_ANY_HAIR: tuple[Colour, ...] = (
    *_DARK_HAIR,
    (92, 64, 42),
    (128, 90, 56),
    (176, 136, 86),
    (214, 182, 128),
    (118, 60, 36),
    (152, 84, 48),
)
_GREY_HAIR: tuple[Colour, ...] = ((122, 120, 118), (170, 168, 166), (214, 212, 208))
_DARK_IRIS: tuple[Colour, ...] = ((46, 30, 20), (66, 42, 26))
_ANY_IRIS: tuple[Colour, ...] = (
    *_DARK_IRIS,
    (98, 68, 36),
    (104, 110, 66),
    (84, 118, 140),
    (112, 142, 166),
    (110, 122, 126),
)


def _between(
    adult: tuple[float, float], infant: tuple[float, float]
) -> dict[str, tuple[float, float]]:
    """Return the lowest and highest value of a length; elders have the adults' with sagging."""
    return {"adult": adult, "elder": adult, "infant": infant}


@dataclass(frozen=True)
class Person:
    """The lasting looks of one drawn person; lengths in face units."""

    number: int
    """The seed that the person was made from."""
    age_group: AgeGroup
    skin: Colour
    lips: Colour
    hair: Colour
    brows: Colour
    iris: Colour
    clothes: Colour
    chin_y: float = field(metadata=_between((1.50, 1.82), (1.20, 1.36)))
    skull_y: float = field(metadata=_between((-1.50, -1.28), (-1.92, -1.66)))
    jaw_width: float = field(metadata=_between((0.72, 0.90), (0.78, 0.90)))
    chin_width: float = field(metadata=_between((0.24, 0.42), (0.26, 0.36)))
    cheek_fullness: float = field(metadata=_between((0.0, 0.7), (0.8, 1.3)))
    skull_width: float = field(metadata=_between((1.02, 1.10), (1.08, 1.18)))
    eye_x: float = field(metadata=_between((0.425, 0.50), (0.46, 0.52)))
    eye_half_width: float = field(metadata=_between((0.195, 0.240), (0.215, 0.255)))
    eye_tilt: float = field(metadata=_between((-0.025, 0.045), (-0.01, 0.035)))
    """Distance of an eye's centre from the middle, half its length, rise of the outer corner."""
    iris_radius: float = field(metadata=_between((0.082, 0.096), (0.112, 0.128)))
    ear_open: float = field(metadata=_between((0.25, 0.34), (0.28, 0.35)))
    ear_closed: float = field(metadata=_between((0.05, 0.08), (0.05, 0.08)))
    """Eye aspect ratio with the lids wide open and shut."""
    crease: float = field(metadata=_between((0.0, 1.0), (0.1, 0.7)))
    """Strength of the upper lid's crease, 0 for none."""
    brow_y: float = field(metadata=_between((-0.40, -0.29), (-0.42, -0.34)))
    brow_arch: float = field(metadata=_between((0.0, 0.10), (0.02, 0.08)))
    brow_thickness: float = field(metadata=_between((0.05, 0.12), (0.035, 0.06)))
    brow_length: float = field(metadata=_between((0.44, 0.56), (0.38, 0.46)))
    brow_density: float = field(metadata=_between((0.65, 1.0), (0.35, 0.6)))
    nose_y: float = field(metadata=_between((0.66, 0.86), (0.46, 0.56)))
    nose_width: float = field(metadata=_between((0.20, 0.29), (0.20, 0.26)))
    nose_height: float = field(metadata=_between((0.28, 0.44), (0.20, 0.27)))
    bridge_width: float = field(metadata=_between((0.09, 0.15), (0.13, 0.18)))
    mouth_y: float
    mouth_half_width: float = field(metadata=_between((0.31, 0.44), (0.24, 0.31)))
    upper_lip: float = field(metadata=_between((0.05, 0.12), (0.06, 0.10)))
    lower_lip: float = field(metadata=_between((0.08, 0.16), (0.08, 0.12)))
    ear_size: float = field(metadata=_between((0.28, 0.38), (0.24, 0.30)))
    ear_stand: float = field(metadata=_between((0.05, 0.16), (0.08, 0.16)))
    hair_style: HairStyle
    hairline_y: float
    hair_volume: float
    redness: float
    wrinkles: float
    asymmetry: tuple[float, ...]
    """Small differences between the two halves: eye height, brow height, nose, mouth tilt."""


def person(seed: int, age_group: AgeGroup | None = None) -> Person:
    """Make up a person; the same arguments always give the same one.

    `seed`: at least 0. Different seeds give clearly different persons. `age_group`: drawn from
    the seed where absent (a fifth infants, a sixth elders).
    """
    rng = np.random.default_rng([0x9E4507, seed])
    drawn: AgeGroup = "adult"
    share = rng.random()
    if share < 0.20:
        drawn = "infant"
    elif share < 0.36:
        drawn = "elder"
    group = age_group or drawn
    masculine = bool(rng.random() < 0.5) and group != "infant"
    looks: dict[str, Any] = {
        **_colours(rng, group),
        **_proportions(rng, group, masculine),
        **_hair(rng, group, masculine),
    }
    return Person(
        number=seed,
        age_group=group,
        **looks,
        redness=float(rng.uniform(0.2, 1.0)),
        wrinkles={"infant": 0.0, "adult": float(rng.uniform(0, 0.3)), "elder": 0.9}[group],
        asymmetry=tuple(rng.normal(0.0, [0.012, 0.02, 0.018, 0.02]).tolist()),
    )


def _mixed(line: tuple[Colour, ...], position: float) -> Colour:
    """Return the colour at a position 0..1 on a line of colours."""
    place = position * (len(line) - 1)
    left = min(int(place), len(line) - 2)
    part = place - left
    r, g, b = (p + (q - p) * part for p, q in zip(line[left], line[left + 1], strict=True))
    return r, g, b


def _jittered(rng: np.random.Generator, colour: Colour, amount: float) -> Colour:
    """The colour a little lighter or darker, and a very little warmer or colder."""
    lightness, warmth = rng.normal(size=2) * (amount, amount / 3)
    red, green, blue = colour
    factors = (1 + lightness + warmth, 1 + lightness, 1 + lightness - warmth)
    r, g, b = (
        min(max(c * f, 5.0), 250.0) for c, f in zip((red, green, blue), factors, strict=True)
    )
    return float(r), float(g), float(b)


def _scaled(colour: Colour, factors: Colour) -> Colour:
    return colour[0] * factors[0], colour[1] * factors[1], colour[2] * factors[2]


def _colours(rng: np.random.Generator, group: AgeGroup) -> dict[str, Colour]:
    tone = float(rng.random())
    skin = _jittered(rng, _mixed(_SKIN_TONES, tone), 0.025)
    pool = _DARK_HAIR if tone > 0.45 and rng.random() < 0.9 else _ANY_HAIR
    hair = pool[rng.integers(len(pool))]
    brows = _scaled(hair, (0.85, 0.82, 0.8))
    if group == "elder":
        hair = _GREY_HAIR[rng.integers(len(_GREY_HAIR))]
        brows = _scaled(hair, (0.8, 0.78, 0.76))
    elif group == "infant":  # infants' brows are faint: closer to the skin
        brows = _mixed((brows, skin), 0.35)
    irises = _DARK_IRIS if tone > 0.5 and rng.random() < 0.9 else _ANY_IRIS
    rosy = _scaled(skin, (0.86, 0.60, 0.60) if rng.random() < 0.8 else (0.78, 0.42, 0.46))
    hue = rng.random(3)
    return {
        "skin": skin,
        "lips": _jittered(rng, rosy, 0.03),
        "hair": _jittered(rng, hair, 0.06),
        "brows": _jittered(rng, brows, 0.05),
        "iris": _jittered(rng, irises[rng.integers(len(irises))], 0.08),
        "clothes": (40 + 180 * float(hue[0]), 40 + 180 * float(hue[1]), 40 + 180 * float(hue[2])),
    }


def _proportions(rng: np.random.Generator, group: AgeGroup, masculine: bool) -> dict[str, float]:
    drawn = sorted((item for item in fields(Person) if item.metadata), key=lambda item: item.name)
    lengths = {item.name: float(rng.uniform(*item.metadata[group])) for item in drawn}
    lengths["mouth_y"] = lengths["nose_y"] + (lengths["chin_y"] - lengths["nose_y"]) * float(
        rng.uniform(0.30, 0.40)
    )
    if masculine:
        lengths["jaw_width"] += 0.04
        lengths["brow_thickness"] *= 1.15
        lengths["upper_lip"] *= 0.8
    elif group != "infant":
        lengths["chin_width"] *= 0.88
        lengths["brow_thickness"] *= 0.75
        lengths["ear_open"] += 0.015
    if group == "elder":  # hooded lids, thinner lips
        lengths["ear_open"] -= 0.02
        lengths["upper_lip"] *= 0.75
    return lengths


def _hair(rng: np.random.Generator, group: AgeGroup, masculine: bool) -> dict[str, object]:
    styles: tuple[HairStyle, ...] = ("short", "long", "long")
    if masculine or group == "infant":
        styles = ("bald", "short", "short", "short")
    style = styles[rng.integers(len(styles))]
    low, high = (-0.98, -0.72)
    if group == "infant":
        low, high = (-1.30, -0.98)
    elif group == "elder" and masculine:
        low, high = (-1.25, -0.95)
    return {
        "hair_style": style,
        "hairline_y": float(rng.uniform(low, high)),
        "hair_volume": float(rng.uniform(0.02, 0.22)),
    }
