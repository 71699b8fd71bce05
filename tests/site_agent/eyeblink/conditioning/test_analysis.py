"""Conditioning measures against sessions whose responses are known."""

from __future__ import annotations

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
from site_agent.eyeblink.conditioning.analysis import (
    ConditioningResult,
    analyse_conditioning,
    judge_trials,
    measure_trials,
)
from site_agent.eyeblink.conditioning.settings import ConditioningSettings
from site_agent.eyeblink.conditioning.summary import TRIAL_COLUMNS, TrialResult, trial_rows
from site_agent.eyeblink.outputs.report_figures import align_trials

Pair = tuple[TrialResult, TrialTruth]


class Analysed(NamedTuple):
    session: SyntheticConditioning
    result: ConditioningResult

    @property
    def clean(self) -> list[Pair]:
        """Valid trials with their truth, without those that a spontaneous blink disturbs."""
        pairs = zip(self.result.trials, self.session.truth, strict=True)
        return [(found, truth) for found, truth in pairs if found.valid and not truth.blink_near]


@cache
def analysed(seed: int, rate_hz: float, design: ConditioningDesign | None = None) -> Analysed:
    session = draw_conditioning_session(seed, rate_hz, design)
    return Analysed(
        session, analyse_conditioning(session.timestamps_s, session.fec, session.trials)
    )


def clean_pairs(rate_hz: float, design: ConditioningDesign, seeds: int = 3) -> list[Pair]:
    return [pair for seed in range(seeds) for pair in analysed(seed, rate_hz, design).clean]


CAMERAS = {
    "even": ConditioningDesign(),
    "lost-frames": ConditioningDesign(lost_share=0.08),
    "variable-rate": ConditioningDesign(rate_jitter=0.2, slow_share=0.25),
}
RATES_HZ = (30, 200)


@pytest.mark.parametrize("camera", sorted(CAMERAS))
@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_cr_decisions_are_right_in_98_of_100_trials(rate_hz: float, camera: str) -> None:
    pairs = [pair for pair in clean_pairs(rate_hz, CAMERAS[camera]) if pair[0].cr is not None]
    right = np.mean([found.cr == truth.cr for found, truth in pairs])
    assert len(pairs) > 60
    assert right >= 0.98


@pytest.mark.parametrize("camera", sorted(CAMERAS))
@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_cr_amplitudes_are_those_that_were_drawn(rate_hz: float, camera: str) -> None:
    errors = [
        found.measures.cr_amplitude - truth.window_mean
        for found, truth in clean_pairs(rate_hz, CAMERAS[camera])
        if truth.cr and found.cr is not None
    ]
    assert abs(np.mean(errors)) < 0.01
    assert np.sqrt(np.mean(np.square(errors))) < 0.035


def onset_errors_ms(rate_hz: float, design: ConditioningDesign) -> np.ndarray:
    return np.array(
        [
            found.measures.cr_onset_ms - truth.onset_ms
            for found, truth in clean_pairs(rate_hz, design)
            if truth.cr and found.cr
        ]
    )


@pytest.mark.parametrize("form", ["min-jerk", "linear"])
def test_onsets_lie_within_10_ms_at_200_frames_a_second(form: str) -> None:
    design = replace(CAMERAS["lost-frames"], rise_form=form, noise_fec=0.01)
    errors_ms = onset_errors_ms(200, design)
    assert np.isfinite(errors_ms).all()
    assert np.median(np.abs(errors_ms)) < 5
    assert np.mean(np.abs(errors_ms) <= 10) >= 0.9
    assert abs(errors_ms.mean()) < 6


@pytest.mark.parametrize("form", ["min-jerk", "linear"])
def test_onsets_lie_within_one_frame_at_30_frames_a_second(form: str) -> None:
    errors_ms = onset_errors_ms(30, replace(CAMERAS["lost-frames"], rise_form=form))
    assert np.isfinite(errors_ms).all()
    assert np.mean(np.abs(errors_ms) <= 1000 / 30) >= 0.8
    assert abs(errors_ms.mean()) < 1000 / 60


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


# --- the edges of windows at low frame rates --------------------------------------------------


@pytest.mark.parametrize("phase", np.linspace(0, 1, 9))
def test_the_response_to_the_us_never_leaks_into_the_cr(phase: float) -> None:
    times_s = (np.arange(300) + phase) / 30
    fec = np.where(times_s > 5.45 + 0.012, 0.9, 0.0)
    (found,) = analyse_conditioning(times_s, fec, [Trial("1", TrialType.PAIRED, 5.0, 5.45)]).trials
    assert found.measures.cr_amplitude == pytest.approx(0.0, abs=1e-12)
    assert found.cr is False
    assert found.measures.ur_amplitude == pytest.approx(0.9, abs=0.15)


@pytest.mark.parametrize("rate_hz", [30, 500])
@pytest.mark.parametrize("phase", np.linspace(0, 1, 5))
def test_a_ramp_has_its_mean_in_the_cr_window_at_every_rate(rate_hz: float, phase: float) -> None:
    times_s = (np.arange(10 * rate_hz) + phase) / rate_hz
    fec = np.clip((times_s - 5.2) * 2.0, 0.0, 0.9)
    (found,) = analyse_conditioning(times_s, fec, [Trial("1", TrialType.CS_ONLY, 5.0)]).trials
    expected = (5.45 - 0.021 - 5.2) * 2.0
    # At worst the last sample lies one frame before the US.
    assert found.measures.cr_amplitude == pytest.approx(expected, abs=0.02 + 0.5 / rate_hz)


# --- laws -------------------------------------------------------------------------------------

LAW_SESSION = draw_conditioning_session(11, 60, ConditioningDesign(n_trials=8))


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


@pytest.mark.parametrize(
    "changes",
    [
        {"baseline_ms": (0.0, -500.0)},
        {"cr_window_ms": (-40.0, 20.0)},
        {"largest_missing_share": 1.5},
        {"reject_rules": ("no-baseline",)},
    ],
)
def test_unusable_settings_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ConditioningError, match=next(iter(changes))):
        ConditioningSettings(**changes)
