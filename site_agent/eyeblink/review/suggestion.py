"""Help for the reviewer: begin and end of a missed blink, and the blinks that are uncertain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.review.actions import Add, ReviewEvent
from site_agent.eyeblink.review.automatic_result import AutomaticResult, FrameColumns

SEARCH_S = 0.15
LONGEST_HALF_S = 0.5
SURROUNDINGS_S = 1.0
EDGE_SHARE = 0.15
"""A blink begins and ends where the lid has left its level by this share of its way."""


def suggest_blink(result: AutomaticResult, frame: int) -> Add:
    """Suggest a blink around a frame: from the trace where it shows one, else 200 ms long."""
    frames, settings = result.frames, result.session.settings.blinks
    times_s, fec = frames.timestamps_s, frames.signals["fec"]
    near = slice(
        frames.nearest(times_s[frame] - SEARCH_S), frames.nearest(times_s[frame] + SEARCH_S) + 1
    )
    wide = slice(
        frames.nearest(times_s[frame] - SURROUNDINGS_S),
        frames.nearest(times_s[frame] + SURROUNDINGS_S) + 1,
    )
    if not np.isfinite(fec[near]).any():
        return _suggest_fixed(frames, frame)
    peak = near.start + int(np.nanargmax(fec[near]))
    level = float(np.nanmedian(fec[wide]))
    edge = level + EDGE_SHARE * (float(fec[peak]) - level)
    onset, offset = _edge(frames, peak, edge, -1), _edge(frames, peak, edge, +1)
    if not onset < peak < offset:
        return _suggest_fixed(frames, peak)
    deep = float(fec[peak]) >= settings.complete_fec
    half = (level + float(fec[peak])) / 2.0
    half_s = times_s[_edge(frames, peak, half, +1)] - times_s[_edge(frames, peak, half, -1)]
    long = half_s * 1000 > settings.longest_blink_ms
    return Add(
        onset_s=float(times_s[onset]),
        peak_s=float(times_s[peak]),
        offset_s=float(times_s[offset]),
        kind="closure" if long else "blink",
        completeness="complete" if deep else "partial",
    )


def _edge(frames: FrameColumns, peak: int, edge_fec: float, step: int) -> int:
    """Go from the peak to the first frame at or below an FEC."""
    times_s, fec = frames.timestamps_s, frames.signals["fec"]
    place = peak
    while 0 <= place + step < len(frames):
        place += step
        value = float(fec[place])
        far = abs(times_s[place] - times_s[peak]) >= LONGEST_HALF_S
        if math.isnan(value) or value <= edge_fec or far:
            break
    return place


def _suggest_fixed(frames: FrameColumns, frame: int) -> Add:
    time_s = float(frames.timestamps_s[frame])
    onset, offset = frames.nearest(time_s - 0.08), frames.nearest(time_s + 0.12)
    if onset == offset:
        offset = min(onset + 1, len(frames) - 1)
        onset = max(offset - 1, 0)
    times_s = frames.timestamps_s
    return Add(
        onset_s=float(times_s[onset]),
        peak_s=float(np.clip(time_s, times_s[onset], times_s[offset])),
        offset_s=float(times_s[offset]),
        completeness="partial",
    )


# The order in which to review: by how uncertain an automatic blink is.

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
