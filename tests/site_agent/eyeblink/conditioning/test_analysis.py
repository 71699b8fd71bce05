"""Conditioning measures against sessions with known responses."""

import json
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.datasets.synthetic.conditioning import (
    ConditioningDesign,
    SyntheticConditioning,
    TrialTruth,
    draw_conditioning_session,
)
from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning import ConditioningSettings, CrRule, Rejection
from site_agent.eyeblink.conditioning.analysis import (
    ConditioningResult,
    analyse_conditioning,
    judge_trials,
    measure_trials,
)
from site_agent.eyeblink.conditioning.summary import TRIAL_COLUMNS, TrialResult, trial_rows
from site_agent.eyeblink.conditioning.trial_measures import TrialMeasures
from site_agent.eyeblink.outputs.report_figures import align_trials, mean_of_known

Pair = tuple[TrialResult, TrialTruth]


class Analysed(NamedTuple):
    session: SyntheticConditioning
    result: ConditioningResult

    @property
    def clean(self) -> list[Pair]:
        """Valid trials with their truth, without those that a spontaneous blink disturbs."""
        pairs = zip(self.result.trials, self.session.truth, strict=True)
        return [
            (measured, truth)
            for measured, truth in pairs
            if measured.valid and not truth.blink_near
        ]


@cache
def analysed(
    seed: int,
    rate_hz: float,
    design: ConditioningDesign | None = None,
    drawn_per_frame: int = 1,
    steps: tuple[int, ...] = (1,),
) -> Analysed:
    """Draw a session, keep the frames by random `steps` from one to the next, and analyse them."""
    session = draw_conditioning_session(seed, drawn_per_frame * rate_hz, design)
    count = len(session.timestamps_s)
    kept = np.cumsum(np.random.default_rng(seed).choice(steps, count)) - 1
    kept = kept[kept < count]
    return Analysed(
        session, analyse_conditioning(session.timestamps_s[kept], session.fec[kept], session.trials)
    )


CAMERAS = {
    "even": (1, (1,)),
    "lost-frames": (1, (*(1,) * 50, 2, 2, 5)),
    "variable-rate": (4, (3, 4, 4, 5, 8)),
}
"""The last two arguments of `analysed`."""
RATES_HZ = (30, 200)


def clean_pairs(rate_hz: float, design: ConditioningDesign, camera: str = "even") -> list[Pair]:
    return [
        pair
        for seed in range(6)
        for pair in analysed(seed, rate_hz, design, *CAMERAS[camera]).clean
    ]


@pytest.mark.parametrize("camera", CAMERAS)
@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_crs_are_those_that_were_drawn(rate_hz: float, camera: str) -> None:
    pairs = clean_pairs(rate_hz, ConditioningDesign(), camera)
    judged = [pair for pair in pairs if pair[0].cr is not None]
    assert len(judged) > 60
    assert np.mean([measured.cr == truth.cr for measured, truth in judged]) >= 0.98
    errors = [
        measured.measures.cr_amplitude - truth.window_mean for measured, truth in judged if truth.cr
    ]
    assert abs(np.mean(errors)) < 0.01
    assert np.sqrt(np.mean(np.square(errors))) < 0.035


