"""Painting the parts of a face that do not move: skin, brows, nose, lips, wrinkles, ears.

Colours are those of evenly lit skin; light and shadow are added by `rendering`, save for the
narrow dark places (nostrils, folds, the line between the lips) that light never reaches.
"""

import numpy as np

from site_agent.datasets.synthetic import canvas as drawing
from site_agent.datasets.synthetic.head_model import HeadShape
from site_agent.datasets.synthetic.persons import Person


def paint_skin(canvas: drawing.Canvas, shape: HeadShape, rng: np.random.Generator) -> None:
    """Paint the face of a person, without eyes and hair, over the whole canvas."""
    person = shape.person
    canvas.pixels[:] = person.skin
    grain = drawing.cloud(rng, canvas.pixels.shape[:2], 0.22 * canvas.scale)
    pores = drawing.cloud(rng, canvas.pixels.shape[:2], 2.0)
    canvas.pixels *= (1 + 0.018 * grain + 0.014 * pores)[..., None]
    _paint_blush(canvas, person)
    _paint_wrinkles(canvas, shape)
    _paint_brows(canvas, shape, rng)
    _paint_nose(canvas, shape)
    _paint_mouth(canvas, shape)


def ear_outlines(person: Person) -> tuple[drawing.Float64, drawing.Float64]:
    """Return the outlines of both ears in the plane: left and right of the picture."""
    size, stand = person.ear_size, person.ear_stand
    half = np.array(
        [
            (0.93, -0.02),
            (1.02 + stand * 0.7, -0.13),
            (1.08 + stand, -0.02),
            (1.06 + stand * 0.8, size * 0.8),
            (1.01 + stand * 0.4, size * 1.5),
            (0.96, size * 1.75),
            (0.92, size * 1.4),
        ]
    )
    right = drawing.smooth_line(np.concatenate([half, half[:1]]), 30)
    return right * (-1, 1), right


def paint_ears(canvas: drawing.Canvas, person: Person) -> None:
    """Paint both ears; they lie behind face and hair."""
    for side, outline in zip((-1, 1), ear_outlines(person), strict=True):
        canvas.fill(outline, (0.97, 0.88, 0.86), multiply=True, softness=0.01)
        middle = outline.mean(axis=0)
        inner = (outline - middle) * (0.55, 0.62) + middle + (0.0, -0.02)
        canvas.fill(inner, (0.72, 0.60, 0.56), multiply=True, softness=0.035)
        rim = outline[2:20] * (1, 1) + (-0.012 * side, 0)
        canvas.ribbon(rim, 0.03, (1.08, 1.06, 1.05), multiply=True, softness=0.012)


def _paint_blush(canvas: drawing.Canvas, person: Person) -> None:
    red = 0.10 * person.redness
    warm = (1.0, 1 - red, 1 - red)
    nose = person.nose_y
    for side in (-1, 1):
        canvas.ellipse((side * 0.58, nose * 0.9), (0.26, 0.2), warm, multiply=True, softness=0.12)
        canvas.ellipse(
            (side * person.eye_x, 0.0),
            (0.27, 0.15),
            (0.95, 0.90, 0.90),
            multiply=True,
            softness=0.08,
        )
        canvas.ellipse(
            (side * person.eye_x * 0.8, 0.08),
            (0.15, 0.06),
            (0.95, 0.91, 0.93),
            multiply=True,
            softness=0.05,
        )
    canvas.ellipse((0, nose - 0.08), (0.16, 0.12), warm, multiply=True, softness=0.07)
    canvas.ellipse((0, person.chin_y * 0.92), (0.2, 0.12), warm, multiply=True, softness=0.08)


def _paint_wrinkles(canvas: drawing.Canvas, shape: HeadShape) -> None:
    person = shape.person
    depth = person.wrinkles
    corner = shape.mouth[6]
    for side in (-1, 1):
        wing = (side * (person.nose_width * 0.72), person.nose_y - 0.08)
        end = (side * (corner[0] + 0.10), corner[1] - 0.04)
        bend = (side * (corner[0] * 0.72 + 0.14), (wing[1] + end[1]) / 2 - 0.02)
        fold = drawing.smooth_line([wing, bend, end], 14)
        factor = 1 - 0.12 - 0.16 * depth
        taper = np.sin(np.linspace(0.5, np.pi, 14)) * 0.035 + 0.006
        canvas.ribbon(
            fold, taper, (factor, factor * 0.95, factor * 0.94), multiply=True, softness=0.022
        )


