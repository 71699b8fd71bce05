"""Where a blink that the analysis missed might begin and end, for the reviewer to correct."""

from __future__ import annotations

import math

import numpy as np

from site_agent.eyeblink.review.actions import Add
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
        return _fixed(frames, frame)
    peak = near.start + int(np.nanargmax(fec[near]))
    level = float(np.nanmedian(fec[wide]))
    edge = level + EDGE_SHARE * (float(fec[peak]) - level)
    onset, offset = _edge(frames, peak, edge, -1), _edge(frames, peak, edge, +1)
    if not onset < peak < offset:
        return _fixed(frames, peak)
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


def _fixed(frames: FrameColumns, frame: int) -> Add:
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
