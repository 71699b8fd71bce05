"""Closures however slowly the lids fall, eyes that only narrow, and both eyes of a blink."""

from dataclasses import replace

import numpy as np
import pytest

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.blinks.finding import BlinkSettings, judge_blinks, quality_warnings
from site_agent.eyeblink.blinks.statistics import blink_statistics
from site_agent.eyeblink.openness.signal import calibrate, fraction_eyelid_closure
from site_agent.eyeblink.records import EyeTrace, mean_of_valid_eyes
from site_agent.eyeblink.session import range_doubts
from tests.site_agent.eyeblink.drawn_lids import DrawnLids, LidDrawing, draw_lids
from tests.site_agent.eyeblink.drawn_traces import (
    Drawing,
    Float64,
    draw_trace,
    find_blinks,
    trace_of,
)
from tests.site_agent.eyeblink.matching import match_blinks


def found_of(drawn: DrawnLids) -> list[tuple[str, float, float]]:
    return [(event.kind, event.onset_s, event.offset_s) for event in find_blinks(drawn.trace)]


@pytest.mark.parametrize("rate_hz", [15.0, 30.0, 60.0, 200.0])
def test_slow_closures_are_listed_with_their_onsets(rate_hz: float) -> None:
    drawing = LidDrawing(rate_hz, noise_ear=0.003, closing_s=(0.3, 1.5))
    drawn = draw_lids(3, drawing)
    events = found_of(drawn)
    closures = [(onset_s, offset_s) for kind, onset_s, offset_s in events if kind == "closure"]
    match = match_blinks(closures, drawn.closures, smallest_overlap=0.7)
    assert len(match.pairs) == match.detected == match.true == 10
    for index, true in match.pairs:
        assert closures[index][0] == pytest.approx(drawn.closures[true][0], abs=0.15)
    blinks = [(onset_s, offset_s) for kind, onset_s, offset_s in events if kind == "blink"]
    assert match_blinks(blinks, drawn.blinks).f1 == 1.0


@pytest.mark.parametrize("blinks", [0, 20])
@pytest.mark.parametrize("rate_hz", [15.0, 60.0])
def test_looks_down_and_turns_of_the_head_are_no_events(rate_hz: float, blinks: int) -> None:
    drawn = draw_lids(5, LidDrawing(rate_hz, blinks, closures=0, glances=20, turns=15))
    spans = [(onset_s, offset_s) for _, onset_s, offset_s in found_of(drawn)]
    assert match_blinks(spans, drawn.blinks).f1 == 1.0 if blinks else spans == []


def test_closures_at_both_ends_of_a_recording_are_cut() -> None:
    drawing = LidDrawing(closures=0, begins_closed=True, ends_closed=True)
    drawn = draw_lids(1, drawing)
    closures = [event for event in find_blinks(drawn.trace) if event.kind == "closure"]
    assert [event.cut for event in closures] == ["begin", "end"]
    assert closures[0].onset_s == 0.0
    assert closures[1].offset_s == pytest.approx(drawn.trace.timestamps_s[-1], abs=0.05)
    assert closures[1].onset_s == pytest.approx(drawn.closures[-1][0], abs=0.15)


def shaped(times_s: Float64, points: list[tuple[float, float]]) -> Float64:
    """Draw EAR for closures that change straight between (time, FEC), and five blinks before."""
    rng = np.random.default_rng(0)
    fec = np.interp(times_s, [time_s for time_s, _ in points], [value for _, value in points])
    for blink_s in range(2, 12, 2):
        fec += np.interp(times_s, [blink_s, blink_s + 0.1, blink_s + 0.3], [0, 1, 0], 0, 0)
    return 0.3 - 0.23 * fec + rng.normal(0.0, 0.004, len(times_s))


def test_lids_that_part_a_little_within_a_closure_leave_it_one_event() -> None:
    times_s = np.arange(900) / 30.0
    points = [(15.0, 0), (15.4, 1), (17.0, 1), (17.2, 0.55), (17.4, 1), (19.0, 1), (19.4, 0)]
    events = find_blinks(trace_of(times_s, shaped(times_s, points)))
    assert [event.kind for event in events] == ["blink"] * 5 + ["closure"]
    closure = events[-1]
    assert closure.shut_from_s == pytest.approx(15.33, abs=0.1)
    assert closure.shut_until_s == pytest.approx(19.07, abs=0.1)
    assert closure.half_closed_ms == pytest.approx(3900, abs=150)


