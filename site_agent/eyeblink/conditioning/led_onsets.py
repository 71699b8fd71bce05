"""Lights in the picture: their brightness, and stimulus onsets on the video's own clock."""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError, InvalidInputError
from site_agent.eyeblink.conditioning.trials import (
    TrialList,
    TrialTiming,
    correct_latency,
    trials_from_onsets,
)
from site_agent.eyeblink.records import Float64, UInt8
from site_agent.pictures.video_reading import DecodingReport, Frame, FrameSource, VideoInfo
from site_agent.wording import count_words

Region = tuple[int, ...]
"""Left, top, width and height in pixels of the picture as it is shown."""


class LightMeter:
    """Yields frames, and records the brightness of some regions and the change of the picture."""

    def __init__(self, source: FrameSource, regions: Mapping[str, Region]) -> None:
        self._source = source
        self._regions = dict(regions)
        self._times_s: array[float] = array("d")
        self._brightness: dict[str, array[float]] = {name: array("d") for name in regions}
        self._changes: array[float] = array("d")

    @property
    def info(self) -> VideoInfo:
        return self._source.info

    @property
    def report(self) -> DecodingReport:
        return self._source.report

    @property
    def timestamps_s(self) -> Float64:
        return np.array(self._times_s)

    def brightness(self, name: str) -> Float64:
        """Mean grey level of a region in every frame, shape (frames,); NaN in a damaged one."""
        return np.array(self._brightness[name])

    @property
    def changes(self) -> Float64:
        """Mean change of grey level since the frame before, shape (frames,); NaN if not known."""
        return np.array(self._changes)

    def frames(self) -> Iterator[Frame]:
        """Yield the source's frames."""
        before: Frame | None = None
        for frame in self._source.frames():
            if not self._times_s:
                self._check(frame.image)
            self._times_s.append(frame.timestamp_s)
            for name, (x, y, width, height) in self._regions.items():
                level = float(frame.image[y : y + height, x : x + width].mean())
                self._brightness[name].append(math.nan if frame.damaged else level)
            self._changes.append(_change(before, frame))
            before = frame
            yield frame

    def close(self) -> None:
        self._source.close()

    def _check(self, image: UInt8) -> None:
        rows, columns = image.shape[:2]
        for name, (x, y, width, height) in self._regions.items():
            if x < 0 or y < 0 or x + width > columns or y + height > rows:
                raise InvalidInputError(
                    f"the {name} light at {x},{y},{width},{height} (x, y, width, height) is not "
                    f"within the picture of {columns} x {rows} pixels"
                )


def _change(before: Frame | None, frame: Frame) -> float:
    import cv2

    if before is None or before.damaged or frame.damaged or before.image.shape != frame.image.shape:
        return math.nan
    return cv2.norm(before.image, frame.image, cv2.NORM_L1) / frame.image.size


def light_regions(timing: TrialTiming) -> dict[str, Region]:
    """Return the regions of the lights by stimulus."""
    regions = {"CS": timing.detect_led, "US": timing.detect_us_led}
    for name, region in regions.items():
        if region and (len(region) != 4 or min(region[2:]) < 1):
            raise InvalidInputError(
                f"the {name} light is at {','.join(map(str, region))}, expected X,Y,WIDTH,HEIGHT "
                "in pixels, for example 600,20,24,24"
            )
    return {name: region for name, region in regions.items() if region}


def trials_by_lights(meter: LightMeter, listed: TrialList | None, timing: TrialTiming) -> TrialList:
    """Return the trials at the onsets of the lights in the picture.

    With a list, its trials are found in the CS light's onsets (clocks may differ in zero and
    speed); without one, the lights alone give the trials.
    """
    onsets = {
        name: detect_led_onsets(meter.brightness(name), meter.timestamps_s)
        for name in light_regions(timing)
    }
    remarks = tuple(
        f"{name} light: {remark}" for name, seen in onsets.items() for remark in seen.remarks
    )
    cs_onsets_s = onsets["CS"].onsets_s if "CS" in onsets else np.empty(0)
    if listed is not None:
        placed = place_on_video_clock(listed.trials, cs_onsets_s)
        moved = correct_latency(placed.trials, latency_ms=timing.latency_ms)
        trial_list = replace(listed, trials=moved, remarks=(*listed.remarks, *placed.remarks))
    else:
        us_onsets_s = onsets["US"].onsets_s if "US" in onsets else np.empty(0)
        seen = trials_from_onsets(
            cs_onsets_s, us_onsets_s, pairing_window_ms=timing.ttl.pairing_window_ms
        )
        moved = correct_latency(
            seen.trials, latency_ms=timing.latency_ms, us_latency_ms=timing.us_latency_ms
        )
        trial_list = replace(seen, trials=moved)
    return replace(trial_list, remarks=(*trial_list.remarks, *remarks))


