"""Trials of a session from files, and recordings made of trials."""

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.synthetic.conditioning import (
    ConditioningDesign,
    SyntheticConditioning,
    draw_conditioning_session,
)
from site_agent.datasets.trials import Trial, TrialType
from site_agent.errors import TableFileError
from site_agent.eyeblink.blinks.finding import BlinkSettings
from site_agent.eyeblink.conditioning import ConditioningSettings, CrRule, Rejection
from site_agent.eyeblink.conditioning.analysis import ConditioningResult, analyse_conditioning
from site_agent.eyeblink.conditioning.summary import trial_rows
from site_agent.eyeblink.conditioning.trials import TrialTiming, TtlSettings
from site_agent.eyeblink.openness.signal import CalibrationSettings
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings
from tests.site_agent.eyeblink.drawn_traces import Float64, rows_of, write_trace


@pytest.fixture(scope="module")
def drawn() -> SyntheticConditioning:
    return draw_conditioning_session(5, 60.0, ConditioningDesign(n_trials=12))


@pytest.fixture
def trace_file(drawn: SyntheticConditioning, tmp_path: Path) -> Path:
    return write_trace(tmp_path / "ear.csv", drawn.timestamps_s, drawn.ear)


def number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"


def write_list(path: Path, trials: Iterable[Trial], late_s: float = 0.0) -> Path:
    lines = [
        f"{trial.trial},{trial.trial_type},{number(trial.cs_onset_s + late_s)},"
        f"{number(trial.us_onset_s + late_s)}"
        for trial in trials
    ]
    path.write_text("trial,trial_type,cs_onset_s,us_onset_s\n" + "\n".join(lines) + "\n")
    return path


def write_log(path: Path, trials: Iterable[Trial]) -> Path:
    pulses = []
    for trial in trials:
        if math.isfinite(trial.cs_onset_s):
            pulses.append((trial.cs_onset_s, "tone"))
        if trial.trial_type != "cs_only":
            pulses.append((trial.us_onset_s, "puff"))
    lines = [f"{time_s:.6f},{name},1\n{time_s + 0.02:.6f},{name},0" for time_s, name in pulses]
    path.write_text("time_s,channel,state\n" + "\n".join(lines) + "\n")
    return path


def onsets_of(path: Path) -> list[float]:
    return [float(row["cs_onset_s"] or "nan") for row in rows_of(path)]


def test_a_list_and_a_log_give_the_same_trials(
    drawn: SyntheticConditioning, trace_file: Path, tmp_path: Path
) -> None:
    listed = write_list(tmp_path / "trials.csv", drawn.trials)
    log = write_log(tmp_path / "log.csv", drawn.trials)
    ttl = TrialTiming(ttl=TtlSettings(cs_channel="tone", us_channel="puff"))
    one = run_blink_analysis(TraceFile(trace_file), out_dir=tmp_path / "one", trials=listed)
    settings = BlinkAnalysisSettings(trial_timing=ttl)
    two = run_blink_analysis(
        TraceFile(trace_file), out_dir=tmp_path / "two", trials=log, settings=settings
    )
    assert one.conditioning is not None
    assert two.conditioning is not None
    assert one.conditioning.n_trials == len(drawn.trials)
    assert one.conditioning.n_cr == two.conditioning.n_cr
    assert onsets_of(one.files["trials"]) == pytest.approx(
        onsets_of(two.files["trials"]), nan_ok=True
    )
    provenance = json.loads(two.files["provenance"].read_text(encoding="utf-8"))
    assert provenance["settings"]["trial_timing"]["ttl"]["cs_channel"] == "tone"
    assert [source["role"] for source in provenance["sources"]] == ["trace", "trials"]
    assert len(provenance["sources"][1]["sha256"]) == 64


def test_latency(drawn: SyntheticConditioning, trace_file: Path, tmp_path: Path) -> None:
    listed = write_list(tmp_path / "trials.csv", drawn.trials, late_s=0.030)
    settings = BlinkAnalysisSettings(trial_timing=TrialTiming(latency_ms=-30.0))
    summary = run_blink_analysis(
        TraceFile(trace_file), out_dir=tmp_path / "out", trials=listed, settings=settings
    )
    expected = [trial.cs_onset_s for trial in drawn.trials]
    assert onsets_of(summary.files["trials"]) == pytest.approx(expected, abs=1e-6, nan_ok=True)


def test_trials_on_another_clock_are_doubted(
    drawn: SyntheticConditioning, trace_file: Path, tmp_path: Path
) -> None:
    for late_s, doubted in ((0.0, False), (3.1, True), (0.1, True), (0.2, True)):
        listed = write_list(tmp_path / "trials.csv", drawn.trials, late_s=late_s)
        session = run_blink_analysis(TraceFile(trace_file), out_dir=tmp_path / "out", trials=listed)
        assert ("did the puff reach the eye" in " ".join(session.warnings)) == doubted


