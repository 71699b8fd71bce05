"""Trials of a session from files, through the whole analysis."""

import csv
import json
import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from site_agent.datasets.synthetic.conditioning import (
    ConditioningDesign,
    SyntheticConditioning,
    draw_conditioning_session,
)
from site_agent.datasets.trials import Trial
from site_agent.errors import TableFileError
from site_agent.eyeblink.blinks.finding import BlinkSettings
from site_agent.eyeblink.conditioning.trials import TrialTiming, TtlSettings
from site_agent.eyeblink.openness.signal import CalibrationSettings
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings


@pytest.fixture(scope="module")
def drawn() -> SyntheticConditioning:
    return draw_conditioning_session(5, 60.0, ConditioningDesign(n_trials=12))


@pytest.fixture
def trace_file(drawn: SyntheticConditioning, tmp_path: Path) -> Path:
    path = tmp_path / "ear.csv"
    rows = zip(drawn.timestamps_s, drawn.ear, strict=True)
    lines = [f"{time_s:.6f},{ear:.6f}" for time_s, ear in rows]
    path.write_text("timestamp_s,ear\n" + "\n".join(lines) + "\n")
    return path


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
    with path.open(encoding="utf-8", newline="") as file:
        return [float(row["cs_onset_s"] or "nan") for row in csv.DictReader(file)]


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
    for late_s, doubted in ((0.0, False), (3.1, True)):
        listed = write_list(tmp_path / "trials.csv", drawn.trials, late_s=late_s)
        session = run_blink_analysis(
            TraceFile(trace_file), out_dir=tmp_path / f"out-{doubted}", trials=listed
        )
        assert ("did the puff reach the eye" in " ".join(session.warnings)) == doubted


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
    listed.write_text("trial,trial_type,cs_onset_s\n1,paired,\n")
    with pytest.raises(TableFileError, match="line 2"):
        run_blink_analysis(TraceFile(trace_file), out_dir=tmp_path / "out", trials=listed)
    assert not (tmp_path / "out").exists()


def test_a_recording_too_short_for_trials(tmp_path: Path) -> None:
    (tmp_path / "ear.csv").write_text("timestamp_s,ear\n0,0.3\n")
    (tmp_path / "trials.csv").write_text("trial,cs_onset_s\n1,0.5\n")
    summary = run_blink_analysis(
        TraceFile(tmp_path / "ear.csv"), out_dir=tmp_path / "out", trials=tmp_path / "trials.csv"
    )
    assert any("could not be measured" in warning for warning in summary.warnings)
    assert "trials" not in summary.files