# The light is on from the moment its brightness rises above the first share of the way from dark
# to lit until it falls below the second.
_ON_SHARE, _OFF_SHARE = 0.5, 0.3
# Shorter darkness does not end a pulse: a dimmed LED flickers.
_SAME_PULSE_S = 0.030
# The moment of an onset in a longer stretch without frames is not known.
_LONGEST_GAP_S = 0.25
# Least distance of lit from dark, in standard deviations of the brightness within both.
_SMALLEST_SEPARATION = 5.0
# The same in grey levels.
_SMALLEST_CONTRAST = 4.0


@dataclass(frozen=True, eq=False)
class LedOnsets:
    """The onsets of a light in the picture, in seconds on the video's clock, with remarks."""

    onsets_s: Float64
    remarks: tuple[str, ...] = ()


def detect_led_onsets(brightness: ArrayLike, timestamps_s: ArrayLike) -> LedOnsets:
    """Find when a light goes on.

    Otsu's threshold separates dark and lit, hysteresis the pulses. An onset is where the
    brightness, drawn as straight lines between the frames, passes half-way: a frame that saw the
    light for a part of its exposure so shows how long, and a sharp step lies in the middle
    between the last dark and the first lit frame.

    `brightness` (float, shape (n,)): Mean brightness of the region for each frame; NaN where not
    known. `timestamps_s` (float, shape (n,)): Strictly increasing.

    Notes
    -----
    N. Otsu, "A threshold selection method from gray-level histograms", IEEE Transactions on
    Systems, Man, and Cybernetics 9 (1979).
    """
    level, times_s = _known_samples(brightness, timestamps_s)
    separation, dark, lit = _two_states(level)
    if separation < _SMALLEST_SEPARATION or lit - dark < _SMALLEST_CONTRAST:
        raise ConditioningError(
            f"no light goes on in that region: brightness runs from {level.min():.1f} to "
            f"{level.max():.1f}, lit and dark differ by {lit - dark:.1f} grey levels or "
            f"{separation:.1f} standard deviations (expected at least "
            f"{_SMALLEST_CONTRAST:g} and {_SMALLEST_SEPARATION:g}); check the "
            "region's x, y, width and height in pixels of the video"
        )
    return _pulses((level - dark) / (lit - dark), times_s)


def _known_samples(brightness: ArrayLike, timestamps_s: ArrayLike) -> tuple[Float64, Float64]:
    level = np.asarray(brightness, dtype=np.float64)
    times_s = np.asarray(timestamps_s, dtype=np.float64)
    known = np.isfinite(level) & np.isfinite(times_s)
    level, times_s = level[known], times_s[known]
    if len(level) < 3 or not (np.diff(times_s) > 0).all():
        raise ConditioningError(
            f"{len(level)} frames with known brightness; expected at least 3, with rising times"
        )
    return level, times_s


def _two_states(values: Float64) -> tuple[float, float, float]:
    """Return the separation of both states in standard deviations, and their medians."""
    threshold = _otsu(values)
    low, high = values[values <= threshold], values[values > threshold]
    if len(low) == 0 or len(high) == 0:
        return 0.0, float(np.median(values)), float(np.median(values))
    dark, lit = float(np.median(low)), float(np.median(high))
    # Medians of deviations: frames amid a change belong to neither state.
    spread = 1.4826 * max(float(np.median(np.abs(low - dark))), 1e-3)
    spread_lit = 1.4826 * float(np.median(np.abs(high - lit)))
    return (lit - dark) / max(spread, spread_lit, 1e-3), dark, lit


def _otsu(values: Float64) -> float:
    """Return the threshold with the largest variance between the classes above and below it."""
    import cv2

    lowest, highest = float(values.min()), float(values.max())
    if not highest > lowest:
        return highest
    step = (highest - lowest) / 256.0
    bins = np.minimum((values - lowest) / step, 255.0).astype(np.uint8)
    return lowest + step * (1.0 + cv2.threshold(bins, 0, 255, cv2.THRESH_OTSU)[0])


