"""Recordings made of trials: 21 frames a second, one frame before the CS, closure clipped at 0."""

import math
from dataclasses import replace

import numpy as np
import pytest

from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import ConditioningError
from site_agent.eyeblink.conditioning import ConditioningSettings, CrRule, Rejection
from site_agent.eyeblink.conditioning.analysis import ConditioningResult, analyse_conditioning
from site_agent.eyeblink.conditioning.summary import trial_rows
from tests.site_agent.eyeblink.drawn_traces import Float64

RATE_HZ, CS_US_S = 21.0, 0.45


def draw_trials(
    count: int, responding: int, *, before: int = 1, noise_fec: float = 0.01, clip: bool = True
) -> tuple[Float64, Float64, list[Trial]]:
    """Draw trials of 7 s with 10 s between them, and `before` frames before each CS.

    The first `responding` trials hold a CR of 0.4; closure is clipped to 0..1 where asked for.
    """
    rng = np.random.default_rng(1)
    times, closure, trials = [], [], []
    for number in range(count):
        cs_s = 20.0 * number + 5.0
        frames_s = cs_s + (np.arange(147) - before) / RATE_HZ + rng.uniform(0.0, 0.9 / RATE_HZ)
        after_s = frames_s - cs_s
        height = 0.4 if number < responding else 0.0
        fec = np.interp(after_s, [0.15, CS_US_S], [0.0, height])
        puff = np.interp(after_s, [CS_US_S + 0.03, CS_US_S + 0.09, 1.0], [0.0, 1.0, 0.0])
        fec = np.where(after_s > CS_US_S + 0.03, np.maximum(puff, 0.0), fec)
        times.append(frames_s)
        closure.append(fec + rng.normal(0.0, noise_fec, len(frames_s)))
        trials.append(Trial(str(number + 1), TrialType.PAIRED, cs_s, cs_s + CS_US_S))
    fec = np.concatenate(closure)
    return np.concatenate(times), np.clip(fec, 0.0, 1.0) if clip else fec, trials


def analyse(drawn: tuple[Float64, Float64, list[Trial]], **settings: object) -> ConditioningResult:
    return analyse_conditioning(*drawn, replace(ConditioningSettings(), **settings))


def test_a_height_of_0_over_a_baseline_without_spread_is_no_response() -> None:
    times_s, fec, trials = draw_trials(12, 4, before=8, noise_fec=0.0)
    result = analyse((times_s, fec, trials), cr_rule=CrRule.BASELINE_SD, cr_threshold=3.0)
    assert (result.summary.n_cr, result.summary.n_cs_valid) == (4, 12)
    row = next(row for row in result.sensitivity if "SD" in row.criterion)
    assert (row.n_cr, row.n_valid) == (4, 12)


def test_trials_with_a_frame_before_the_cs_are_rejected_with_a_word() -> None:
    result = analyse(draw_trials(20, 8))
    assert result.summary.n_valid == 0
    reasons = {Rejection.BEFORE_RECORDING: 1, Rejection.NO_BASELINE: 19}
    assert result.summary.rejected_by_reason == reasons
    assert result.summary.withheld
    *_, remark = result.remarks
    assert remark.startswith("20 of 20 trials are rejected (before-recording 1, no-baseline 19)")
    assert "least_baseline_samples=1" in remark


@pytest.mark.parametrize(
    "settings",
    [{"least_baseline_samples": 1}, {"least_baseline_samples": 2, "baseline_ms": (-500.0, 50.0)}],
    ids=["one-sample", "up-to-the-earliest-response"],
)
def test_settings_measure_recordings_that_begin_with_the_trial(settings: dict[str, object]) -> None:
    result = analyse(draw_trials(20, 8), **settings)
    assert (result.summary.n_cr, result.summary.n_cs_valid) == (8, 20)
    assert result.remarks == ()
    assert [trial.cr for trial in result.trials] == [True] * 8 + [False] * 12


def test_one_sample_has_no_spread_to_judge_by() -> None:
    settings = {"least_baseline_samples": 1, "cr_rule": CrRule.BASELINE_SD, "cr_threshold": 3.0}
    result = analyse(draw_trials(6, 3), **settings)
    assert {trial.cr for trial in result.trials} == {None}
    assert math.isnan(result.summary.cr_percent)


def test_a_baseline_ends_before_any_response() -> None:
    with pytest.raises(ConditioningError, match="50 ms after the CS"):
        ConditioningSettings(baseline_ms=(-500.0, 60.0))


def test_onsets_before_the_earliest_one_are_censored_and_no_values() -> None:
    times_s, fec, trials = draw_trials(12, 12, before=8, clip=False)
    floor = {"onset_floor_ms": 250.0}
    late, early = (analyse((times_s, fec, trials), **settings) for settings in ({}, floor))
    assert late.summary.n_onset_early == 0
    assert late.summary.onset_ms == pytest.approx(150.0, abs=30.0)
    # A tenth of the height is passed a tenth of the way from 150 to 450 ms.
    assert late.summary.latency_ms == pytest.approx(180.0, abs=20.0)
    row = trial_rows(early.trials)[0]
    assert (row["cr_onset_ms"], row["cr"]) == (None, True)
    assert row["cr_onset_censored"] in ("early", "not-found")
    assert early.summary.n_onset_early + early.summary.n_onset_not_found == 12
    assert math.isnan(early.summary.onset_ms)
    assert early.summary.latency_ms == late.summary.latency_ms


def test_few_rejected_trials_are_no_warning() -> None:
    result = analyse(draw_trials(20, 8, before=8))
    assert (result.remarks, result.summary.withheld) == ((), False)
