"""Pictures of drawn persons in a room, some with glasses, with their landmarks and boxes."""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from site_agent.datasets.landmark_schemes import eye_aspect_ratio, eyes_of
from site_agent.datasets.synthetic import canvas as drawing
from site_agent.datasets.synthetic import head_model, persons, rendering
from site_agent.datasets.synthetic.canvas import Canvas, Float32, Float64, blend
from site_agent.datasets.synthetic.head_model import Placement, Pose
from site_agent.datasets.synthetic.persons import Person
from site_agent.datasets.synthetic.rendering import Light
from site_agent.errors import InvalidInputError

_DEPTH = -1.05


def draw_body(
    picture: Float32, person: Person, placement: Placement, pose: Pose, light: Light
) -> None:
    """Draw neck and shoulders, in place, before the head is drawn.

    The body follows the head only in part: turning the head leaves the shoulders where they are.
    """
    upright = Pose(0.25 * pose.yaw_deg, 0.2 * pose.pitch_deg, 0.25 * pose.roll_deg).matrix()
    where = Placement(upright, placement.scale, placement.centre)
    canvas, scale = Canvas(picture), placement.scale
    tint = np.asarray(light.colour) * (light.ambient + 0.5 * light.strength)
    infant = person.age_group == "infant"
    chin, neck = person.chin_y, 0.44 if infant else 0.38 + 0.34 * person.jaw_width
    base, shoulder = chin + (0.20 if infant else 0.38), 1.35 if infant else 2.25

    def seen(half: list[tuple[float, float]]) -> Float64:
        """Return the outline, in pixels, of a symmetric shape; its right half goes upwards."""
        knots = [*((-x, y) for x, y in reversed(half)), (0.0, half[0][1] + 0.05), *half]
        plane = drawing.smooth_line(knots, 40)
        return where.project(np.column_stack([plane, np.full(len(plane), _DEPTH)]))

    skin = np.asarray(person.skin) * tint
    throat = seen([(neck + 0.4, base + 0.4), (neck, chin), (neck, 0.55 * chin)])
    canvas.fill(throat, skin * 0.8, softness=0.012 * scale)
    shade = seen([(neck * 0.9, chin + 0.15), (neck, 0.6 * chin)])  # the chin keeps light away
    canvas.fill(shade, (0.58, 0.52, 0.50), multiply=True, softness=0.07 * scale)
    clothes = [(shoulder, base + 4.0), (shoulder, base + 0.9), (neck + 0.3, base + 0.12)]
    canvas.fill(seen(clothes), np.asarray(person.clothes) * tint, softness=0.02 * scale)


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
    grain = drawing.cloud(rng, (rows, columns), rng.uniform(2, 18))
    canvas.pixels *= (1 + rng.uniform(0, 0.06) * grain)[..., None]
    focus = drawing.blurred(canvas.pixels, rng.uniform(0.4, 2.5))
    return np.clip(drawing.resized(focus, (height, width)), 0, 255).astype(np.float32)


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
        canvas.ribbon(
            drawing.smooth_line(knots, 20), float(rng.uniform(2, 9)), colour, opacity=opacity
        )


# Measured between dlib's stock detector and 68 landmarks on photographs: side of the square over
# the landmarks' root mean square distance from their mean, and the shift of its centre.
_BOX_SIDE, _BOX_SHIFT_Y = 2.96, -0.17
_STEEPEST_DEG = 25.0


@dataclass(frozen=True)
class Portrait:
    """One person in one picture.

    Left and right are the subject's; closures are 0 (open) to 1, gazes -1..1.
    """

    person: persons.Person
    centre_px: tuple[float, float]
    scale_px: float
    """Pixels per face unit (half the width of the face); the face box is about 2.2 times that."""
    pose: head_model.Pose = field(default_factory=head_model.Pose)
    expression: head_model.Expression = field(default_factory=head_model.Expression)
    closure_left: float = 0.0
    closure_right: float = 0.0
    gaze: tuple[float, float] = (0.0, 0.0)


def draw_portrait(
    scene: Float32,
    portrait: Portrait,
    light: rendering.Light,
    head: rendering.PaintedHead | None = None,
    *,
    with_body: bool = True,
) -> Float64:
    """Draw a person into a scene, in place, and return the landmarks, shape (68, 2) in pixels.

    A `head` painted before (`paint_head` with the portrait's person, expression and scale) saves
    most of the time where one person is drawn often.
    """
    _check(portrait)
    head = head or rendering.paint_head(portrait.person, portrait.expression, portrait.scale_px)
    placement = placement_of(portrait)
    if with_body:
        draw_body(scene, portrait.person, placement, portrait.pose, light)
    closures = (portrait.closure_right, portrait.closure_left)
    rendering.draw_head(scene, head, placement, light, closures=closures, gaze=portrait.gaze)
    return placement.project(head.shape.landmarks(*closures))