@pytest.mark.parametrize(("trained", "ending"), [(10, None), (16, "before the US comes?")])
def test_crs_that_close_the_lids_before_the_us_are_told_from_a_late_list(
    trained: int, ending: str | None
) -> None:
    times_s, trials = np.arange(0.0, 330.0, 1 / RATE_HZ), []
    fec = np.random.default_rng(2).normal(0.0, 0.01, len(times_s))
    for number in range(16):
        cs_s = 20.0 * number + 5.0
        height = 0.95 if number < trained else 0.0
        cr = np.interp(times_s - cs_s, [0.15, CS_US_S, CS_US_S + 0.3], [0.0, height, 0.0])
        puff = np.interp(times_s - cs_s - CS_US_S, [0.03, 0.09, 0.5], [0.0, 0.8, 0.0])
        fec += np.maximum(cr, puff)
        trials.append(Trial(str(number + 1), TrialType.PAIRED, cs_s, cs_s + CS_US_S))
    doubts = [remark for remark in analyse((times_s, fec, trials)).remarks if "puff" in remark]
    assert len(doubts) == (ending is not None)
    assert all(doubt.endswith(ending or "") for doubt in doubts)


def test_date_times_put_trace_and_trials_on_one_clock(
    drawn: SyntheticConditioning, tmp_path: Path
) -> None:
    begin = datetime(2026, 5, 6, 14, 30)

    def moment(at_s: float) -> str:
        return "" if math.isnan(at_s) else str(begin + timedelta(seconds=at_s))

    rows = zip(drawn.timestamps_s, drawn.ear, strict=True)
    lines = ["timestamp_s,ear", *(f"{moment(at)},{ear:.6f}" for at, ear in rows)]
    (tmp_path / "ear.csv").write_text("\n".join(lines))
    onsets = [
        f"{trial.trial},{moment(trial.cs_onset_s)[11:]},{moment(trial.us_onset_s)[11:]}"
        for trial in drawn.trials
    ]
    listed = tmp_path / "trials.csv"
    listed.write_text("\n".join(["trial,cs_onset_s,us_onset_s", *onsets]))
    session = run_blink_analysis(
        TraceFile(tmp_path / "ear.csv"), out_dir=tmp_path / "out", trials=listed
    )
    expected = [14.5 * 3600 + trial.cs_onset_s for trial in drawn.trials]
    assert onsets_of(session.files["trials"]) == pytest.approx(expected, abs=1e-5, nan_ok=True)
    assert session.conditioning is not None
    assert session.conditioning.n_valid > 8


@pytest.mark.slow
def test_a_puff_that_never_came_says_nothing_of_the_closed_eye(tmp_path: Path) -> None:
    # Two puffs close the eye to 0.10; at five probes of the CS alone it stays open.
    puffs_s, probes_s = (5.0, 10.0), (15.0, 20.0, 25.0, 30.0, 35.0)
    ear = [0.10 if any(at < n / 50 < at + 0.2 for at in puffs_s) else 0.30 for n in range(2000)]
    rows = "\n".join(f"{n / 50},{value}" for n, value in enumerate(ear))
    (tmp_path / "ear.csv").write_text(f"timestamp_s,ear\n{rows}\n")
    lines = [f"paired,{at - 0.45},{at}" for at in puffs_s]
    lines += [f"cs_only,{at - 0.45},{at}" for at in probes_s]
    (tmp_path / "trials.csv").write_text("\n".join(["trial_type,cs_onset_s,us_onset_s", *lines]))
    by_puffs = BlinkSettings(calibration=CalibrationSettings(closed_from="air-puffs"))
    summary = run_blink_analysis(
        TraceFile(tmp_path / "ear.csv"),
        out_dir=tmp_path / "out",
        trials=tmp_path / "trials.csv",
        settings=BlinkAnalysisSettings(blinks=by_puffs),
    )
    assert summary.closed_ear == pytest.approx(0.10, abs=0.02)
    assert summary.calibrated


def test_a_bad_list_is_found_before_the_analysis(trace_file: Path, tmp_path: Path) -> None:
    listed = tmp_path / "trials.csv"
    listed.write_text("trial,trial_type,cs_onset_s,us_onset_s\n1,paired,,\n")
    with pytest.raises(TableFileError, match="line 2"):
        run_blink_analysis(TraceFile(trace_file), out_dir=tmp_path / "out", trials=listed)
    assert not (tmp_path / "out").exists()


def test_an_existing_folder_keeps_files_of_others_and_loses_those_of_before(
    trace_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name in ("notes.txt", "trials.csv"):
        (out / name).write_text("old")
    run_blink_analysis(TraceFile(trace_file), out_dir=out)
    assert (out / "notes.txt").read_text() == "old"
    assert not (out / "trials.csv").exists(), "this analysis had no trials"


def test_a_recording_too_short_for_trials(tmp_path: Path) -> None:
    (tmp_path / "ear.csv").write_text("timestamp_s,ear\n0,0.3\n")
    (tmp_path / "trials.csv").write_text("trial,cs_onset_s\n1,0.5\n")
    summary = run_blink_analysis(
        TraceFile(tmp_path / "ear.csv"), out_dir=tmp_path / "out", trials=tmp_path / "trials.csv"
    )
    assert any("could not be measured" in warning for warning in summary.warnings)
    assert "trials" not in summary.files


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


def test_without_a_spread_of_the_baseline_a_height_of_0_is_no_response() -> None:
    by_spread = {"cr_rule": CrRule.BASELINE_SD, "cr_threshold": 3.0}
    one_sample = analyse(draw_trials(6, 3), least_baseline_samples=1, **by_spread)
    assert {trial.cr for trial in one_sample.trials} == {None}
    assert math.isnan(one_sample.summary.cr_percent)
    result = analyse(draw_trials(12, 4, before=8, noise_fec=0.0), **by_spread)
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
    usual = analyse(draw_trials(20, 8, before=8))
    assert (usual.remarks, usual.summary.withheld) == ((), False)


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
