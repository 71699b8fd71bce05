"""Traces of lids that blink, close slowly, look down and turn away, with the truth about each."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from site_agent.eyeblink.records import EyeTrace
from tests.site_agent.eyeblink.drawn_traces import Float64, trace_of

Form = Literal["linear", "cosine"]
Interval = tuple[float, float]
FORMS: tuple[Form, ...] = ("linear", "cosine")


_BLINK_S = ((0.07, 0.14), (0.0, 0.05), (0.13, 0.28))
_RANGES = {
    "partial": (*_BLINK_S, (0.4, 0.7)),
    "squint": ((0.08, 0.25), (0.0, 0.3), (0.12, 0.35), (0.33, 0.67)),
    "laugh": ((0.15, 0.4), (0.7, 2.2), (0.15, 0.4), (0.33, 0.67)),
    "roll": ((0.05, 0.25), (0.0, 0.1), (0.1, 0.25), (0.33, 0.67)),
    "glance": ((0.12, 0.6), (0.6, 5.0), (0.12, 0.6), (0.1, 0.5)),
    "turn": ((0.12, 0.6), (0.6, 5.0), (0.12, 0.6), (-0.25, 0.35)),
}
"""How long the lids (or the head) move, stay and move back in seconds, and how far in FEC (or in
shares of EAR, which grows where they are negative)."""


@dataclass(frozen=True)
class LidDrawing:
    """Events of a drawn recording; ranges are drawn from evenly, times in seconds.

    Attributes
    ----------
    blinks, partials, closures, glances, turns, squints, laughs, rolls : int
        How many of each; they follow one another in random order with `pause_s` between them. A
        laugh narrows the eyes for 1 to 3 s and shakes them; rolled eyes come one to four at once.
    closing_s, blink_fec : (least, most)
        How long the lids take in a closure, and how far they close in a blink.
    """

    frame_rate_hz: float = 30.0
    blinks: int = 10
    closures: int = 10
    glances: int = 0
    turns: int = 0
    squints: int = 0
    laughs: int = 0
    rolls: int = 0
    partials: int = 0
    pause_s: Interval = (1.5, 4.0)
    closing_s: Interval = (0.3, 2.0)
    blink_fec: Interval = (0.85, 1.0)
    closed_ear: float = 0.07
    noise_ear: float = 0.006
    begins_closed: bool = False
    ends_closed: bool = False


@dataclass(frozen=True, eq=False)
class DrawnLids:
    """A trace, and the (onset, offset) in seconds of its events; partial blinks are blinks, too."""

    trace: EyeTrace
    blinks: list[Interval]
    closures: list[Interval]
    partials: list[Interval]


def draw_lids(seed: int, drawing: LidDrawing) -> DrawnLids:
    """Draw the events of a `LidDrawing`; closures amount to 0.93 to 1 of the way."""
    rng = np.random.default_rng(seed)
    ranges = {
        "blink": (*_BLINK_S, drawing.blink_fec),
        "closure": (drawing.closing_s, (0.3, 10.0), (0.2, 1.0), (0.93, 1.0)),
        **_RANGES,
    }
    kinds = rng.permutation(
        ["blink"] * drawing.blinks
        + ["closure"] * drawing.closures
        + ["glance"] * drawing.glances
        + ["turn"] * drawing.turns
        + ["squint"] * drawing.squints
        + ["laugh"] * drawing.laughs
        + ["roll"] * drawing.rolls
        + ["partial"] * drawing.partials
    )
    moves: list[tuple[str, Float64, float, Form]] = []
    at_s = 0.0
    if drawing.begins_closed:
        moves.append(("closure", np.array([-2.0, -1.0, 3.0, 3.4]), 1.0, "cosine"))
        at_s = 3.4
    for kind in kinds:
        at_s += rng.uniform(*drawing.pause_s)
        for _ in range(rng.integers(1, 5) if kind == "roll" else 1):
            *lengths, amount = (rng.uniform(*bounds) for bounds in ranges[str(kind)])
            form = FORMS[rng.integers(len(FORMS))]
            edges = at_s + np.concatenate([[0.0], np.cumsum(lengths)])
            moves.append((str(kind), edges, amount, form))
            at_s = float(edges[-1]) + (rng.uniform(0.1, 0.4) if kind == "roll" else 0.0)
    at_s += rng.uniform(*drawing.pause_s)
    if drawing.ends_closed:
        moves.append(("closure", at_s + np.array([0.0, 0.8, 20.0, 21.0]), 1.0, "cosine"))
        at_s += 4.0
    times_s = np.arange(int(at_s * drawing.frame_rate_hz)) / drawing.frame_rate_hz
    closure, turned = np.zeros(len(times_s)), np.ones(len(times_s))
    for kind, edges, amount, form in moves:
        share = amount * _shape(np.interp(times_s, edges, [0.0, 1.0, 1.0, 0.0]), form)
        if kind == "laugh":  # the face shakes a few times a second
            share *= 1.0 + 0.12 * np.sin(2.0 * np.pi * 5.0 * (times_s - edges[0]))
        if kind == "turn":
            turned *= 1.0 - share
        else:
            closure = np.maximum(closure, share)
    level = 0.3 + 0.01 * np.sin(times_s / 9.0 + rng.uniform(0.0, 6.0))
    ear = level * turned - (level * turned - drawing.closed_ear) * closure
    ear += rng.normal(0.0, drawing.noise_ear, len(times_s))

    def intervals(*requested: str) -> list[Interval]:
        return [
            (max(float(edges[0]), 0.0), min(float(edges[-1]), float(times_s[-1])))
            for kind, edges, _, _ in moves
            if kind in requested
        ]

    return DrawnLids(
        trace_of(times_s, ear),
        intervals("blink", "partial"),
        intervals("closure"),
        intervals("partial"),
    )


def _shape(share: Float64, form: Form) -> Float64:
    if form == "linear":
        return share
    return np.asarray(0.5 - 0.5 * np.cos(np.pi * share))
