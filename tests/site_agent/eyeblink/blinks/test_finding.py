"""Blinks are found for all persons, noise levels and frame rates."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from site_agent.datasets.synthetic.conditioning import draw_conditioning_session
from site_agent.eyeblink.blinks.finding import judge_blinks, quality_warnings
from site_agent.eyeblink.blinks.statistics import seen_time_s
from tests.site_agent.eyeblink.drawn_traces import Drawing, draw_trace, find_blinks, trace_of
from tests.site_agent.eyeblink.matching import match_blinks

RECORDINGS = {
    "plain": Drawing(),
    "15-frames-a-second": Drawing(frame_rate_hz=15.0),
    "500-frames-a-second": Drawing(frame_rate_hz=500.0, noise_ear=0.015),
    "variable-rate": Drawing(variable_rate=True),
    "noisy": Drawing(noise_ear=0.015),
    "drifting": Drawing(drift_ear=0.05),
    "narrow-eyes": Drawing(open_ear=0.22, closed_ear=0.08),
    "rarely": Drawing(blinks_per_minute=2.0, noise_ear=0.004),
    "partial": Drawing(amplitude_fec=(0.45, 1.0)),
    "single-bad-frames": Drawing(spikes=8),
    "lost-faces": Drawing(gaps=8),
    "one-frame-blinks": Drawing(
        frame_rate_hz=25.0,
        noise_ear=0.004,
        closing_s=(0.05, 0.08),
        reopening_s=(0.07, 0.1),
        sharpness=3.0,
        spikes=8,
    ),
}


@pytest.mark.parametrize("drawing", RECORDINGS.values(), ids=RECORDINGS)
def test_drawn_blinks_are_found_and_nothing_else(drawing: Drawing) -> None:
    right = detected = true = 0
    for seed in range(3):
        trace, intervals = draw_trace(seed, drawing)
        blinks = find_blinks(trace)
        match = match_blinks([(blink.onset_s, blink.offset_s) for blink in blinks], intervals)
        right, detected = right + len(match.pairs), detected + match.detected
        true += match.true
    lost_with_the_face = 3 if drawing.gaps else 0
    assert 2 * right / (detected + true - lost_with_the_face) >= 0.99, (right, detected, true)


@pytest.mark.parametrize(("frame_rate_hz", "warnings"), [(10.0, 1), (15.0, 1), (24.0, 0)])
def test_a_frame_rate_that_loses_blinks_is_reported(frame_rate_hz: float, warnings: int) -> None:
    trace, _ = draw_trace(1, Drawing(frame_rate_hz=frame_rate_hz))
    doubts = quality_warnings(trace, calibration_reliable=True)
    assert sum("fall between frames" in doubt for doubt in doubts) == warnings


@pytest.mark.parametrize(("slowed", "is_named"), [(1, False), (8, True), (33, True), (80, False)])
def test_slow_motion_that_the_file_does_not_tell_is_named(slowed: int, is_named: bool) -> None:
    filmed, _ = draw_trace(5, Drawing(seconds=60, frame_rate_hz=240))
    trace = replace(filmed, timestamps_s=slowed * filmed.timestamps_s)
    doubts = quality_warnings(trace, True, judge_blinks(trace))
    assert any("slow motion" in doubt for doubt in doubts) == is_named
    assert any("did not doze" in doubt for doubt in doubts) == is_named


@pytest.mark.parametrize("kept", ["every second", "four of five"])
def test_rates_do_not_depend_on_single_frames_without_a_value(kept: str) -> None:
    whole, _ = draw_trace(3, Drawing())
    seen = np.arange(len(whole.ear)) % 2 == 0
    if kept == "four of five":
        seen = np.random.default_rng(1).uniform(size=len(seen)) < 0.8
    trace = replace(whole, ear=np.where(seen, whole.ear, np.nan))
    # Chance makes some gaps longer than those that are bridged.
    assert seen_time_s(trace).sum() == pytest.approx(whole.duration_s, rel=0.06)
    lost = replace(whole, ear=np.where(whole.timestamps_s < 30, whole.ear, np.nan))
    assert seen_time_s(lost).sum() == pytest.approx(30.0, rel=0.01)
    glimpses = replace(whole, ear=np.where(np.arange(len(seen)) % 15 == 0, whole.ear, np.nan))
    assert seen_time_s(glimpses).sum() == pytest.approx(whole.duration_s / 15, rel=0.02)


def test_next_to_nothing_is_found_in_ten_minutes_of_noise() -> None:
    rng = np.random.default_rng(5)
    times_s = np.arange(18_000) / 30.0
    blinks = find_blinks(trace_of(times_s, 0.3 + rng.normal(0, 0.01, len(times_s))))
    assert len(blinks) <= 1
    assert all(blink.confidence < 0.6 for blink in blinks)


@pytest.mark.parametrize("ear", [[], [0.3], [0.3, 0.1], [np.nan] * 50, [0.3] * 50, [0.0] * 50])
def test_traces_with_nothing_in_them(ear: list[float]) -> None:
    times_s = np.arange(len(ear)) / 30.0
    assert find_blinks(trace_of(times_s, np.array(ear, dtype=np.float64))) == []


def test_what_is_measured_of_a_blink() -> None:
    drawing = Drawing(
        seconds=20.0,
        frame_rate_hz=200.0,
        noise_ear=0.0005,
        drift_ear=0.0,
        glances=0,
        closing_s=(0.1, 0.1),
        reopening_s=(0.2, 0.2),
        amplitude_fec=(1.0, 1.0),
    )
    trace, intervals = draw_trace(1, drawing)
    blinks = find_blinks(trace)
    assert len(blinks) == len(intervals) > 3
    for number, (blink, (onset_s, offset_s)) in enumerate(zip(blinks, intervals, strict=True), 1):
        assert blink.number == number
        assert blink.kind == "blink"
        assert blink.completeness == "complete"
        assert onset_s < blink.onset_s < onset_s + 0.045
        assert offset_s - 0.09 < blink.offset_s < offset_s
        assert onset_s + 0.09 < blink.peak_s < offset_s - 0.19
        assert blink.amplitude_fec == pytest.approx(1.0, abs=0.05)
        assert blink.peak_fec == pytest.approx(1.0, abs=0.05)
        # A smooth step of 0.1 s is steepest in its middle: 1.5 / 0.1 s.
        assert blink.peak_velocity_fec_per_s == pytest.approx(15.0, rel=0.15)
        assert blink.confidence > 0.9
        assert blink.duration_ms == pytest.approx(blink.closing_ms + blink.opening_ms)
        assert trace.timestamps_s[blink.peak_frame] == blink.peak_s


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(0.8, 1.2), shift=st.floats(-0.02, 0.05), seed=st.integers(0, 50))
def test_another_scale_of_ear_changes_nothing(scale: float, shift: float, seed: int) -> None:
    trace, _ = draw_trace(seed, Drawing(seconds=40.0))
    before = [blink.peak_frame for blink in find_blinks(trace)]
    after = find_blinks(trace_of(trace.timestamps_s, trace.ear * scale + shift))
    assert [blink.peak_frame for blink in after] == before


@settings(max_examples=15, deadline=None)
@given(start_s=st.floats(-100.0, 1e6), seed=st.integers(0, 50))
@example(start_s=254.0, seed=10)
def test_the_clock_does_not_matter(start_s: float, seed: int) -> None:
    trace, _ = draw_trace(seed, Drawing(seconds=40.0))
    before = [blink.peak_frame for blink in find_blinks(trace)]
    after = find_blinks(trace_of(trace.timestamps_s + start_s, trace.ear))
    assert [blink.peak_frame for blink in after] == before


@settings(max_examples=15, deadline=None)
@given(gap_s=st.floats(0.5, 1e5), seed=st.integers(0, 50))
def test_a_pause_between_blinks_changes_nothing(gap_s: float, seed: int) -> None:
    trace, intervals = draw_trace(seed, Drawing(seconds=40.0, glances=0, drift_ear=0.0))
    quiet_s = [
        (before + after) / 2
        for (_, before), (after, _) in pairwise(intervals)
        if after - before > 2.5
    ]
    if not quiet_s:
        return
    times_s = trace.timestamps_s + gap_s * (trace.timestamps_s > quiet_s[0])
    paused = trace_of(times_s, trace.ear)
    assert len(find_blinks(paused)) == len(find_blinks(trace))


@pytest.mark.parametrize("trend_ear", [-0.02, 0.02])
@pytest.mark.parametrize("held_s", [0.0, 0.6])
def test_lids_that_stay_down_make_one_blink_of_the_right_length(
    held_s: float, trend_ear: float
) -> None:
    rng = np.random.default_rng(0)
    times_s = np.arange(1800) / 30.0
    ear = 0.3 + rng.normal(0, 0.002, len(times_s))
    intervals = [(start, start + 0.3 + held_s) for start in (10.0, 22.0, 35.0, 50.0)]
    for onset_s, offset_s in intervals:
        edges = [onset_s, onset_s + 0.1, offset_s - 0.2, offset_s]
        levels = [0.0, 0.26 + min(trend_ear, 0), 0.26 - max(trend_ear, 0), 0.0]
        ear -= np.interp(times_s, edges, levels)
    blinks = [(blink.onset_s, blink.offset_s) for blink in find_blinks(trace_of(times_s, ear))]
    assert len(blinks) == len(intervals)
    assert len(match_blinks(blinks, intervals, smallest_overlap=0.6).pairs) == len(intervals)


@pytest.mark.parametrize(
    ("frame_rate_hz", "reopened"),
    [(25.0, 0.25), (30.0, 0.25), (120.0, 0.25), (30.0, 0.6), (120.0, 0.6)],
)
def test_lids_that_ripple_while_shut_blink_once(frame_rate_hz: float, reopened: float) -> None:
    rng = np.random.default_rng(0)
    times_s = np.arange(int(60 * frame_rate_hz)) / frame_rate_hz
    ear = 0.3 + rng.normal(0, 0.004, len(times_s))
    begins_s = np.arange(2.0, 57.0, 2.83)
    shut = 1.0 - reopened
    for begin_s in begins_s:
        edges = begin_s + np.array([0.0, 0.1, 0.17, 0.22, 0.27, 0.3, 0.5])
        ear -= 0.22 * np.interp(times_s, edges, [0.0, 1.0, 0.95, shut, 0.95, 1.0, 0.0])
    once = 1 if reopened < 0.3 else 2
    blinks = find_blinks(trace_of(times_s, ear))
    assert len(blinks) == pytest.approx(once * len(begins_s), abs=1)


@pytest.mark.parametrize("frame_rate_hz", [30.0, 120.0])
def test_blinks_in_quick_succession_meet_and_do_not_overlap(frame_rate_hz: float) -> None:
    # A conditioned closure runs into the blink at the air puff: two dips with little between.
    session = draw_conditioning_session(1, frame_rate_hz)
    blinks = find_blinks(trace_of(session.timestamps_s, session.ear))
    assert len(blinks) > 30
    for blink in blinks:
        assert blink.onset_s <= blink.peak_s <= blink.offset_s
    for blink, following in pairwise(blinks):
        assert blink.offset_s <= following.onset_s
