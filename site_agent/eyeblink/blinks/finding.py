"""Blinks and longer closures in a trace of eye aspect ratios.

A dip of the trace is a blink where its likelihood, given the session's own clear blinks, says so
(see `likelihood`); a stretch in which the lids stay down is a closure however slowly they fell
(see `closures`). Nothing depends on an absolute EAR or on the frame rate, so that people, models
and cameras can differ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.blinks import extents as blink_extents
from site_agent.eyeblink.blinks.closures import Cut, find_closures
from site_agent.eyeblink.blinks.half_closings import half_closings
from site_agent.eyeblink.blinks.likelihood import Dips, blink_probabilities, clear_blinks, find_dips
from site_agent.eyeblink.openness.sampling import EvenTrace, evenly_spaced
from site_agent.eyeblink.openness.signal import Calibration, CalibrationSettings, calibrate
from site_agent.eyeblink.records import DIGITS, EyeTrace, Float64, Gap
from site_agent.settings import Settings
from site_agent.wording import count_words

BlinkKind = Literal["blink", "closure"]
Completeness = Literal["complete", "partial"]

LONGEST_BIN_S = 0.0334
"""Frames of fast recordings are put into bins of at most this length to find blinks."""
REARM_S = 0.13
"""Lowest points of two blinks are at least this far apart."""
REARM_SHARE, RIPPLE_SHARE = 0.4, 0.3
"""Between two blinks the eye reopens by this share of the shallower one's depth, and of the deeper
one's: a ripple while the eye is closed is shallow."""
FURTHER_DOWN = 0.2
"""A blink within a closure would take the lids further down by less than this FEC."""
DOUBTFUL = 0.1
"""Events too improbable to be counted are listed as left out from this probability on."""


class BlinkSettings(Settings, error=InvalidInputError):
    """Settings that decide between blinks and other dips."""

    least_confidence: float = Field(default=0.4, gt=0, le=1)
    """How probable a blink or a closure must be to be counted, 0..1. A higher value leaves out
    more doubtful ones; session.json lists them."""
    longest_blink_ms: float = 400.0
    """Lids that are at least half way down for longer make a closure, not a blink."""
    shortest_blink_ms: float = 50.0
    """Shorter events, with a frame interval added, are not blinks."""
    complete_fec: float = 0.75
    """FEC from which a blink is complete, below it partial."""
    calibration: CalibrationSettings = Field(default_factory=CalibrationSettings)


@dataclass(frozen=True)
class Blink:
    """One blink (or longer closure); times in seconds from the start of the recording."""

    number: int
    kind: BlinkKind
    onset_s: float
    peak_s: float
    offset_s: float
    """Lids begin to fall; lids lowest; eye open again (or as far as it opens)."""
    onset_frame: int
    peak_frame: int
    offset_frame: int
    amplitude_fec: float
    peak_fec: float
    completeness: Completeness
    peak_velocity_fec_per_s: float
    confidence: float
    """The probability that it is one; lower where the face was turned away or its landmarks are not
    sure."""
    shut_from_s: float
    shut_until_s: float
    """First and last moment at which the lids are at least 80 % of the way down."""
    half_closed_ms: float
    """How long the lids are at least half of the way down."""
    cut: Cut = ""
    """``begin``, ``end`` or ``both`` where the eyes were not seen as the lids of a closure fell or
    rose: it lasted longer than measured."""
    eyes: blink_extents.Eyes = "unknown"
    """``both``, ``left`` or ``right``; ``unknown`` where the eyes are not known apart."""
    lag_ms: float = float("nan")
    """When the right eye was half closed minus when the left one was; NaN where not known."""

    @property
    def duration_ms(self) -> float:
        return (self.offset_s - self.onset_s) * 1000.0

    @property
    def closing_ms(self) -> float:
        return (self.peak_s - self.onset_s) * 1000.0

    @property
    def opening_ms(self) -> float:
        return (self.offset_s - self.peak_s) * 1000.0