@pytest.mark.parametrize("straight", [False, True])
@pytest.mark.parametrize(
    ("rate_hz", "noise_fec", "limits"),
    [(200, 0.01, (5.0, 10.0, 0.9, 6.0)), (30, 0.02, (1000 / 30, 1000 / 30, 0.8, 1000 / 60))],
)
def test_onsets_of_crs(
    rate_hz: float, noise_fec: float, limits: tuple[float, float, float, float], straight: bool
) -> None:
    median_ms, within_ms, share, bias_ms = limits
    design = ConditioningDesign(straight_rise=straight, noise_fec=noise_fec)
    errors_ms = np.array(
        [
            measured.measures.cr_onset_ms - truth.onset_ms
            for measured, truth in clean_pairs(rate_hz, design, "lost-frames")
            if truth.cr and measured.cr
        ]
    )
    known = np.isfinite(errors_ms)
    assert known.mean() >= (0.95 if rate_hz == 30 else 1.0), "the others are counted as not found"
    errors_ms = errors_ms[known]
    assert np.median(np.abs(errors_ms)) < median_ms
    assert np.mean(np.abs(errors_ms) <= within_ms) >= share
    assert abs(errors_ms.mean()) < bias_ms


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_unconditioned_responses(rate_hz: float) -> None:
    with_us = [
        measured.measures
        for measured, _ in clean_pairs(rate_hz, ConditioningDesign())
        if measured.measures.trial_type is not TrialType.CS_ONLY
    ]
    heights = np.array([measures.ur_amplitude for measures in with_us])
    times_ms = np.array([measures.ur_peak_ms for measures in with_us])
    assert abs(np.median(heights) - 0.95) < 0.06
    assert abs(np.median(times_ms) - 95) < max(12, 600 / rate_hz)


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_peaks_of_conditioned_responses(rate_hz: float) -> None:
    errors_ms = [
        measured.measures.cr_peak_ms - truth.peak_ms
        for measured, truth in clean_pairs(rate_hz, ConditioningDesign(share_cs_only=0.5))
        if truth.cr and measured.cr and measured.measures.trial_type is TrialType.CS_ONLY
    ]
    assert len(errors_ms) > 15
    assert abs(np.median(errors_ms)) < max(15, 500 / rate_hz)


def test_a_startle_is_flagged_and_is_no_cr_onset() -> None:
    design = ConditioningDesign(startle_share=0.5, blinks_per_min=0.0)
    pairs = [pair for pair in clean_pairs(200, design) if pair[0].has_cs]
    assert np.mean([result.measures.startle == truth.startle for result, truth in pairs]) >= 0.97
    errors_ms = np.array(
        [
            result.measures.cr_onset_ms - truth.onset_ms
            for result, truth in pairs
            if truth.startle and truth.cr
        ]
    )
    assert np.mean(np.abs(errors_ms) < 25) > 0.85


def test_the_summary_counts_what_was_drawn() -> None:
    session, result = analysed(3, 200, ConditioningDesign(blinks_per_min=0.0))
    summary = result.summary
    assert summary.n_trials == summary.n_valid == 60
    assert summary.n_cr == sum(truth.cr for truth in session.truth)
    assert summary.cr_percent == pytest.approx(100 * summary.n_cr / 57)
    assert summary.left_out == "3 US alone"
    assert summary.cr_percent_low < summary.cr_percent < summary.cr_percent_high
    assert summary.trials_by_type == {"paired": 45, "cs_only": 12, "us_only": 3}
    assert summary.rejected_by_reason == {}
    assert summary.cs_us_ms == pytest.approx(450.0)
    onsets_ms = [truth.onset_ms for truth in session.truth if truth.cr]
    assert summary.onset_ms == pytest.approx(np.mean(onsets_ms), abs=8)
    assert summary.amplitude_cr > summary.amplitude_all > 0
    assert [row.n_valid for row in result.sensitivity] == [57] * 5
    counts = [row.n_cr for row in result.sensitivity[:3]]
    assert counts == sorted(counts, reverse=True)
    json.dumps(result.to_dict(), allow_nan=False)


# --- what makes a trial missing ---------------------------------------------------------------


def flat_session() -> tuple[np.ndarray, np.ndarray, list]:
    times_s = np.arange(0, 85, 0.01)
    fec = 0.01 * np.random.default_rng(0).standard_normal(len(times_s))
    trials = [
        Trial(str(number), TrialType.PAIRED, 5.0 + 10 * number, 5.45 + 10 * number)
        for number in range(8)
    ]
    return times_s, fec, trials


def reasons(times_s: np.ndarray, fec: np.ndarray, trials: list, **changes: object) -> list:
    result = analyse_conditioning(times_s, fec, trials, replace(ConditioningSettings(), **changes))
    return [trial.rejections for trial in result.trials]


def between(times_s: np.ndarray, from_s: float, to_s: float) -> np.ndarray:
    return (times_s >= from_s) & (times_s < to_s)


