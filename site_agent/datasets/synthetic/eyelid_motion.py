"""How eyelids move in a blink, and when people blink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from site_agent.datasets.synthetic.canvas import Float64

_COMPLETE = 0.9


@dataclass(frozen=True)
class Blink:
    """One blink of both eyes; `amplitude` is the closure at the peak, 0..1."""

    onset_s: float
    peak_s: float
    offset_s: float
    amplitude: float = 1.0

    @property
    def complete(self) -> bool:
        """Whether the lids met, or nearly."""
        return self.amplitude >= _COMPLETE


def closure_curve(blinks: Sequence[Blink], times_s: Float64) -> Float64:
    """Closure of the lids, 0..1, at each time; touching blinks do not add up.

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
    """Blinks of somebody at rest: every 2 to 6 s, some partial, some double.

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
