"""Blinks in a trace of eye aspect ratios.

A dip (see `dips`) is a blink when the evidence for it exceeds both a multiple of the noise around
it and a share of the session's own span between open and closed eye. Nothing depends on an
absolute EAR or on the frame rate, so that people, models and cameras can differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from site_agent.eyeblink.blinks.dips import Dips, DipSettings, find_dips
from site_agent.eyeblink.blinks.extents import Extent, ExtentSettings, measure_extent, smoothed
from site_agent.eyeblink.blinks.eye_lag import Eyes, compare_eyes
from site_agent.eyeblink.openness.even_trace import EvenTrace, evenly_spaced
from site_agent.eyeblink.openness.signal import Calibration, CalibrationSettings, calibrate
from site_agent.eyeblink.records import EyeTrace, Float64

BlinkKind = Literal["blink", "closure"]
Completeness = Literal["complete", "partial"]


@dataclass(frozen=True)
class BlinkSettings:
    """What counts as a blink.

    Attributes
    ----------
    noise_factor : float
        Evidence needed, in standard deviations of the noise around the dip.
    smallest_fec : float
        Evidence needed, in FEC (the session's span between open and closed is 1).
    longest_blink_ms : float
        What lasts longer is a `closure`.
    shortest_blink_ms : float
        Shorter events, with a frame interval added, are not blinks.
    rearm_share : float
        Between two blinks the eye must reopen by this share of the shallower one's depth.
    ripple_share : float
        And by at least this share of the deeper one's.
    rearm_ms : float
        Lowest points of two blinks are at least this far apart.
    complete_fec : float
        FEC from which a blink is complete, below it partial.
    bin_ms : float
        Longest bin into which frames of fast recordings are put to find blinks.
    """

    noise_factor: float = 4.75
    smallest_fec: float = 0.25
    longest_blink_ms: float = 800.0
    shortest_blink_ms: float = 50.0
    rearm_share: float = 0.4
    ripple_share: float = 0.2
    rearm_ms: float = 130.0
    complete_fec: float = 0.75
    bin_ms: float = 33.4
    dips: DipSettings = field(default_factory=DipSettings)
    extents: ExtentSettings = field(default_factory=ExtentSettings)
    calibration: CalibrationSettings = field(default_factory=CalibrationSettings)


@dataclass(frozen=True)
class Blink:
    """One blink (or longer closure); times in seconds from the start of the recording.

    Attributes
    ----------
    number : int
        1, 2, ... in time order; `blink_id` in frames.csv.
    onset_s, peak_s, offset_s : float
        Lids begin to fall; lids lowest; eye open again (or as far as it opens).
    onset_frame, peak_frame, offset_frame : int
    amplitude_fec : float
        Depth from the level just before, in FEC.
    peak_fec : float
        FEC at the lowest point.
    peak_velocity_fec_per_s : float
        Highest closing speed.
    confidence : float
        0.5 at the limit of what counts as a blink, towards 1 for a clear one; lower where the
        face was turned away or its landmarks are not sure.
    eyes : str
        ``both``, ``left`` or ``right``; ``unknown`` where the eyes are not known apart.
    lag_ms : float
        When the right eye was half closed minus when the left one was; NaN where not known.
    """

    number: int
    kind: BlinkKind
    onset_s: float
    peak_s: float
    offset_s: float
    onset_frame: int
    peak_frame: int
    offset_frame: int
    amplitude_fec: float
    peak_fec: float
    completeness: Completeness
    peak_velocity_fec_per_s: float
    confidence: float
    eyes: Eyes = "unknown"
    lag_ms: float = float("nan")

    @property
    def duration_ms(self) -> float:
        return (self.offset_s - self.onset_s) * 1000.0

    @property
    def closing_ms(self) -> float:
        return (self.peak_s - self.onset_s) * 1000.0

    @property
    def opening_ms(self) -> float:
        return (self.offset_s - self.peak_s) * 1000.0


def find_blinks(
    trace: EyeTrace,
    settings: BlinkSettings | None = None,
    calibration: Calibration | None = None,
) -> list[Blink]:
    """Find the blinks of a session.

    Parameters
    ----------
    trace : EyeTrace
        Any frame rate from about 12/s, constant or not; NaN where the eyes were not seen.
    calibration : Calibration, optional
        Open and closed EAR of the session; found from the trace when not given.
    """
    settings = settings or BlinkSettings()
    calibration = calibration or calibrate(trace.ear, settings.calibration)
    if not calibration.span > 0:
        return []
    even = evenly_spaced(trace.timestamps_s, trace.ear, settings.bin_ms / 1000.0)
    dips = find_dips(even, settings.dips)
    margins = dip_margins(dips, calibration, settings)
    chosen = _choose(even, dips, margins, settings)
    ear = smoothed(trace.timestamps_s, trace.ear, settings.extents.smoothing_ms / 1000.0)
    extents = []
    for dip in chosen:
        lowest = _lowest_sample(even, ear, int(dips.bins[dip]))
        before_ear = float(dips.level_before_ear[dip])
        extents.append(
            measure_extent(trace.timestamps_s, ear, lowest, before_ear, settings.extents)
        )
    parted = _parted(trace.timestamps_s, ear, extents)
    measured = list(zip(parted, margins[chosen].tolist(), strict=True))
    blinks = _as_blinks(replace(trace, ear=ear), measured, calibration, settings)
    pairs = [compare_eyes(trace, blink.peak_s) for blink in blinks]
    return [
        replace(blink, eyes=pair.eyes, lag_ms=pair.lag_ms)
        for blink, pair in zip(blinks, pairs, strict=True)
    ]


def dip_margins(dips: Dips, calibration: Calibration, settings: BlinkSettings) -> Float64:
    """Return the evidence of each dip over what is needed for a blink: 1 and above is one."""
    needed = np.maximum(
        settings.noise_factor * dips.noise_ear, settings.smallest_fec * calibration.span
    )
    return np.where(needed > 0, dips.evidence_ear / np.where(needed > 0, needed, 1.0), 0.0)


def _choose(even: EvenTrace, dips: Dips, margins: Float64, settings: BlinkSettings) -> list[int]:
    """Take dips from the clearest on, those without reopening between them only once."""
    chosen: list[int] = []
    for dip in sorted(np.flatnonzero(margins >= 1.0), key=lambda index: -margins[index]):
        at = int(np.searchsorted(chosen, dip))
        neighbours = chosen[max(0, at - 1) : at + 1]
        if all(_are_separate(even, dips, (int(dip), other), settings) for other in neighbours):
            chosen.insert(at, int(dip))
    return chosen


def _are_separate(
    even: EvenTrace, dips: Dips, pair: tuple[int, int], settings: BlinkSettings
) -> bool:
    one, other = pair
    first, last = sorted((int(dips.bins[one]), int(dips.bins[other])))
    if last - first < max(1, even.bins(settings.rearm_ms / 1000.0)):
        return False
    between = even.ear[first : last + 1]
    highest = float(np.nanmax(between))
    depths = [float(dips.level_before_ear[k] - dips.lowest_ear[k]) for k in pair]
    # A ripple while the eye is closed is shallow; it must not count as a blink of its own.
    needed = max(settings.rearm_share * min(depths), settings.ripple_share * max(depths))
    floor = max(dips.lowest_ear[one], dips.lowest_ear[other])
    return bool(highest - floor >= needed)


def _lowest_sample(even: EvenTrace, ear: Float64, bin_number: int) -> int:
    first = int(np.searchsorted(even.bin_of_sample, bin_number, side="left"))
    last = int(np.searchsorted(even.bin_of_sample, bin_number, side="right"))
    return first + int(np.nanargmin(ear[first:last]))


def _parted(timestamps_s: Float64, ear: Float64, extents: list[Extent]) -> list[Extent]:
    """Let blinks that overlap meet where the eye is most open between their lowest points."""
    parted = list(extents)
    for index in range(len(parted) - 1):
        first, second = parted[index], parted[index + 1]
        if first.offset_s <= second.onset_s:
            continue
        open_at = first.peak + int(np.nanargmax(ear[first.peak : second.peak + 1]))
        meeting_s = float(timestamps_s[open_at])
        parted[index] = replace(first, offset_s=min(first.offset_s, meeting_s))
        parted[index + 1] = replace(second, onset_s=max(second.onset_s, meeting_s))
    return parted


def _as_blinks(
    trace: EyeTrace,
    measured: list[tuple[Extent, float]],
    calibration: Calibration,
    settings: BlinkSettings,
) -> list[Blink]:
    """Number the blinks; `trace` is the smoothed one."""
    blinks: list[Blink] = []
    frame_s = 1.0 / trace.frame_rate_hz
    for extent, margin in measured:
        duration_s = extent.offset_s - extent.onset_s
        if (duration_s + frame_s) * 1000.0 < settings.shortest_blink_ms:
            continue
        onset, offset = _nearest(trace, extent.onset_s), _nearest(trace, extent.offset_s)
        peak_fec = (calibration.open_ear - float(trace.ear[extent.peak])) / calibration.span
        seen = float(np.mean(trace.confidence[onset : offset + 1]))
        blinks.append(
            Blink(
                number=len(blinks) + 1,
                kind="blink" if duration_s * 1000.0 <= settings.longest_blink_ms else "closure",
                onset_s=extent.onset_s,
                peak_s=extent.peak_s,
                offset_s=extent.offset_s,
                onset_frame=int(trace.frames[onset]),
                peak_frame=int(trace.frames[extent.peak]),
                offset_frame=int(trace.frames[offset]),
                amplitude_fec=extent.depth_ear / calibration.span,
                peak_fec=peak_fec,
                completeness="complete" if peak_fec >= settings.complete_fec else "partial",
                peak_velocity_fec_per_s=extent.closing_ear_per_s / calibration.span,
                confidence=seen / (1.0 + margin**-3.0),
            )
        )
    return blinks


def _nearest(trace: EyeTrace, time_s: float) -> int:
    after = int(np.searchsorted(trace.timestamps_s, time_s))
    if after == 0:
        return 0
    if after == len(trace.timestamps_s):
        return after - 1
    before_is_nearer = time_s - trace.timestamps_s[after - 1] <= trace.timestamps_s[after] - time_s
    return after - 1 if before_is_nearer else after


def blink_of_frame(trace: EyeTrace, blinks: list[Blink]) -> np.typing.NDArray[np.int64]:
    """Return the number of the blink that each frame belongs to, 0 where none."""
    numbers = np.zeros(len(trace.timestamps_s), dtype=np.int64)
    for blink in blinks:
        first = int(np.searchsorted(trace.timestamps_s, blink.onset_s - 1e-9))
        last = int(np.searchsorted(trace.timestamps_s, blink.offset_s + 1e-9))
        numbers[first:last] = blink.number
    return numbers