def test_alpha_beta_and_conditioned_responses_are_told_apart() -> None:
    times_s, fec, trials = flat_session()
    for trial, (from_s, to_s) in zip(
        trials, ((0.03, 0.12), (0.15, 0.26), (0.2, 0.6)), strict=False
    ):
        cs_s = trial.cs_onset_s
        rise = np.clip((times_s - cs_s - from_s) / 0.05, 0.0, 1.0)
        fec += 0.4 * rise * np.clip((cs_s + to_s + 0.05 - times_s) / 0.05, 0.0, 1.0)
    measures = [trial.measures for trial in analyse_conditioning(times_s, fec, trials).trials]
    assert [one.startle for one in measures[:4]] == [True, False, False, False]
    assert [one.beta_startle for one in measures[:4]] == [False, True, False, False]


def test_rates_are_corrected_for_closures_that_would_have_come_anyway() -> None:
    times_s, fec, trials = flat_session()
    for number, trial in enumerate(trials):
        us_s = trial.cs_onset_s + 0.45
        fec[between(times_s, us_s - 0.1, us_s)] += 0.3 if number < 4 else 0.0
        before_s = trial.cs_onset_s - 0.15
        fec[between(times_s, before_s, before_s + 0.12)] += 0.3 if number in (3, 7) else 0.0
    settings = ConditioningSettings(reject_rules=())
    summary = analyse_conditioning(times_s, fec, trials, settings).summary
    assert (summary.cr_percent, summary.spontaneous_percent) == (50.0, 25.0)
    assert summary.cr_percent_corrected == pytest.approx(100.0 / 3.0)


def test_missing_samples() -> None:
    times_s, fec, trials = flat_session()
    hidden = between(times_s, 14.7, 15.0)  # 300 of 1100 ms
    few = between(times_s, 24.8, 25.0)  # 200 of 1100 ms
    kept = ~(hidden | few)
    reasons_by_trial = reasons(times_s[kept], fec[kept], trials)
    assert reasons_by_trial[1] == (Rejection.MISSING_SAMPLES,)
    fec[~kept] = np.nan
    assert reasons(times_s, fec, trials) == reasons_by_trial
    assert reasons_by_trial[0] == reasons_by_trial[2] == ()


def test_a_gap_over_the_cr_window() -> None:
    times_s, fec, trials = flat_session()
    fec[between(times_s, 15.40, 15.46)] = np.nan
    reasons_by_trial = reasons(times_s, fec, trials)
    assert reasons_by_trial[1] == (Rejection.NO_CR_WINDOW,)
    result = analyse_conditioning(times_s, fec, trials)
    assert result.trials[1].cr is None
    assert result.summary.n_cs_valid == 7


def test_an_unstable_baseline_and_a_closed_eye() -> None:
    times_s, fec, trials = flat_session()
    fec[between(times_s, 14.55, 14.75)] += 0.8
    fec[between(times_s, 24.93, 25.1)] += 0.2
    fec[between(times_s, 34.0, 36.0)] += 0.7
    reasons_by_trial = reasons(times_s, fec, trials)
    assert reasons_by_trial[1] == (Rejection.UNSTABLE_BASELINE,)
    assert Rejection.CLOSED_BEFORE_CS in reasons_by_trial[2]
    assert reasons_by_trial[3] == (Rejection.CLOSED_BEFORE_CS,)
    assert reasons(times_s, fec, trials, reject_rules=()) == [()] * 8
    assert reasons(times_s, 0 * fec + 0.2, trials) == [()] * 8


def test_trials_outside_the_recording_are_missing_with_a_remark() -> None:
    times_s, fec, trials = flat_session()
    trials += [
        Trial("late", TrialType.PAIRED, 200.0, 200.45),
        Trial("cut", TrialType.CS_ONLY, float(times_s[-1]) - 0.1),
        Trial("early", TrialType.CS_ONLY, -3.0),
    ]
    result = analyse_conditioning(times_s, fec, trials)
    by_name = {trial.measures.trial: trial for trial in result.trials}
    assert by_name["late"].rejections == by_name["cut"].rejections == (Rejection.AFTER_RECORDING,)
    assert by_name["early"].rejections == (Rejection.BEFORE_RECORDING,)
    assert by_name["late"].cr is None
    assert result.summary.n_valid == 8
    text = " ".join(result.remarks)
    assert "2 of 11 trials lie after the end of the recording (84.990 s)" in text
    assert "late" in text
    assert "puts them on that of the recording" not in text
    other_clock = analyse_conditioning(times_s + 1e6, fec, trials[:8])
    assert "--set clock_offset_s=SECONDS puts them on that of the recording" in " ".join(
        other_clock.remarks
    )