@dataclass(frozen=True)
class LeftOut:
    """An event like a blink or a closure that was too improbable to be counted."""

    kind: BlinkKind
    onset_s: float
    offset_s: float
    confidence: float


@dataclass(frozen=True)
class FoundBlinks:
    """Blinks and closures in time order, left-out events, and the number of half-closings."""

    blinks: tuple[Blink, ...]
    left_out: tuple[LeftOut, ...]
    half_closings: int = 0


@dataclass(frozen=True)
class _Event:
    """A measured blink or closure."""

    extent: blink_extents.Extent
    probability: float
    cut: Cut = ""


def judge_blinks(
    trace: EyeTrace,
    settings: BlinkSettings = BlinkSettings(),
    calibration: Calibration | None = None,
) -> FoundBlinks:
    """Find the blinks and longer closures of a session.

    `trace`: any frame rate from about 12/s, constant or not; NaN where the eyes were not seen.
    `calibration`: open and closed EAR of the session; found from the trace when not given.
    """
    calibration = calibration or calibrate(trace.ear, settings.calibration)
    if not calibration.span > 0:
        return FoundBlinks((), ())
    even = evenly_spaced(trace.timestamps_s, trace.ear, LONGEST_BIN_S)
    smooth = smoothed_trace(trace)
    ear = smooth.ear
    dips = find_dips(even)

    @cache
    def extent_of(dip: int) -> blink_extents.Extent:
        lowest = _lowest_sample(even, ear, int(dips.bins[dip]))
        level = float(dips.level_before_ear[dip])
        return blink_extents.measure_extent(trace.timestamps_s, ear, lowest, level)

    half = half_closings(dips, calibration, extent_of, 1.0 / trace.frame_rate_hz)
    clear = clear_blinks(dips, calibration, half)
    longest_s = settings.longest_blink_ms / 1000.0
    least = settings.least_confidence
    listed_from = min(DOUBTFUL, least / 2.0)
    probabilities = blink_probabilities(dips, clear)
    # Half-closings are listed as left out, however improbable a blink is.
    listed = (probabilities >= least) | (probabilities * (1.0 - half) >= listed_from)
    probabilities = probabilities * (1.0 - half)
    lows_s = trace.timestamps_s[np.searchsorted(even.bin_of_sample, dips.bins)]
    closures = []
    for closure in find_closures(even, trace.timestamps_s, clear, longest_s):
        inside = (lows_s >= closure.extent.onset_s) & (lows_s <= closure.extent.offset_s)
        # Lids that blink from there, and much further down, were not shut.
        further = closure.kept_up_ear - dips.lowest_ear > FURTHER_DOWN * clear.span_ear
        if (inside & further & (probabilities >= least)).any():
            continue
        closures.append(_Event(closure.extent, closure.probability, closure.cut))
        if closure.probability >= least:
            listed &= ~inside
    shut = [event for event in closures if event.probability >= least]
    dipped = []
    chosen = _choose(even, dips, probabilities, listed)
    for dip in chosen:
        dipped.append(_Event(extent_of(dip), float(probabilities[dip])))
    counted = [*shut, *(event for event in dipped if event.probability >= least)]
    counted.sort(key=lambda event: event.extent.peak_s)
    doubtful = [event for event in closures if listed_from <= event.probability < least]
    blinks = _as_blinks(smooth, _without_overlaps(smooth, counted), calibration, settings)
    left_out = [_left_out("closure", event) for event in doubtful]
    left_out += [_left_out("blink", event) for event in dipped if event.probability < least]
    return FoundBlinks(
        tuple(_with_eyes(trace, blink) for blink in blinks),
        tuple(sorted(left_out, key=lambda event: event.onset_s)),
        int((half[chosen] > 0.5).sum()),
    )


def smoothed_trace(trace: EyeTrace) -> EyeTrace:
    """Return the trace in which blinks are measured."""
    return replace(trace, ear=blink_extents.smoothed(trace.timestamps_s, trace.ear))