def _paint_brows(canvas: drawing.Canvas, shape: HeadShape, rng: np.random.Generator) -> None:
    person = shape.person
    for first, side in ((0, -1), (5, 1)):
        knots = shape.brows[first : first + 5]
        knots = knots[::-1] if side == -1 else knots  # from the nose outwards
        line = drawing.moved(drawing.smooth_line(knots, 24), 0, 0.012)
        t = np.linspace(0, 1, 24)
        width = (
            person.brow_thickness
            * (0.75 + 0.5 * np.sin(np.pi * (t * 0.8 + 0.1)))
            * (1 - 0.75 * t**3)
        )
        canvas.ribbon(line, width, person.brows, softness=0.018, opacity=0.62 * person.brow_density)
        place = rng.random(int(46 * person.brow_density))
        at = (place * 23).astype(int)
        spread = rng.uniform(-0.5, 0.5, len(at)) * width[at]
        root = line[at] + np.stack([rng.normal(0, 0.01, len(at)), spread], axis=1)
        rise = -0.035 * (1 - 1.5 * place) * rng.uniform(0.4, 1.3, len(at))
        tip = root + np.stack([side * (0.035 + 0.05 * place), rise], axis=1)
        hairs = np.stack([root, (root + tip) / 2, tip], axis=1)
        canvas.fill(
            drawing.ribbon_outline(hairs, [0.013, 0.013, 0.004]),
            person.brows,
            opacity=0.75 * person.brow_density,
        )


def _paint_nose(canvas: drawing.Canvas, shape: HeadShape) -> None:
    person = shape.person
    lean, base, width = person.asymmetry[2], person.nose_y, person.nose_width
    canvas.ellipse(
        (lean, base + 0.035), (width * 0.62, 0.04), (0.80, 0.70, 0.68), multiply=True, softness=0.03
    )
    for side in (-1, 1):
        hole = (lean + side * width * 0.36, base - 0.012)
        canvas.ellipse(
            hole, (width * 0.21, 0.026), (0.26, 0.15, 0.14), multiply=True, softness=0.013
        )
        edge = lean + side * width
        wing = drawing.smooth_line(
            [
                (edge * 0.86 + lean * 0.14, base - 0.16),
                (edge, base - 0.085),
                (edge * 0.93, base - 0.025),
                (edge * 0.70, base - 0.005),
            ],
            14,
        )
        taper = 0.012 + 0.022 * np.sin(np.linspace(0, np.pi, 14))
        canvas.ribbon(wing, taper, (0.68, 0.56, 0.54), multiply=True, softness=0.014)
        flank = [
            (side * 0.10 + lean * 0.3, 0.05),
            (side * 0.10 + lean * 0.5, base * 0.4),
            (side * width * 0.7 + lean, base - 0.18),
        ]
        canvas.ribbon(
            drawing.smooth_line(flank, 10),
            0.05,
            (0.975, 0.96, 0.955),
            multiply=True,
            softness=0.035,
        )
    for side in (-1, 1):  # philtrum
        groove = [
            (lean + side * 0.035, base + 0.04),
            (lean + side * 0.045, (base + shape.mouth[3, 1]) / 2),
            (lean + side * 0.06, shape.mouth[3, 1] - 0.01),
        ]
        canvas.ribbon(
            drawing.smooth_line(groove, 6), 0.02, (0.94, 0.91, 0.90), multiply=True, softness=0.014
        )


def _paint_mouth(canvas: drawing.Canvas, shape: HeadShape) -> None:
    person, mouth = shape.person, shape.mouth
    outer, inner = mouth[:12], mouth[12:]
    upper_edge = drawing.smooth_line(outer[:7], 24)
    lower_edge = drawing.smooth_line(outer[[0, 11, 10, 9, 8, 7, 6]], 24)
    upper_in = drawing.smooth_line(np.concatenate([outer[:1], inner[:5], outer[6:7]]), 24)
    lower_in = drawing.smooth_line(
        np.concatenate([outer[:1], inner[[0, 7, 6, 5, 4]], outer[6:7]]), 24
    )
    lips = np.asarray(person.lips)
    canvas.fill(
        np.concatenate([upper_edge, lower_in[::-1]]), lips * (0.90, 0.86, 0.87), softness=0.012
    )
    canvas.fill(np.concatenate([upper_in, lower_edge[::-1]]), lips, softness=0.012)
    shine = drawing.smooth_line((lower_in[6:18] * 0.45 + lower_edge[6:18] * 0.55), 10)
    canvas.ribbon(shine, 0.035, (255, 240, 235), softness=0.022, opacity=0.20)
    opening = np.concatenate([upper_in[2:-2], lower_in[-3:1:-1]])
    if shape.expression.mouth_open > 0.05:
        canvas.fill(opening, (48, 18, 20), softness=0.006)
    middle = (upper_in + lower_in) / 2 if shape.expression.mouth_open <= 0.05 else upper_in
    taper = 0.012 + 0.016 * np.sin(np.linspace(0, np.pi, 24))
    canvas.ribbon(middle, taper, lips * 0.34, softness=0.008, opacity=0.9)
    for corner in (outer[0], outer[6]):
        canvas.ellipse(corner, (0.03, 0.022), (0.66, 0.56, 0.56), multiply=True, softness=0.018)
    below = drawing.moved(lower_edge[5:19], 0, 0.045)
    canvas.ribbon(below, 0.05, (0.87, 0.82, 0.81), multiply=True, softness=0.03)