def test_only_cs_trials_take_the_usual_interval_and_say_so() -> None:
    session = draw_conditioning_session(
        0, 100, ConditioningDesign(share_cs_only=1.0, share_us_only=0)
    )
    result = analyse_conditioning(
        session.timestamps_s,
        session.fec,
        session.trials,
        ConditioningSettings(cr_rule=CrRule.UR_SHARE),
    )
    assert result.summary.cs_us_ms == 450.0
    assert any("450 ms are assumed" in remark for remark in result.remarks)
    assert any("no UR was measured" in remark for remark in result.remarks)
    assert result.summary.n_cs_valid == 0
    assert result.summary.n_valid > 40


# --- the edges of windows at low frame rates --------------------------------------------------


@pytest.mark.parametrize("phase", np.linspace(0, 1, 9))
def test_the_response_to_the_us_never_leaks_into_the_cr(phase: float) -> None:
    times_s = (np.arange(300) + phase) / 30
    fec = np.where(times_s > 5.45 + 0.012, 0.9, 0.0)
    (result,) = analyse_conditioning(times_s, fec, [Trial("1", TrialType.PAIRED, 5.0, 5.45)]).trials
    assert result.measures.cr_amplitude == pytest.approx(0.0, abs=1e-12)
    assert result.cr is False
    assert result.measures.ur_amplitude == pytest.approx(0.9, abs=0.15)


@pytest.mark.parametrize("rate_hz", [30, 500])
@pytest.mark.parametrize("phase", np.linspace(0, 1, 5))
def test_a_ramp_has_its_mean_in_the_cr_window_at_every_rate(rate_hz: float, phase: float) -> None:
    times_s = (np.arange(10 * rate_hz) + phase) / rate_hz
    fec = np.clip((times_s - 5.2) * 2.0, 0.0, 0.9)
    (result,) = analyse_conditioning(times_s, fec, [Trial("1", TrialType.CS_ONLY, 5.0)]).trials
    expected = (5.45 - 0.021 - 5.2) * 2.0
    # At worst the last sample lies one frame before the US.
    assert result.measures.cr_amplitude == pytest.approx(expected, abs=0.02 + 0.5 / rate_hz)


# --- laws -------------------------------------------------------------------------------------

LAW_SESSION = draw_conditioning_session(11, 60, ConditioningDesign(n_trials=8))
LAW_RESULT = analyse_conditioning(LAW_SESSION.timestamps_s, LAW_SESSION.fec, LAW_SESSION.trials)


def same_measures(one: TrialMeasures, other: TrialMeasures, names: tuple[str, ...]) -> None:
    for name in names:
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), atol=2e-4, rtol=1e-4, err_msg=name
        )


@settings(max_examples=15, deadline=None)
@given(st.floats(-3000, 3000))
def test_shifting_all_times_changes_nothing(shift_s: float) -> None:
    trials = [
        replace(t, cs_onset_s=t.cs_onset_s + shift_s, us_onset_s=t.us_onset_s + shift_s)
        for t in LAW_SESSION.trials
    ]
    moved = analyse_conditioning(LAW_SESSION.timestamps_s + shift_s, LAW_SESSION.fec, trials)
    assert [t.cr for t in moved.trials] == [t.cr for t in LAW_RESULT.trials]
    for ours, theirs in zip(moved.trials, LAW_RESULT.trials, strict=True):
        assert ours.rejections == theirs.rejections
        names = ("cr_amplitude", "ur_amplitude", "ur_peak_ms", "baseline_sd", "missing_share")
        same_measures(ours.measures, theirs.measures, names)


@settings(max_examples=15, deadline=None)
@given(st.floats(-0.3, 0.3))
def test_a_constant_level_changes_no_amplitude(level: float) -> None:
    moved = analyse_conditioning(
        LAW_SESSION.timestamps_s, LAW_SESSION.fec + level, LAW_SESSION.trials
    )
    for ours, theirs in zip(moved.trials, LAW_RESULT.trials, strict=True):
        assert ours.rejections == theirs.rejections
        assert ours.cr == theirs.cr
        names = ("cr_amplitude", "cr_onset_ms", "cr_peak_ms", "ur_amplitude", "ur_peak_ms")
        same_measures(ours.measures, theirs.measures, names)
        assert ours.measures.baseline == pytest.approx(theirs.measures.baseline + level)


