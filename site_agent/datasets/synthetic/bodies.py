"""Neck and clothes below a head."""

import numpy as np

from site_agent.datasets.synthetic.canvas import Canvas, Float32, Float64, smooth_line
from site_agent.datasets.synthetic.head_model import Placement, Pose
from site_agent.datasets.synthetic.persons import Person
from site_agent.datasets.synthetic.rendering import Light

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
        """Return the outline, in pixels, of a shape whose right half goes upwards."""
        knots = [*((-x, y) for x, y in reversed(half)), (0.0, half[0][1] + 0.05), *half]
        plane = smooth_line(knots, 40)
        return where.project(np.column_stack([plane, np.full(len(plane), _DEPTH)]))

    skin = np.asarray(person.skin) * tint
    throat = seen([(neck + 0.4, base + 0.4), (neck, chin), (neck, 0.55 * chin)])
    canvas.fill(throat, skin * 0.8, softness=0.012 * scale)
    shade = seen([(neck * 0.9, chin + 0.15), (neck, 0.6 * chin)])  # the chin keeps light away
    canvas.fill(shade, (0.58, 0.52, 0.50), multiply=True, softness=0.07 * scale)
    clothes = [(shoulder, base + 4.0), (shoulder, base + 0.9), (neck + 0.3, base + 0.12)]
    canvas.fill(seen(clothes), np.asarray(person.clothes) * tint, softness=0.02 * scale)
