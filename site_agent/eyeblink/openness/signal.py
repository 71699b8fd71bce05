"""Fraction eyelid closure from the eye aspect ratio, and its calibration for a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from site_agent.errors import BlinkAnalysisError
from site_agent.eyeblink.records import Float64

OPEN_PERCENTILE = 98.0
"""Percentile of EAR that bounds the open range from above."""
SMALLEST_SPAN = 0.05
"""A session whose open and closed level differ by less is flagged as not calibrated."""
PUFF_REFLEX_S = 0.3
"""An air puff has closed the eye within this time."""


def closure_paper_pct(ear: Float64) -> Float64:
    """Return the closure in percent as the paper normalises it over a trial.

    ``100 - (EAR - MIN) * (100 / MAX)``. It does not reach 0 for an open eye (27 % where EAR runs
    from 0.08 to 0.30); it is kept for comparison with earlier results.
    """
    if not np.isfinite(ear).any():
        return np.full_like(ear, np.nan)
    lowest, highest = float(np.nanmin(ear)), float(np.nanmax(ear))
    if highest <= 0:
        return np.full_like(ear, np.nan)
    return 100.0 - (ear - lowest) * (100.0 / highest)


@dataclass(frozen=True)
class CalibrationSettings:
    """How the open and the closed eye of a session are found.

    Attributes
    ----------
    closed_from : str
        ``percentile``: the percentile of EAR that `closed_percentile` says. ``air-puffs``: the
        median of the lowest EAR in the 0.3 s after each air puff (US) of the trials, which
        closes the eye by reflex; for sessions without full blinks. Trials of the CS alone do
        not count, even where they say when a puff would have come.
    closed_percentile : float
        Percentile of EAR taken as the closed eye. People blink 10-20 times a minute with the
        lids together for some 50 ms, hence about 1 % of the time.
    """

    closed_from: Literal["percentile", "air-puffs"] = "percentile"
    closed_percentile: float = 0.2

    def check(self) -> None:
        """Raise an error for values out of range.

        Raises
        ------
        BlinkAnalysisError
        """
        if self.closed_from not in {"percentile", "air-puffs"}:
            raise BlinkAnalysisError(
                f"closed_from is {self.closed_from!r}, expected percentile or air-puffs"
            )
        if not 0 <= self.closed_percentile < 50:
            raise BlinkAnalysisError(
                f"closed_percentile is {self.closed_percentile:g}, expected 0 to 50"
            )


@dataclass(frozen=True)
class Calibration:
    """EAR of the open and of the closed eye.

    Attributes
    ----------
    reliable : bool
        False where the two are so close that no eye closure can have been seen.
    """

    open_ear: float
    closed_ear: float
    reliable: bool

    @property
    def span(self) -> float:
        return self.open_ear - self.closed_ear


def calibrate(
    ear: Float64, settings: CalibrationSettings | None = None, closed_ear: float | None = None
) -> Calibration:
    """Find the open and the closed level of one session's EAR, shape (n,), NaN where unknown.

    The open level is the median of the samples above the middle between the extremes: what the
    eye is most of the time, free of the noise that an upper percentile would add to it.

    Parameters
    ----------
    closed_ear : float, optional
        The closed level where it is known otherwise (see `closed_ear_at_puffs`).
    """
    settings = settings or CalibrationSettings()
    known = ear[np.isfinite(ear)]
    if len(known) == 0:
        return Calibration(float("nan"), float("nan"), False)
    low, high = np.percentile(known, [settings.closed_percentile, OPEN_PERCENTILE])
    closed = float(low) if closed_ear is None else closed_ear
    upper = known[known >= (closed + high) / 2.0]
    open_ear = float(np.median(upper)) if len(upper) else float(high)
    span = open_ear - closed
    return Calibration(open_ear, closed, bool(span >= SMALLEST_SPAN))


def closed_ear_at_puffs(
    timestamps_s: Float64, ear: Float64, puffs_s: Sequence[float]
) -> float | None:
    """Return the median of the lowest EAR after each air puff; None where no eye was seen."""
    lowest = []
    for puff_s in puffs_s:
        first, last = np.searchsorted(timestamps_s, [puff_s, puff_s + PUFF_REFLEX_S])
        after = ear[first:last]
        if np.isfinite(after).any():
            lowest.append(float(np.nanmin(after)))
    return float(np.median(lowest)) if lowest else None


def fraction_eyelid_closure(ear: Float64, calibration: Calibration) -> Float64:
    """Return FEC = (open - EAR) / (open - closed): 0 open, 1 closed; NaN without a span."""
    if not calibration.span > 0:
        return np.full_like(ear, np.nan)
    return (calibration.open_ear - ear) / calibration.span