def test_a_face_lost_for_a_moment_leaves_a_closure_one_event() -> None:
    times_s = np.arange(900) / 30.0
    ear = shaped(times_s, [(15.0, 0), (15.4, 1), (19.0, 1), (19.4, 0)])
    ear[510:520] = np.nan
    events = find_blinks(trace_of(times_s, ear))
    assert [event.kind for event in events] == ["blink"] * 5 + ["closure"]


def test_eyes_that_narrow_by_two_thirds_are_left_out_and_named() -> None:
    times_s = np.arange(900) / 30.0
    ear = shaped(times_s, [(15.0, 0), (15.5, 0.68), (19.0, 0.68), (19.5, 0)])
    trace = trace_of(times_s, ear)
    result = judge_blinks(trace)
    assert [event.kind for event in result.blinks] == ["blink"] * 5
    assert [event.kind for event in result.left_out] == ["closure"]
    assert result.left_out[0].confidence < BlinkSettings().least_confidence
    assert any("narrowed" in doubt for doubt in quality_warnings(trace, True, result))
    bold = judge_blinks(trace, BlinkSettings(least_confidence=0.05))
    assert [event.kind for event in bold.blinks] == ["blink"] * 5 + ["closure"]


def test_a_blink_during_a_look_down_is_a_blink() -> None:
    times_s = np.arange(900) / 30.0
    look = [(15.0, 0), (15.3, 0.4), (16.9, 0.4), (17.0, 1), (17.2, 0.4), (19.0, 0.4), (19.4, 0)]
    events = find_blinks(trace_of(times_s, shaped(times_s, look)))
    assert [event.kind for event in events] == ["blink"] * 6
    assert events[-1].peak_s == pytest.approx(17.0, abs=0.1)


def test_neither_the_scale_of_ear_nor_the_frame_rate_changes_closures() -> None:
    drawn = draw_lids(2, LidDrawing(120.0, closures=5, blinks=8))
    times_s, ear = drawn.trace.timestamps_s, drawn.trace.ear
    events = found_of(drawn)
    assert [kind for kind, _, _ in events].count("closure") == 5
    for other in (trace_of(times_s, 1.3 * ear), trace_of(times_s[::4], ear[::4])):
        again = [(event.kind, event.onset_s, event.offset_s) for event in find_blinks(other)]
        assert [kind for kind, _, _ in again] == [kind for kind, _, _ in events]
        for (_, onset_s, offset_s), (_, onset2_s, offset2_s) in zip(events, again, strict=True):
            assert (onset2_s, offset2_s) == pytest.approx((onset_s, offset_s), abs=0.15)


def test_the_eyes_of_a_slow_closure_are_known() -> None:
    drawn = draw_lids(4, LidDrawing(closures=3, blinks=8))
    right = drawn.trace.ear + np.random.default_rng(0).normal(0.01, 0.004, len(drawn.trace.ear))
    trace = replace(drawn.trace, ear_right=right)
    assert {event.eyes for event in find_blinks(trace)} == {"both"}


def test_perclos_is_the_share_of_the_time_with_shut_lids() -> None:
    times_s = np.arange(1800) / 30.0
    ear = shaped(times_s, [(20.0, 0), (20.1, 1), (38.0, 1), (38.1, 0)])
    ear[1500:] = np.nan
    trace = trace_of(times_s, ear)
    fec = fraction_eyelid_closure(trace.ear, calibrate(trace.ear))
    statistics = blink_statistics(trace, find_blinks(trace), fec)
    # 18 of 50 s, and a tenth of a second in each of five blinks.
    assert statistics.perclos_pct == pytest.approx(100 * 18.3 / 50, abs=1.0)
    assert statistics.closures_s == pytest.approx(18.1, abs=0.3)
    assert statistics.rate[0].perclos_pct == pytest.approx(statistics.perclos_pct)


def test_stretches_without_eyes_are_named() -> None:
    times_s = np.arange(900) / 30.0
    ear = shaped(times_s, [(0.0, 0.0)])
    ear[400:520] = np.nan
    doubts = quality_warnings(trace_of(times_s, ear), True)
    assert doubts == [
        "not judged: 4 s in 1 stretch without the eyes, the longest 4.0 s from 13.3 s on; blinks "
        "and closures there are not counted"
    ]