def _pulses(share: Float64, times_s: Float64) -> LedOnsets:
    on = _hysteresis(share, _ON_SHARE, _OFF_SHARE)
    edges = np.diff(on.astype(np.int8), prepend=on[0].astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    remarks = []
    if on[0]:
        remarks.append("the light was on when the recording began; that onset is not known")
    steps_s = np.diff(times_s)
    unseen = steps_s[starts - 1] > max(_LONGEST_GAP_S, 3.0 * np.median(steps_s))
    if unseen.any():
        remarks.append(
            f"{count_words(int(unseen.sum()), 'onset')} not known, where no frame is judged"
        )
    starts = starts[~unseen]
    onsets = [_crossing(share, times_s, int(index), _ON_SHARE) for index in starts]
    offsets = [_crossing(share, times_s, int(index), _OFF_SHARE) for index in ends]
    dark_since_s = np.array([-math.inf, *offsets])[np.searchsorted(offsets, onsets)]
    kept = np.array(onsets)[np.array(onsets) - dark_since_s > _SAME_PULSE_S]
    return LedOnsets(kept.astype(np.float64), tuple(remarks))


def _hysteresis(share: Float64, on_share: float, off_share: float) -> np.ndarray:
    """Return whether the light is on at each sample: the last level that was clear counts."""
    clear = (share > on_share) | (share < off_share)
    last_clear = np.maximum.accumulate(np.where(clear, np.arange(len(share)), -1))
    return np.where(last_clear >= 0, share[np.maximum(last_clear, 0)] > on_share, False)


def _crossing(share: Float64, times_s: Float64, index: int, level: float) -> float:
    """Return when the level is crossed between the samples `index` - 1 and `index`."""
    before, after = float(share[index - 1]), float(share[index])
    part = (level - before) / (after - before) if after != before else 0.5
    return float(
        times_s[index - 1] + min(max(part, 0.0), 1.0) * (times_s[index] - times_s[index - 1])
    )


_LEAST_SHARE_MATCHED = 0.5
# Largest distance of an onset from the line.
_TOLERANCE_S = 0.1


def place_on_video_clock(trials: Sequence[Trial], cs_onsets_s: ArrayLike) -> TrialList:
    """Find the trials of a list in the CS onsets that the video shows.

    A stimulus program knows the types of the trials, the video when the light went on; their
    clocks have different zeros and run at slightly different speeds. The shift is found that
    brings most trials to an onset, then a straight line through these pairs. Trials with an
    onset take its time, the others (`us_only`, or a light that was hidden) the line's.

    `cs_onsets_s` (float, shape (n,)): On the video's clock, as from `detect_led_onsets`.
    """
    seen = np.sort(np.asarray(cs_onsets_s, dtype=np.float64).ravel())
    with_cs = [trial for trial in trials if trial.trial_type is not TrialType.US_ONLY]
    listed = np.array([trial.cs_onset_s for trial in with_cs], dtype=np.float64)
    if len(seen) < 2 or len(listed) < 2:
        raise ConditioningError(
            f"{len(listed)} trials with a CS and {len(seen)} onsets in the video: two of each are "
            "needed to put them on one clock"
        )
    rate, shift = 1.0, _best_shift(listed, seen)
    # The first match is wide, as the clocks' speeds are not known yet.
    for reach_s in (4.0 * _TOLERANCE_S, 2.0 * _TOLERANCE_S, _TOLERANCE_S):
        nearest = _nearest(rate * listed + shift, seen)
        matched = np.abs(seen[nearest] - (rate * listed + shift)) <= reach_s
        if matched.sum() >= 2 and np.ptp(listed[matched]) > 0:
            rate, shift = (
                float(part) for part in np.polyfit(listed[matched], seen[nearest][matched], 1)
            )
    count = int(matched.sum())
    if count < max(2, _LEAST_SHARE_MATCHED * len(listed)):
        raise ConditioningError(
            f"only {count} of {len(listed)} trials with a CS fit to the {len(seen)} onsets in the "
            "video; check that the list belongs to this video and that the light is the CS"
        )
    onsets = {
        trial.trial: float(seen[index])
        for trial, index, is_matched in zip(with_cs, nearest, matched, strict=True)
        if is_matched
    }
    moved = tuple(_moved(trial, rate, shift, onsets.get(trial.trial)) for trial in trials)
    remarks = [
        f"{count} of {len(listed)} trials with a CS were found in the video; its clock shows "
        f"{shift:.3f} s at the list's zero and runs {(rate - 1) * 1e6:+.0f} millionths faster"
    ]
    if len(seen) > count:
        remarks.append(f"{len(seen) - count} onsets in the video belong to no trial of the list")
    return TrialList(moved, tuple(remarks))


def _best_shift(listed: Float64, seen: Float64) -> float:
    """The shift that brings most listed onsets near to a seen one."""
    shifts = np.sort((seen[:, None] - listed[None, :]).ravel())
    upper = np.searchsorted(shifts, shifts + 2.0 * _TOLERANCE_S, side="right")
    best = int(np.argmax(upper - np.arange(len(shifts))))
    return float(np.median(shifts[best : upper[best]]))


def _nearest(times_s: Float64, seen: Float64) -> np.ndarray:
    after = np.clip(np.searchsorted(seen, times_s), 1, len(seen) - 1)
    return np.where(times_s - seen[after - 1] <= seen[after] - times_s, after - 1, after)


def _moved(trial: Trial, rate: float, shift: float, cs_onset_s: float | None) -> Trial:
    on_line_s = rate * trial.cs_onset_s + shift
    cs_s = on_line_s if cs_onset_s is None else cs_onset_s
    us_s = rate * trial.us_onset_s + shift
    # The interval between the stimuli stays as it was listed.
    us_s = us_s if trial.trial_type is TrialType.US_ONLY else us_s + (cs_s - on_line_s)
    return replace(trial, cs_onset_s=cs_s, us_onset_s=us_s)