def _choose(
    even: EvenTrace, dips: Dips, probabilities: Float64, listed: NDArray[np.bool_]
) -> list[int]:
    """Take listed dips from the most probable on, those without reopening between them once."""
    chosen: list[int] = []
    for dip in sorted(np.flatnonzero(listed), key=lambda at: -probabilities[at]):
        at = int(np.searchsorted(chosen, dip))
        neighbours = chosen[max(0, at - 1) : at + 1]
        if all(_are_separate(even, dips, (int(dip), other)) for other in neighbours):
            chosen.insert(at, int(dip))
    return chosen


def _are_separate(even: EvenTrace, dips: Dips, pair: tuple[int, int]) -> bool:
    one, other = pair
    first, last = sorted((int(dips.bins[one]), int(dips.bins[other])))
    if last - first < max(1, even.bins(REARM_S)):
        return False
    highest = float(np.nanmax(even.ear[first : last + 1]))
    depths = [float(dips.level_before_ear[dip] - dips.lowest_ear[dip]) for dip in pair]
    needed = max(REARM_SHARE * min(depths), RIPPLE_SHARE * max(depths))
    floor = max(dips.lowest_ear[one], dips.lowest_ear[other])
    return bool(highest - floor >= needed)


def _lowest_sample(even: EvenTrace, ear: Float64, bin_number: int) -> int:
    first = int(np.searchsorted(even.bin_of_sample, bin_number, side="left"))
    last = int(np.searchsorted(even.bin_of_sample, bin_number, side="right"))
    return first + int(np.nanargmin(ear[first:last]))


def _without_overlaps(trace: EyeTrace, events: list[_Event]) -> list[_Event]:
    """Let events that overlap meet where the eye is most open between their lowest points."""
    apart = list(events)
    for index in range(len(apart) - 1):
        first, second = apart[index].extent, apart[index + 1].extent
        if first.offset_s <= second.onset_s:
            continue
        open_at = first.peak + int(np.nanargmax(trace.ear[first.peak : second.peak + 1]))
        meeting_s = float(trace.timestamps_s[open_at])
        earlier = replace(first, offset_s=min(first.offset_s, meeting_s))
        later = replace(second, onset_s=max(second.onset_s, meeting_s))
        apart[index] = replace(apart[index], extent=earlier)
        apart[index + 1] = replace(apart[index + 1], extent=later)
    return apart


def _as_blinks(
    trace: EyeTrace, events: list[_Event], calibration: Calibration, settings: BlinkSettings
) -> list[Blink]:
    """Number the blinks; `trace` is the smoothed one."""
    blinks: list[Blink] = []
    frame_s = 1.0 / trace.frame_rate_hz
    for event in events:
        extent = event.extent
        if (extent.offset_s - extent.onset_s + frame_s) * 1000.0 < settings.shortest_blink_ms:
            continue
        blink = blink_of_extent(trace, extent, calibration, settings, len(blinks) + 1)
        confidence = blink.confidence * event.probability
        blinks.append(replace(blink, confidence=confidence, cut=event.cut))
    return blinks


def blink_of_extent(
    trace: EyeTrace,
    extent: blink_extents.Extent,
    calibration: Calibration,
    settings: BlinkSettings,
    number: int,
) -> Blink:
    """Describe a blink in frames and FEC; its confidence is that of the landmarks."""
    span = calibration.span if calibration.span > 0 else float("nan")
    onset, offset = trace.nearest(extent.onset_s), trace.nearest(extent.offset_s)
    peak_fec = (calibration.open_ear - float(trace.ear[extent.peak])) / span
    half_closed_ms = extent.half_s * 1000.0
    return Blink(
        number=number,
        kind="blink" if half_closed_ms <= settings.longest_blink_ms else "closure",
        onset_s=round(extent.onset_s, DIGITS),
        peak_s=round(extent.peak_s, DIGITS),
        offset_s=round(extent.offset_s, DIGITS),
        onset_frame=int(trace.frames[onset]),
        peak_frame=int(trace.frames[extent.peak]),
        offset_frame=int(trace.frames[offset]),
        amplitude_fec=extent.depth_ear / span,
        peak_fec=peak_fec,
        completeness="complete" if peak_fec >= settings.complete_fec else "partial",
        peak_velocity_fec_per_s=extent.closing_ear_per_s / span,
        confidence=float(np.mean(trace.confidence[onset : offset + 1])),
        shut_from_s=round(extent.shut_from_s, DIGITS),
        shut_until_s=round(extent.shut_until_s, DIGITS),
        half_closed_ms=half_closed_ms,
    )


