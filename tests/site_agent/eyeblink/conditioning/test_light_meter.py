"""Lights in the picture tell when the stimuli came."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.conditioning.led_onsets import LightMeter, light_regions, trials_by_lights
from site_agent.eyeblink.conditioning.trials import TrialTiming, TtlSettings, read_trials
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.pictures.video_reading import VideoReader

RATE_HZ = 60
CS_AT_S = (2.0, 9.0, 17.5)
US_AT_S = (2.45, 9.45)
CS_LIGHT = (100, 8, 16, 16)
US_LIGHT = (8, 60, 12, 12)
FRAME_S = 1.0 / RATE_HZ


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty seconds of a dim room with two lights; no face is needed."""
    path = tmp_path_factory.mktemp("lights") / "lights.mp4"
    random = np.random.default_rng(3)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE_HZ)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        stream.codec_context.time_base = Fraction(1, RATE_HZ)
        for index in range(20 * RATE_HZ):
            time_s = index * FRAME_S
            picture = np.full((96, 128, 3), 60 + 10 * np.sin(time_s / 3), dtype=np.float64)
            picture += random.normal(0, 3, picture.shape)
            for place, onsets_s in ((CS_LIGHT, CS_AT_S), (US_LIGHT, US_AT_S)):
                if any(onset_s <= time_s < onset_s + 0.3 for onset_s in onsets_s):
                    x, y, width, height = place
                    picture[y : y + height, x : x + width] = 220
            frame = av.VideoFrame.from_ndarray(picture.clip(0, 255).astype(np.uint8), "rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def watched(video: Path, timing: TrialTiming) -> LightMeter:
    meter = LightMeter(VideoReader(video), light_regions(timing))
    frames = sum(1 for _ in meter.frames())
    meter.close()
    assert frames == len(meter.timestamps_s) == 20 * RATE_HZ
    return meter


def test_the_lights_alone_tell_the_trials(video: Path) -> None:
    timing = TrialTiming(detect_led=CS_LIGHT, detect_us_led=US_LIGHT)
    trial_list = trials_by_lights(watched(video, timing), None, timing)
    assert [str(trial.trial_type) for trial in trial_list.trials] == ["paired", "paired", "cs_only"]
    np.testing.assert_allclose([t.cs_onset_s for t in trial_list.trials], CS_AT_S, atol=FRAME_S)
    np.testing.assert_allclose([t.us_onset_s for t in trial_list.trials[:2]], US_AT_S, atol=FRAME_S)


def test_the_pairing_window_holds_for_lights_too(video: Path) -> None:
    window = TtlSettings(pairing_window_ms=300.0)
    short = TrialTiming(detect_led=CS_LIGHT, detect_us_led=US_LIGHT, ttl=window)
    trial_list = trials_by_lights(watched(video, short), None, short)
    kinds = [str(trial.trial_type) for trial in trial_list.trials]
    assert kinds == ["cs_only", "us_only", "cs_only", "us_only", "cs_only"]


def test_a_list_of_trials_takes_its_clock_from_the_light(video: Path, tmp_path: Path) -> None:
    # The stimulus program started 100 s before the camera.
    table = tmp_path / "trials.csv"
    rows = [f"{i},cs_only,{100 + onset_s}," for i, onset_s in enumerate(CS_AT_S, start=1)]
    table.write_text("\n".join(["trial,trial_type,cs_onset_s,us_onset_s", *rows]) + "\n")
    timing = TrialTiming(detect_led=CS_LIGHT, latency_ms=20.0)
    placed = trials_by_lights(watched(video, timing), read_trials(table, timing), timing)
    expected_s = np.array(CS_AT_S) + 0.020
    np.testing.assert_allclose([t.cs_onset_s for t in placed.trials], expected_s, atol=FRAME_S)


def test_a_place_outside_the_picture_is_refused(video: Path) -> None:
    with pytest.raises(InvalidInputError, match="expected X,Y,WIDTH,HEIGHT"):
        light_regions(TrialTiming(detect_led=(1, 2, 3)))
    meter = LightMeter(VideoReader(video), {"CS": (120, 90, 20, 20)})
    with pytest.raises(InvalidInputError, match="not within the picture of 128 x 96"):
        next(iter(meter.frames()))
    meter.close()


def test_a_trace_has_no_light(tmp_path: Path) -> None:
    trace = tmp_path / "ear.txt"
    trace.write_text("0.3\n" * 100)
    settings = BlinkAnalysisSettings(trial_timing=TrialTiming(detect_led=CS_LIGHT))
    with pytest.raises(InvalidInputError, match="no picture"):
        run_blink_analysis(TraceFile(trace, 30.0), out_dir=tmp_path / "out", settings=settings)
    assert not (tmp_path / "out").exists()
