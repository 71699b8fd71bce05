"""Eyes: eyeball, iris, lids and lashes for any closure and gaze, and the motion of lids."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from site_agent.datasets.synthetic.canvas import Canvas, Float64, moved, ribbon_outline, smooth_line
from site_agent.datasets.synthetic.head_model import Side, lid_curves
from site_agent.datasets.synthetic.persons import Person

_COMPLETE = 0.9


@dataclass(frozen=True)
class Blink:
    """One blink of both eyes."""

    onset_s: float
    peak_s: float
    offset_s: float
    amplitude: float = 1.0
    """Closure at the peak, 0..1."""

    @property
    def complete(self) -> bool:
        """True if the lids met, or nearly."""
        return self.amplitude >= _COMPLETE


def closure_curve(blinks: Sequence[Blink], times_s: Float64) -> Float64:
    """Return the closure of the lids, 0..1, at each time; touching blinks do not add up.

    Closing is a smooth step; opening starts fast and slows down towards the end, as recorded
    blinks do (closing takes about 100 ms, opening twice that).
    """
    closure = np.zeros(len(times_s))
    for blink in blinks:
        closing = np.clip((times_s - blink.onset_s) / max(blink.peak_s - blink.onset_s, 1e-6), 0, 1)
        opening = np.clip((times_s - blink.peak_s) / max(blink.offset_s - blink.peak_s, 1e-6), 0, 1)
        down = closing**2 * (3 - 2 * closing)
        up = 0.5 * (1 + np.cos(np.pi * opening**0.8))
        closure = np.maximum(closure, blink.amplitude * np.where(opening > 0, up, down))
    return closure


def random_blinks(seconds: float, rng: np.random.Generator) -> list[Blink]:
    """Draw the blinks of a person at rest: every 2 to 6 s, some partial, some double.

    The first begins after a second and the last ends before the end.
    """
    blinks: list[Blink] = []
    start = float(rng.uniform(1.0, 2.5))
    while True:
        blink = _random_blink(start, rng)
        if blink.offset_s > seconds - 0.3:
            return blinks
        blinks.append(blink)
        if rng.random() < 0.12:  # a double blink
            start = blink.offset_s + float(rng.uniform(0.12, 0.3))
        else:
            start = blink.offset_s + float(rng.uniform(1.8, 5.6))


def _random_blink(onset_s: float, rng: np.random.Generator) -> Blink:
    partial = rng.random() < 0.2
    amplitude = rng.uniform(0.5, 0.8) if partial else rng.uniform(0.94, 1.0)
    peak = onset_s + rng.uniform(0.08, 0.12)
    offset = peak + rng.uniform(0.15, 0.25)
    return Blink(onset_s, float(peak), float(offset), float(amplitude))


# Beyond this nothing of the eyeball is seen between the lids.
_SHUT = 0.97


def paint_eye(
    canvas: Canvas, person: Person, side: Side, closure: float, gaze: tuple[float, float]
) -> None:
    """Paint one eye on evenly lit skin.

    `canvas`: In face units; painted on in place. `side` ({-1, 1}): -1 for the eye on the left of
    the picture, the subject's right one. `closure`: 0 open, 1 closed. `gaze`: Direction of the
    look, each in -1..1; positive to the right and down.
    """
    upper, lower = lid_curves(person, side, closure)
    # A lid closing over the eye takes the look down with it (Bell's phenomenon aside).
    look = np.array([gaze[0] * 0.075, gaze[1] * 0.04 + 0.02 * closure])
    if closure < _SHUT:
        _paint_eyeball(canvas, person, side, np.concatenate([upper, lower[::-1]]), look)
    _paint_upper_lid(canvas, person, side, closure, upper)
    _paint_lashes(canvas, person, side, closure, (upper, lower))


def _paint_eyeball(
    canvas: Canvas, person: Person, side: Side, opening: Float64, look: Float64
) -> None:
    left, top = opening.min(axis=0) - 0.03
    right, bottom = opening.max(axis=0) + 0.03
    first = np.maximum(np.floor((np.array([left, top]) - canvas.origin) * canvas.scale), 0).astype(
        int
    )
    last = np.ceil((np.array([right, bottom]) - canvas.origin) * canvas.scale).astype(int) + 1
    window = canvas.pixels[first[1] : last[1], first[0] : last[0]]
    ball = Canvas(np.empty_like(window), canvas.scale, canvas.origin + first / canvas.scale)
    white = np.asarray(person.skin) * 0.14 + np.array([240, 238, 236]) * 0.86
    ball.pixels[:] = white
    x, half = side * person.eye_x, person.eye_half_width
    for corner in (-1, 1):  # the ball turns away from the light towards its corners
        ball.ellipse(
            (x + corner * half, 0.0),
            (half * 0.36, 0.12),
            (0.84, 0.74, 0.72),
            multiply=True,
            softness=0.05,
        )
    centre = np.array([x + person.asymmetry[2] * 0.2, -0.012]) + look
    radius = person.iris_radius
    iris = np.asarray(person.iris)
    ball.ellipse(centre, (radius, radius), iris * 0.42, softness=0.006)
    ball.ellipse(centre, (radius * 0.86, radius * 0.86), iris, softness=0.012)
    ball.ellipse(
        moved(centre, 0, radius * 0.4),
        (radius * 0.6, radius * 0.35),
        np.minimum(iris * 1.5 + 14, 255),
        softness=0.018,
        opacity=0.55,
    )
    ball.ellipse(centre, (radius * 0.42, radius * 0.42), (10, 8, 8), softness=0.005)
    # The upper lid and its lashes throw a shadow on the ball.
    shadow = moved(opening[: len(opening) // 2 + 1], 0, 0.018)
    ball.ribbon(shadow, 0.036, (0.58, 0.54, 0.54), multiply=True, softness=0.018)
    glint = moved(centre, -0.032, -0.036)
    ball.ellipse(glint, (0.019, 0.019), (255, 255, 255), softness=0.005, opacity=0.95)
    ball.ellipse(
        moved(centre, 0.035, 0.04), (0.012, 0.009), (255, 255, 255), softness=0.006, opacity=0.35
    )
    # Paint the finished ball through the opening of the lids.
    stencil = Canvas(np.zeros_like(window), canvas.scale, ball.origin)
    stencil.fill(opening, (1, 1, 1), softness=0.003)
    window += stencil.pixels * (ball.pixels - window)


def _paint_upper_lid(
    canvas: Canvas, person: Person, side: Side, closure: float, upper: Float64
) -> None:
    open_upper, _ = lid_curves(person, side, 0.0)
    s = np.linspace(-1, 1, len(upper))
    arc = np.sqrt(np.maximum(1 - s**2, 0))[:, None]
    gap = 0.055 + 0.03 * person.crease
    fold = open_upper - (0, 1) * (gap * (0.45 + 0.55 * arc)) + (0, 0.02 * closure)
    # The closed lid is a round cover: lighter along its middle, darker at its sides.
    if closure > 0.1:
        cover = np.concatenate([fold, upper[::-1]])
        tone = np.asarray(person.skin) * (0.93, 0.87, 0.86)
        canvas.fill(cover, tone, softness=0.008)
        middle = fold * 0.55 + upper * 0.45
        canvas.ribbon(
            middle[3:-3], 0.05 * closure, (1.07, 1.06, 1.06), multiply=True, softness=0.03
        )
    strength = 0.10 + 0.32 * person.crease
    shade = 1 - strength * (1 - 0.35 * closure)
    taper = 0.010 + 0.016 * arc[:, 0]
    canvas.ribbon(
        fold[1:-1], taper[1:-1], (shade, shade * 0.95, shade * 0.94), multiply=True, softness=0.010
    )
    canvas.ribbon(upper[2:-2], 0.03, (0.88, 0.82, 0.82), multiply=True, softness=0.016)


def _paint_lashes(
    canvas: Canvas, person: Person, side: Side, closure: float, lids: tuple[Float64, Float64]
) -> None:
    upper, lower = lids
    outward = np.linspace(-1, 1, len(upper)) * side  # 1 at the outer corner
    dark = np.minimum(np.asarray(person.brows) * 0.45, 60)
    infant = person.age_group == "infant"
    weight = (0.75 if infant else 1.0) * (0.021 + 0.010 * (outward + 1) / 2)
    ends = np.minimum(1, 6 * (1 - np.abs(np.linspace(-1, 1, len(upper)))) + 0.35)
    line = upper - np.stack([np.zeros(len(upper)), weight * 0.35], axis=1)
    canvas.ribbon(line, weight * ends * 1.35, dark, softness=0.006, opacity=0.92)
    rim = np.asarray(person.skin) * (0.66, 0.50, 0.48)
    canvas.ribbon(lower[1:-1], 0.013, rim, softness=0.006, opacity=0.75)
    canvas.ribbon(
        moved(lower[3:-2], 0, 0.014), 0.011, dark, softness=0.006, opacity=0.16 if infant else 0.30
    )
    # Lashes point outwards and, with the eye open, up; they turn down as it closes.
    rise = 0.045 - 0.085 * closure
    root, far = line[3:-1], outward[3:-1, None]
    lean = 0.022 * far * side
    tip = root + np.concatenate([lean, -rise * (0.6 + 0.4 * np.abs(far))], axis=1)
    bend = (root + tip) / 2 + np.concatenate([lean * 0.2, lean * 0], axis=1)
    lashes = ribbon_outline(np.stack([root, bend, tip], axis=1), [0.012, 0.009, 0.004])
    canvas.fill(lashes, dark, opacity=0.35 if infant else 0.6)
    corner = upper[0] if side == 1 else upper[-1]
    if closure < _SHUT:  # the pink corner at the nose
        tear = smooth_line(
            [
                corner,
                moved(corner, side * 0.022, -0.008),
                moved(corner, side * 0.03, 0.012),
                corner,
            ],
            8,
        )
        canvas.fill(tear, np.asarray(person.skin) * (0.86, 0.60, 0.58), softness=0.006, opacity=0.8)