def _with_eyes(trace: EyeTrace, blink: Blink) -> Blink:
    if blink.kind == "closure":
        shut_s = (blink.shut_from_s, blink.shut_until_s)
        return replace(blink, eyes=blink_extents.eyes_of_closure(trace, blink.onset_s, shut_s))
    eyes, lag_ms = blink_extents.compare_eyes(trace, blink.peak_s)
    return replace(blink, eyes=eyes, lag_ms=lag_ms)


def _left_out(kind: BlinkKind, event: _Event) -> LeftOut:
    return LeftOut(kind, event.extent.onset_s, event.extent.offset_s, event.probability)


def blink_of_frame(trace: EyeTrace, blinks: list[Blink]) -> NDArray[np.int64]:
    """Return the number of the blink that each frame belongs to, 0 where none."""
    numbers = np.zeros(len(trace.timestamps_s), dtype=np.int64)
    for blink in blinks:
        first = int(np.searchsorted(trace.timestamps_s, blink.onset_s - 1e-9))
        last = int(np.searchsorted(trace.timestamps_s, blink.offset_s + 1e-9))
        numbers[first:last] = blink.number
    return numbers


LOWEST_RATE_HZ = 20.0
"""Every second frame of recordings at 30 frames/s left out lost 1 to 26 % of the blinks found."""
LONG_GAP_S = 1.0
FEWEST_CLOSURES = 3
"""At least this number of closures, and no blink, are rather blinks in slow motion."""
LONGEST_SLOWED_BLINK_S = 10.0
"""The shortest of some blinks filmed at 1000 frames/s and played at 30 lasts 4 to 8 s."""
FEWEST_BLINKS, SHORTEST_USUAL_MS = 10, 50.0
"""The medians of 13 recordings of persons were 67 to 233 ms, those of slow blinks on purpose more.
Read at four times their rate, 6 of the 7 with enough blinks had less."""
_TRUE_TIMES = (
    "for a video, give the rate of filming with --frame-rate-hz; for a trace, correct its column "
    "of times, or leave it out and give --frame-rate-hz"
)


