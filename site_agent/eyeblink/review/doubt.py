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
    """Weigh what speaks against an automatic blink: confidence, limits nearby, eyes not seen."""
    row = result.rows.get(event.blink_id, {})
    confidence = _number(row.get("confidence", ""))
    found: list[tuple[float, str]] = []
    if math.isfinite(confidence):
        found.append((1.0 - confidence, f"confidence {confidence:.2f}"))
    if event.completeness == "partial":
        found.append((0.25, "partial"))
    if event.kind == "closure":
        found.append((0.1, "long closure"))
    found += _near_limits(event, _number(row.get("peak_fec", "")), result)
    lost = _lost_share(event, result)
    if lost > 0:
        found.append((0.2 + 0.5 * lost, f"eyes not seen in {100 * lost:.0f} % of it"))
    found.sort(key=lambda entry: -entry[0])
    reasons = tuple(text for weight, text in found if weight >= 0.05)
    return Doubt(round(sum(weight for weight, _ in found), 4), reasons)


def _near_limits(
    event: ReviewEvent, peak_fec: float, result: AutomaticResult
) -> list[tuple[float, str]]:
    """Small changes of a setting would change what these are."""
    duration_ms = event.duration_ms
    longest_ms = result.blink_setting("longest_blink_ms", 800.0)
    shortest_ms = result.blink_setting("shortest_blink_ms", 50.0)
    complete_fec = result.blink_setting("complete_fec", 0.75)
    smallest_fec = result.blink_setting("smallest_fec", 0.25)
    return [
        (
            0.3 * _closeness(duration_ms, longest_ms, 0.15 * longest_ms),
            "almost a closure",
        ),
        (0.3 * _closeness(duration_ms, shortest_ms, 30.0), "hardly long enough"),
        (0.15 * _closeness(peak_fec, complete_fec, 0.08), "between partial and complete"),
        (0.3 * _closeness(peak_fec, smallest_fec, 0.15), "hardly deep enough"),
    ]


def _closeness(value: float, limit: float, width: float) -> float:
    if not math.isfinite(value) or width <= 0:
        return 0.0
    return math.exp(-(((value - limit) / width) ** 2))


def _lost_share(event: ReviewEvent, result: AutomaticResult) -> float:
    times_s, ear = result.frames.timestamps_s, result.frames.signals["ear"]
    first = int(np.searchsorted(times_s, event.onset_s - GAP_MARGIN_S))
    last = int(np.searchsorted(times_s, event.offset_s + GAP_MARGIN_S, side="right"))
    return float(np.mean(~np.isfinite(ear[first:last]))) if last > first else 0.0


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
