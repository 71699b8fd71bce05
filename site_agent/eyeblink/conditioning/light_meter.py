"""Brightness of lights in the picture, and the trials that they show."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from site_agent.errors import BlinkAnalysisError
from site_agent.eyeblink.conditioning.led_onsets import detect_led_onsets
from site_agent.eyeblink.conditioning.trial_clock import place_on_video_clock
from site_agent.eyeblink.conditioning.trial_files import TrialTiming
from site_agent.eyeblink.conditioning.trials import TrialList, correct_latency, trials_from_onsets
from site_agent.eyeblink.records import Float64, UInt8
from site_agent.eyeblink.video.frames import DecodingReport, Frame, FrameSource, VideoInfo

Region = tuple[int, ...]
"""Left, top, width and height in pixels of the picture as it is shown."""


class LightMeter:
    """Yields the frames of a source and records the mean brightness of some regions."""

    def __init__(self, source: FrameSource, regions: Mapping[str, Region]) -> None:
        self._source = source
        self._regions = dict(regions)
        self._times_s: array[float] = array("d")
        self._brightness: dict[str, array[float]] = {name: array("d") for name in regions}

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
        """Mean grey level of a region in every frame, shape (frames,)."""
        return np.array(self._brightness[name])

    def frames(self) -> Iterator[Frame]:
        """Yield the source's frames.

        Raises
        ------
        BlinkAnalysisError
            At the first frame, when a region is not in the picture.
        """
        for frame in self._source.frames():
            if not self._times_s:
                self._check(frame.image)
            self._times_s.append(frame.timestamp_s)
            for name, (x, y, width, height) in self._regions.items():
                self._brightness[name].append(
                    float(frame.image[y : y + height, x : x + width].mean())
                )
            yield frame

    def close(self) -> None:
        self._source.close()

    def _check(self, image: UInt8) -> None:
        rows, columns = image.shape[:2]
        for name, (x, y, width, height) in self._regions.items():
            if x < 0 or y < 0 or x + width > columns or y + height > rows:
                raise BlinkAnalysisError(
                    f"the {name} light at {x},{y},{width},{height} (x, y, width, height) is not "
                    f"within the picture of {columns} x {rows} pixels"
                )


def light_regions(timing: TrialTiming) -> dict[str, Region]:
    """Return the regions of the lights by stimulus.

    Raises
    ------
    BlinkAnalysisError
        A region is not X,Y,WIDTH,HEIGHT.
    """
    regions = {"CS": timing.detect_led, "US": timing.detect_us_led}
    for name, region in regions.items():
        if region and (len(region) != 4 or min(region[2:]) < 1):
            raise BlinkAnalysisError(
                f"the {name} light is at {','.join(map(str, region))}, expected X,Y,WIDTH,HEIGHT "
                "in pixels, for example 600,20,24,24"
            )
    return {name: region for name, region in regions.items() if region}


def trials_by_lights(meter: LightMeter, listed: TrialList | None, timing: TrialTiming) -> TrialList:
    """Return the trials at the onsets of the lights in the picture.

    With a list, its trials are found in the CS light's onsets (clocks may differ in zero and
    speed); without one, the lights alone give the trials.

    Raises
    ------
    ConditioningError
        No light is seen to go on, or the list does not fit what is seen.
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
        found = replace(listed, trials=moved, remarks=(*listed.remarks, *placed.remarks))
    else:
        us_onsets_s = onsets["US"].onsets_s if "US" in onsets else np.empty(0)
        seen = trials_from_onsets(
            cs_onsets_s, us_onsets_s, pairing_window_ms=timing.ttl.pairing_window_ms
        )
        moved = correct_latency(
            seen.trials, latency_ms=timing.latency_ms, us_latency_ms=timing.us_latency_ms
        )
        found = replace(seen, trials=moved)
    return replace(found, remarks=(*found.remarks, *remarks))