def quality_warnings(
    trace: EyeTrace,
    calibration_reliable: bool,
    events: FoundBlinks = FoundBlinks((), ()),
    picture_rate_hz: float = math.inf,
) -> list[str]:
    """Return warnings about the results of a session.

    `picture_rate_hz`: Of different pictures, where frames repeat some.
    """
    doubts = []
    rate_hz = min(trace.frame_rate_hz, picture_rate_hz)
    valid_pct = 100.0 * float(np.mean(trace.valid)) if len(trace.frames) else 0.0
    if valid_pct == 0.0:
        doubts.append(
            "no frame has an eye aspect ratio, so no blink can be found: no face or no eye was seen"
        )
    elif valid_pct < 75.0:
        reasons = {Gap(code).text: int(np.sum(trace.gaps == code)) for code in set(trace.gaps)}
        reasons.pop("", None)
        listed = ", ".join(f"{reason} {count}" for reason, count in sorted(reasons.items()))
        doubts.append(f"only {valid_pct:.0f} % of the frames have an eye aspect ratio ({listed})")
    if valid_pct > 0.0 and not calibration_reliable:
        doubts.append(
            "the eye aspect ratio hardly changes: FEC is not calibrated (no full blink was seen, "
            "or the landmark model does not follow the lids)"
        )
    if rate_hz < LOWEST_RATE_HZ:
        doubts.append(
            f"{rate_hz:.1f} frames/s: short and shallow blinks fall between frames "
            f"below {LOWEST_RATE_HZ:.0f} frames/s, so the count is too low: by up to a quarter at "
            "15 frames/s"
        )
    if len(events.blinks) >= FEWEST_CLOSURES and all(b.kind == "closure" for b in events.blinks):
        shortest_s = min(blink.duration_ms for blink in events.blinks) / 1000.0
        if shortest_s < LONGEST_SLOWED_BLINK_S:
            doubts.append(
                f"no blink among {len(events.blinks)} closures, of which the shortest lasts "
                f"{shortest_s:.1f} s. If the person did not doze or close the eyes on purpose, it "
                f"is slow motion, or its times are wrong in another way: {_TRUE_TIMES}"
            )
    usual_ms = float(np.median([blink.half_closed_ms for blink in events.blinks] or [math.inf]))
    enough = len(events.blinks) >= FEWEST_BLINKS and rate_hz >= LOWEST_RATE_HZ
    if enough and usual_ms < SHORTEST_USUAL_MS:
        doubts.append(
            f"the lids stay half closed for {usual_ms:.0f} ms in the median of "
            f"{len(events.blinks)} blinks, while {SHORTEST_USUAL_MS:.0f} to 250 ms are usual: the "
            f"frame rate is too high, or noise was counted: {_TRUE_TIMES}"
        )
    if events.half_closings:
        doubts.append(
            f"not counted: {events.half_closings} times the lids came half way down and no "
            "further: the person squints, laughs or rolls the eyes, or the landmark model loses "
            "the lids; session.json lists them under left_out"
        )
    return doubts + _unseen(trace) + _narrowed(events.left_out)


def _unseen(trace: EyeTrace) -> list[str]:
    """Describe gaps of eyes or frames so long that blinks may have been missed."""
    if not trace.valid.any() or len(trace.valid) < 2:
        return []
    starts_s, frame_s = trace.timestamps_s, trace.frame_time_s
    edges = np.flatnonzero(np.diff(trace.valid, prepend=True, append=True))
    lost = [(int(first), int(end)) for first, end in zip(edges[::2], edges[1::2], strict=True)]
    lengths_s = np.array([frame_s[first:end].sum() for first, end in lost])
    unseen_s = [
        (float(starts_s[first]), float(length_s))
        for (first, _), length_s in zip(lost, lengths_s, strict=True)
        if length_s > LONG_GAP_S
    ]
    steps_s = np.diff(starts_s)
    paused = np.flatnonzero(steps_s > max(LONG_GAP_S, 2.0 * float(np.median(steps_s))))
    pauses_s = [(float(starts_s[at]), float(steps_s[at])) for at in paused]
    return [
        f"not judged: {sum(length_s for _, length_s in spans):.0f} s in "
        f"{count_words(len(spans), 'stretch', 'stretches')} without {missing}, the longest "
        f"{max(length_s for _, length_s in spans):.1f} s from "
        f"{max(spans, key=lambda span: span[1])[0]:.1f} s on; blinks and closures there are not "
        "counted"
        for missing, spans in (("the eyes", unseen_s), ("frames", pauses_s))
        if spans
    ]


def _narrowed(left_out: Sequence[LeftOut]) -> list[str]:
    closures = [closure for closure in left_out if closure.kind == "closure"]
    if not closures:
        return []
    longest = max(closures, key=lambda closure: closure.offset_s - closure.onset_s)
    return [
        f"not counted: {len(closures)} times the eyes narrowed for longer than a blink and did not "
        f"clearly shut (the longest for {longest.offset_s - longest.onset_s:.1f} s at "
        f"{longest.onset_s:.1f} s); session.json lists them under left_out"
    ]