def placement_of(portrait: Portrait) -> head_model.Placement:
    """Where the head of a portrait is in its picture."""
    return head_model.Placement(portrait.pose.matrix(), portrait.scale_px, portrait.centre_px)


def face_box(landmarks: Float64) -> tuple[int, int, int, int]:
    """The square that dlib's stock detector would give: left, top, right, bottom, inclusive."""
    middle = landmarks.mean(axis=0)
    spread = float(np.sqrt(((landmarks - middle) ** 2).sum(axis=1).mean()))
    side = max(round(_BOX_SIDE * spread), 1)
    left = round(float(middle[0]) - side / 2)
    top = round(float(middle[1]) + _BOX_SHIFT_Y * spread - side / 2)
    return left, top, left + side - 1, top + side - 1


def eye_aspect_ratios(landmarks: Float64) -> tuple[float, float]:
    """Return the EAR of the subject's right and left eye; landmarks as in `eyes_of`."""
    left, right = eyes_of(landmarks)
    return float(eye_aspect_ratio(right)), float(eye_aspect_ratio(left))


def _check(portrait: Portrait) -> None:
    for name in ("closure_left", "closure_right"):
        value = getattr(portrait, name)
        if not 0.0 <= value <= 1.0:
            raise InvalidInputError(f"{name} is {value}; expected 0 (open) to 1 (closed)")
    for name in ("yaw_deg", "pitch_deg"):
        value = getattr(portrait.pose, name)
        if not abs(value) <= _STEEPEST_DEG:
            raise InvalidInputError(
                f"{name} is {value}; drawn heads can be turned by at most {_STEEPEST_DEG:g} degrees"
            )
    if not portrait.scale_px > 4:
        raise InvalidInputError(f"scale_px is {portrait.scale_px}; expected more than 4 pixels")


_ANGLES = np.linspace(0, 2 * np.pi, 41)


def draw_glasses(scene: Float32, landmarks: Float64, wearer: int, rng: np.random.Generator) -> None:
    """Draw glasses over a face, in place.

    `scene` (float32, shape (H, W, 3)): colours in 0..255. `landmarks` (shape (68, 2)): in pixels.
    `wearer`: the number of the person, which decides on the frame and the lenses. `rng` decides on
    differences between pictures: the slip of the glasses and the reflections of the lenses.
    """
    wearer_rng = np.random.default_rng([0x61A55E5, wearer])
    left, right = (eye.mean(axis=0) for eye in eyes_of(landmarks))
    across = left - right
    turn = np.stack([across, (-across[1], across[0])])  # right and down, in pixels
    apart = float(np.linalg.norm(across))
    slipped = rng.uniform(0.05, 0.22) if rng.random() < 0.3 else rng.normal(0.02, 0.02)
    half_width, half_height = wearer_rng.uniform(0.34, 0.46), wearer_rng.uniform(0.2, 0.38)
    # A superellipse: 2 is round, 6 almost a rectangle.
    power = 2 / wearer_rng.uniform(2, 6)
    shape = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)
    shape = np.sign(shape) * np.abs(shape) ** power * (half_width, half_height)
    centres = [eye + (0, slipped) @ turn for eye in (right, left)]
    lenses = [centre + shape @ turn for centre in centres]
    shrink, tint = (
        wearer_rng.choice([1.0, 1.0, 0.93, 0.85, 1.08]),
        wearer_rng.uniform(0.75, 1.0, 3) ** 0.5,
    )
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
    thick, colour = (
        wearer_rng.uniform(0.012, 0.075) * apart,
        wearer_rng.uniform(10, 110) * wearer_rng.uniform(0.6, 1, 3),
    )
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
    """Make the scene behind a lens smaller (`shrink` below 1) and darker."""
    rows, columns = np.indices(scene.shape[:2])
    x, y = ((place - at) / shrink + at for place, at in zip((columns, rows), centre, strict=True))
    seen = drawing.sampled(scene, x.astype(np.float32), y.astype(np.float32))
    blend(scene, seen * tint.astype(np.float32), _inside(scene, lens))


def _reflect(
    scene: Float32, lens: Float64, window: Float64, brightness: Float64, opacity: float
) -> None:
    """Lay the light of a window over the part of a lens that shows it."""
    if opacity:
        soft = drawing.blurred(_inside(scene, window), 1.0)
        cover = soft * _inside(scene, lens) * np.float32(opacity)
        light = np.broadcast_to(brightness.astype(np.float32), scene.shape)
        blend(scene, np.ascontiguousarray(light), cover)


def _inside(scene: Float32, outline: Float64) -> Float32:
    return drawing.polygon_mask(scene.shape[:2], outline).astype(np.float32) / np.float32(255)
