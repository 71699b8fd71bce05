"""How uncertain an automatic blink is, and why: the order in which to review."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.review.automatic_result import AutomaticResult
from site_agent.eyeblink.review.replay import ReviewEvent

GAP_MARGIN_S = 0.1
"""Eyes that are lost so shortly before or after a blink may have cut it."""


@dataclass(frozen=True)
class Doubt:
    """`score` 0 (clear) to about 2; `reasons` in words, the weightiest first."""

    score: float
    reasons: tuple[str, ...]


def doubt_of(event: ReviewEvent, result: AutomaticResult) -> Doubt:
    """Weigh what speaks against an automatic blink: low confidence, partial, eyes not seen."""
    row = result.rows.get(event.blink_id, {})
    confidence = float(row.get("confidence") or "nan")
    found: list[tuple[float, str]] = []
    if math.isfinite(confidence):
        found.append((1.0 - confidence, f"confidence {confidence:.2f}"))
    if event.completeness == "partial":
        found.append((0.25, "partial"))
    if event.kind == "closure":
        found.append((0.1, "long closure"))
    lost = _lost_share(event, result)
    if lost > 0:
        found.append((0.2 + 0.5 * lost, f"eyes not seen in {100 * lost:.0f} % of it"))
    found.sort(key=lambda entry: -entry[0])
    reasons = tuple(text for weight, text in found if weight >= 0.05)
    return Doubt(round(sum(weight for weight, _ in found), 4), reasons)


def _lost_share(event: ReviewEvent, result: AutomaticResult) -> float:
    times_s, ear = result.frames.timestamps_s, result.frames.signals["ear"]
    first = int(np.searchsorted(times_s, event.onset_s - GAP_MARGIN_S))
    last = int(np.searchsorted(times_s, event.offset_s + GAP_MARGIN_S, side="right"))
    return float(np.mean(~np.isfinite(ear[first:last]))) if last > first else 0.0