def test_pauses_of_the_camera_are_no_time_without_the_eyes() -> None:
    times_s = np.arange(900) / 30.0
    paused = trace_of(times_s + 60.0 * (times_s > 20.0), shaped(times_s, [(0.0, 0.0)]))
    assert quality_warnings(paused, True) == [
        "not judged: 60 s in 1 stretch without frames, the longest 60.0 s from 20.0 s on; blinks "
        "and closures there are not counted"
    ]
    statistics = blink_statistics(paused, find_blinks(paused), np.zeros(len(times_s)))
    assert statistics.blinks_per_minute == pytest.approx(5 / 0.5, rel=0.01)
    # Between the second and the third of the blinks, which come every two seconds.
    paused = trace_of(times_s + 60.0 * (times_s > 5.0), shaped(times_s, [(0.0, 0.0)]))
    statistics = blink_statistics(paused, find_blinks(paused), np.zeros(len(times_s)))
    between = statistics.measures["interval_s"]
    assert (between.n, between.mean) == (3, pytest.approx(2.0))


@pytest.mark.parametrize("value", [0.0, 40.0, float("nan")])
def test_a_confidence_that_is_no_probability_is_refused(value: float) -> None:
    with pytest.raises(InvalidInputError, match="expected a number above 0"):
        BlinkSettings(least_confidence=value)


HALF_CLOSINGS = {
    "squints": LidDrawing(closures=0, squints=40, pause_s=(0.8, 3.0)),
    "laughs": LidDrawing(closures=0, laughs=20, pause_s=(0.8, 3.0)),
    "rolls": LidDrawing(closures=0, rolls=16, pause_s=(0.8, 3.0)),
    "few rolls": LidDrawing(closures=0, rolls=6, pause_s=(0.8, 3.0)),
}


def found_among(drawing: LidDrawing, *, by_model: bool = False) -> tuple[int, int, int, int]:
    """Return how many blinks of four sessions are right, found and true, and sessions named."""
    right = detected = true = named = 0
    for seed in range(4):
        drawn = draw_lids(seed, drawing)
        calibration = calibrate(drawn.trace.ear)
        if by_model:
            calibration = calibrate(drawn.trace.ear, closed_ear=0.25 * calibration.open_ear)
        result = judge_blinks(drawn.trace, calibration=calibration)
        match = match_blinks([(b.onset_s, b.offset_s) for b in result.blinks], drawn.blinks)
        right, detected = right + len(match.pairs), detected + match.detected
        true += match.true
        doubts = quality_warnings(drawn.trace, True, result)
        doubts += range_doubts(calibration)
        named += any("half way down" in doubt or "half-closings" in doubt for doubt in doubts)
    return right, detected, true, named


@pytest.mark.parametrize("rate_hz", [15.0, 30.0, 60.0, 200.0])
@pytest.mark.parametrize("blinks", [10, 20])
@pytest.mark.parametrize("kind", HALF_CLOSINGS)
def test_who_half_closes_the_eyes_does_not_blink_all_the_time(
    rate_hz: float, blinks: int, kind: str
) -> None:
    drawing = replace(HALF_CLOSINGS[kind], frame_rate_hz=rate_hz, blinks=blinks)
    right, detected, true, named = found_among(drawing)
    assert right >= true - 1
    assert detected - right <= 0.1 * true
    # Lids of who laughs fall too slowly to be taken for a blink.
    assert named == 4 or kind == "laughs"


@pytest.mark.parametrize("rate_hz", [15.0, 60.0])
@pytest.mark.parametrize("kind", ["squints", "rolls"])
def test_two_blinks_show_where_the_lids_shut(rate_hz: float, kind: str) -> None:
    drawing = replace(HALF_CLOSINGS[kind], frame_rate_hz=rate_hz, blinks=2)
    right, detected, true, named = found_among(drawing)
    assert (right, named) == (true, 4)
    # Of about 160 moves; two blinks may fall between the frames, so that nothing tells.
    assert detected - right <= 0.35 * 160


@pytest.mark.parametrize("rate_hz", [15.0, 60.0])
@pytest.mark.parametrize("blinks", [0, 2])
@pytest.mark.parametrize("kind", HALF_CLOSINGS)
def test_the_models_closed_eye_tells_half_closings_from_blinks(
    rate_hz: float, blinks: int, kind: str
) -> None:
    drawing = replace(HALF_CLOSINGS[kind], frame_rate_hz=rate_hz, blinks=blinks)
    right, detected, true, _ = found_among(drawing, by_model=True)
    assert right == true
    assert detected - right <= 4


def test_half_closings_without_a_blink_are_named() -> None:
    *_, named = found_among(replace(HALF_CLOSINGS["squints"], blinks=0))
    assert named == 4


@pytest.mark.parametrize("closed_share", [0.25, 0.45, 0.6])
def test_blinks_of_a_model_that_keeps_the_lids_half_open_stay(closed_share: float) -> None:
    drawing = LidDrawing(
        closures=0, blinks=30, glances=6, closed_ear=0.3 * closed_share, noise_ear=0.009
    )
    right, detected, true, _ = found_among(drawing)
    assert (right, detected) == (true, true)


