"""Parts of a trace for drawing: every frame where there are few, else the extent per pixel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from site_agent.eyeblink.records import Float64, Int64


@dataclass(frozen=True, eq=False)
class TraceWindow:
    """A part of the signals: single frames where `is_exact`, else their extent in bins.

    Of a bin, `frames` has the first frame and `times_s` the middle.
    """

    frames: Int64
    times_s: Float64
    lows: Mapping[str, Float64]
    highs: Mapping[str, Float64]
    is_exact: bool


def trace_window(
    timestamps_s: Float64,
    signals: Mapping[str, Float64],
    from_s: float,
    to_s: float,
    most_points: int,
) -> TraceWindow:
    """Return the signals between two times, with one frame more on either side.

    Minimum and maximum of each bin are kept, so that no blink is lost however far the view is
    zoomed out.
    """
    count = len(timestamps_s)
    first = max(0, int(np.searchsorted(timestamps_s, from_s)) - 1)
    last = min(count, int(np.searchsorted(timestamps_s, to_s, side="right")) + 1)
    if last - first <= most_points:
        part = slice(first, last)
        values = {name: signal[part] for name, signal in signals.items()}
        return TraceWindow(np.arange(first, last), timestamps_s[part], values, values, True)
    edges_s = np.linspace(from_s, to_s, most_points + 1)
    starts = np.searchsorted(timestamps_s, edges_s)
    filled = np.flatnonzero(np.diff(starts) > 0)
    begins = starts[filled]
    # reduceat's last bin reaches to the end of what it is given.
    part = slice(int(begins[0]), int(starts[filled[-1] + 1]))
    return TraceWindow(
        frames=begins,
        times_s=(edges_s[filled] + edges_s[filled + 1]) / 2.0,
        lows=_reduced(np.fmin, signals, part, begins),
        highs=_reduced(np.fmax, signals, part, begins),
        is_exact=False,
    )


def _reduced(
    reduction: np.ufunc, signals: Mapping[str, Float64], part: slice, begins: Int64
) -> dict[str, Float64]:
    return {
        name: reduction.reduceat(signal[part], begins - part.start)
        for name, signal in signals.items()
    }


def gap_runs(
    timestamps_s: Float64, gap_codes: np.typing.NDArray[np.uint8]
) -> list[tuple[float, float, int]]:
    """Return where the eyes were not seen: from, to, code of the reason; one entry a run."""
    if len(gap_codes) == 0:
        return []
    changes = np.flatnonzero(np.diff(gap_codes)) + 1
    starts = np.concatenate([[0], changes])
    ends = np.concatenate([changes, [len(gap_codes)]])
    return [
        (float(timestamps_s[start]), float(timestamps_s[end - 1]), int(gap_codes[start]))
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        if gap_codes[start]
    ]