@settings(max_examples=15, deadline=None)
@given(st.permutations(range(8)))
def test_the_order_of_the_list_does_not_matter(order: list[int]) -> None:
    shuffled = [LAW_SESSION.trials[index] for index in order]
    result = analyse_conditioning(LAW_SESSION.timestamps_s, LAW_SESSION.fec, shuffled)
    assert trial_rows(result.trials) == trial_rows(LAW_RESULT.trials)


@settings(max_examples=25, deadline=None)
@given(st.floats(0.01, 0.6), st.floats(0.01, 0.6))
def test_a_higher_criterion_never_finds_more(one: float, other: float) -> None:
    measured = measure_trials(LAW_SESSION.timestamps_s, LAW_SESSION.fec, LAW_SESSION.trials)
    low, high = sorted([one, other])
    counts = [
        judge_trials(measured, ConditioningSettings(cr_threshold=threshold)).summary.n_cr
        for threshold in (low, high)
    ]
    assert counts[0] >= counts[1]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_trace_gives_a_result(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 120))
    steps_s = data.draw(st.lists(st.floats(1e-3, 0.5), min_size=count, max_size=count))
    level = data.draw(
        st.lists(
            st.one_of(st.just(float("nan")), st.floats(-0.5, 2)), min_size=count, max_size=count
        )
    )
    times_s = np.cumsum(steps_s)
    onset_s = data.draw(st.floats(-1, float(times_s[-1]) + 1))
    kind = data.draw(st.sampled_from(list(TrialType)))
    trial = Trial(
        "1",
        kind,
        float("nan") if kind is TrialType.US_ONLY else onset_s,
        float("nan") if kind is TrialType.CS_ONLY else onset_s + 0.45,
    )
    result = analyse_conditioning(times_s, level, [trial])
    row = trial_rows(result.trials)[0]
    assert list(row) == [column.name for column in TRIAL_COLUMNS]
    json.dumps([row, result.to_dict()], allow_nan=False)
    align_trials(times_s, level, result.trials)


# --- tables, pictures, errors -----------------------------------------------------------------


def test_aligned_trials_show_the_response() -> None:
    session, result = analysed(3, 200, ConditioningDesign(blinks_per_min=0.0))
    aligned = align_trials(session.timestamps_s, session.fec, result.trials)
    shown = aligned.valid & [kind is TrialType.PAIRED for kind in aligned.trial_types]
    mean = mean_of_known(aligned.fec[shown])
    assert shown.sum() == 45
    assert abs(mean[aligned.time_ms < 0]).max() < 0.02
    assert mean[np.argmin(abs(aligned.time_ms - 545))] == pytest.approx(0.95, abs=0.04)
    around_us = align_trials(session.timestamps_s, session.fec, result.trials, at_us=True)
    reflex = mean_of_known(around_us.fec[shown])
    assert reflex[np.argmin(abs(around_us.time_ms - 95))] == pytest.approx(0.95, abs=0.04)


@pytest.mark.parametrize(
    "changes",
    [
        {"baseline_ms": (0.0, -500.0)},
        {"baseline_ms": (-500.0, 60.0)},
        {"cr_window_ms": (-40.0, 20.0)},
        {"largest_missing_share": 1.5},
        {"reject_rules": ("no-baseline",)},
    ],
)
def test_unusable_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConditioningError, match=next(iter(changes))):
        ConditioningSettings(**changes)


def test_unusable_input_is_refused() -> None:
    trial = Trial("1", TrialType.CS_ONLY, 1.0)
    with pytest.raises(ConditioningError, match="there are no trials"):
        analyse_conditioning([0.0, 1.0], [0.0, 0.0], [])
    with pytest.raises(ConditioningError, match="do not increase"):
        analyse_conditioning([0.0, 0.5, 0.5], [0.0] * 3, [trial])
    with pytest.raises(ConditioningError, match="one value for each frame"):
        analyse_conditioning([0.0, 0.5], [0.0] * 3, [trial])