@pytest.mark.parametrize(
    ("rate_hz", "by_model"), [(25.0, False), (30.0, False), (120.0, False), (60.0, True)]
)
@pytest.mark.parametrize("blinks", [0, 2, 10, 20])
def test_partial_blinks_are_found_among_full_ones(
    rate_hz: float, blinks: int, by_model: bool
) -> None:
    drawing = LidDrawing(rate_hz, blinks, 0, glances=3, partials=30, pause_s=(0.8, 3.0))
    right, detected, true, _ = found_among(drawing, by_model=by_model)
    assert 2 * right / (detected + true) >= 0.97


def test_partial_blinks_are_counted_as_partial() -> None:
    drawn = draw_lids(1, LidDrawing(closures=0, blinks=20, partials=20, pause_s=(0.8, 3.0)))
    result = judge_blinks(drawn.trace)
    match = match_blinks([(b.onset_s, b.offset_s) for b in result.blinks], drawn.partials)
    assert len(match.pairs) >= 19
    assert {result.blinks[place].completeness for place, _ in match.pairs} == {"partial"}


@pytest.mark.parametrize(
    ("mixture", "least_right", "most_false"),
    [
        (LidDrawing(60.0, 10, 0, partials=30, squints=5), 0.97, 14),
        (LidDrawing(60.0, 10, 0, partials=20, squints=20), 0.88, 20),
        (LidDrawing(60.0, 20, 0, partials=10, rolls=6), 0.77, 6),
    ],
)
def test_slow_dips_are_half_closings_among_partial_blinks(
    mixture: LidDrawing, least_right: float, most_false: int
) -> None:
    right, detected, true, _ = found_among(replace(mixture, pause_s=(0.8, 3.0)))
    assert right >= least_right * true
    assert detected - right <= most_false


@pytest.mark.parametrize("seed", range(4))
def test_incomplete_blinks_are_no_squints(seed: int) -> None:
    drawn = draw_lids(seed, LidDrawing(blinks=30, closures=0, blink_fec=(0.5, 1.0)))
    result = judge_blinks(drawn.trace)
    match = match_blinks([(b.onset_s, b.offset_s) for b in result.blinks], drawn.blinks)
    assert len(match.pairs) >= 29
    assert result.half_closings == 0


def two_eyes(lag_s: float, right_share: float = 1.0, rate_hz: float = 100.0) -> EyeTrace:
    """The right eye follows the left one after `lag_s`, by this share."""
    rng = np.random.default_rng(0)
    times_s = np.arange(int(30 * rate_hz)) / rate_hz
    eyes = []
    for delay_s, share in ((0.0, 1.0), (lag_s, right_share)):
        closure = np.zeros(len(times_s))
        for start_s in (4.0, 11.0, 19.5, 26.0):
            edges_s = np.array([0.0, 0.1, 0.13, 0.33]) + start_s + delay_s
            closure = np.maximum(closure, np.interp(times_s, edges_s, [0.0, 1.0, 1.0, 0.0]))
        eyes.append(0.3 - 0.24 * share * closure + rng.normal(0, 0.003, len(times_s)))
    left, right = eyes
    trace = trace_of(times_s, mean_of_valid_eyes(left, right))
    return replace(trace, ear_left=left, ear_right=right)


@pytest.mark.parametrize("lag_ms", [-40.0, 0.0, 60.0])
@pytest.mark.parametrize("rate_hz", [30.0, 250.0])
def test_the_lag_between_the_eyes(lag_ms: float, rate_hz: float) -> None:
    blinks = find_blinks(two_eyes(lag_ms / 1000.0, rate_hz=rate_hz))
    assert len(blinks) == 4
    assert {blink.eyes for blink in blinks} == {"both"}
    assert np.mean([blink.lag_ms for blink in blinks]) == pytest.approx(lag_ms, abs=4.0)


@pytest.mark.parametrize(("share", "eyes"), [(0.0, "left"), (0.1, "left"), (0.8, "both")])
def test_a_wink(share: float, eyes: str) -> None:
    blinks = find_blinks(two_eyes(0.0, share))
    assert {blink.eyes for blink in blinks} == {eyes}
    assert np.isnan(blinks[0].lag_ms) == (eyes != "both")


def test_eyes_that_are_not_known_apart() -> None:
    trace, _ = draw_trace(0, Drawing(seconds=30.0))
    assert {blink.eyes for blink in find_blinks(trace)} == {"unknown"}
    unseen = replace(trace, ear_right=np.full_like(trace.ear, np.nan))
    assert {blink.eyes for blink in find_blinks(unseen)} == {"unknown"}
