"""The study of personalised rounds: the separation of its data, and its report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from site_agent.studies.egocentric import (
    EgocentricStudySettings,
    Run,
    choose_rates,
    first_rates,
    plan_runs,
    plan_tuning,
)
from site_agent.studies.egocentric.conducting import conduct_egocentric_study
from site_agent.studies.egocentric.one_run import draw_world, load_samples, write_samples
from site_agent.studies.egocentric.report import difference, write_report
from site_agent.studies.runs import Conduct
from site_agent.work import no_progress

SMALL = EgocentricStudySettings(
    methods=("local", "fedavg", "fedcpf"), seeds=1, people=2, videos=5, heterogeneities=(1.0,),
    first_people=2, first_epochs=1, seconds=3.0, held_out=0.2, rounds=1, epochs=1, rhos=(),
    rates=(0.001,), accs=(), eye_people=2, eye_frames=24, eye_rounds=1, eye_rates=(0.02,),
)  # fmt: skip


def test_each_method_has_equally_many_candidates_and_the_sweeps_change_one_option() -> None:
    settings = replace(SMALL, rates=(0.001, 0.002), rhos=(0.1,), accs=(0.2,), seeds=2)
    tuning = plan_tuning(["h=0", "h=1", "eyes"], settings)
    assert {run.world for run in tuning} == {"h=1"}, "eyes have one candidate"
    several = replace(settings, eye_rates=(0.01, 0.02))
    assert {run.world for run in plan_tuning(["h=0", "eyes"], several)} == {"h=0", "eyes"}
    assert all(run.seed == 1000 for run in tuning)
    results = {
        run.key: {"validation": {"a": run.rate * (1 if run.method == "fedavg" else -1)}}
        for run in tuning
    }
    rates = first_rates(settings) | choose_rates(tuning, results)
    assert rates[False, "fedavg"] == 0.002
    assert rates[False, "local"] == 0.001
    assert rates[True, "fedavg"] == 0.02
    runs = plan_runs(["h=0", "h=1", "eyes"], settings, rates)
    assert len(runs) == 3 * 3 * 2 + 2 * 2
    swept = [run for run in runs if run.options]
    assert {run.options for run in swept} == {(("rho", 0.1),), (("acc", 0.2),)}
    assert {run.world for run in swept} == {"h=1"}
    assert len({run.key for run in (*tuning, *runs)}) == len(tuning) + len(runs)


@pytest.mark.parametrize("world", ["h=1", "eyes"])
def test_training_validation_and_test_have_no_video_or_session_in_common(
    world: str, tmp_path: Path
) -> None:
    write_samples(draw_world(world, 0, SMALL, no_progress), tmp_path / "world.npz")
    for parts in load_samples(tmp_path / "world.npz").values():
        groups = [
            set((samples.session if world == "eyes" else samples.video).tolist())
            for samples in parts.values()
        ]
        assert all(groups)
        assert not groups[0] & groups[1]
        assert not groups[0] & groups[2]
        assert not groups[1] & groups[2]


def test_a_study_is_conducted(tmp_path: Path) -> None:
    outcome = conduct_egocentric_study(tmp_path, None, SMALL, Conduct(workers=1))
    assert not outcome.failed
    assert outcome.kept == 0
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert text.startswith("h=1: fedcpf is the best personalised method (F1 ")
    assert {path.name for path in outcome.files} >= {
        "methods.csv",
        "persons.csv",
        "rounds-eyes.png",
    }


def _results(gain: float) -> tuple[list[Run], dict[str, Any]]:
    draw = np.random.default_rng(0)
    runs, results = [], {}
    for method in ("local", "fedavg", "fedcpf", "cpf-random"):
        for seed in range(3):
            run = Run("h=1", method, 0.001, seed)
            easy = np.random.default_rng(seed).normal(0.4, 0.1, 5)
            errors = easy + gain * (method == "fedcpf") + draw.normal(0, 0.01, 5)
            runs.append(run)
            results[run.key] = {
                "begun": {f"p{number}": float(value) for number, value in enumerate(easy)},
                "scores": {f"p{number}": float(value) for number, value in enumerate(errors)},
                "validation": {"p0": float(errors.mean())},
                "details": {}, "share": {}, "overlap": None, "curve": [[1, float(errors.mean())]],
            }  # fmt: skip
    return runs, results


def test_the_verdict_rests_on_paired_intervals(tmp_path: Path) -> None:
    _, findings = write_report(tmp_path, *_results(0.05), ["poolctl"])
    assert findings[0].startswith("h=1: fedcpf is the best personalised method")
    assert "better than fedavg" in findings[0]
    assert "better than local" in findings[0]
    assert "fedcpf is better than the network that all begin with" in findings[1]
    assert "fedcpf is better than cpf-random" in findings[2]
    _, equal = write_report(tmp_path, *_results(0.0), ["poolctl"])
    assert "not different from fedavg" in equal[0]
    mean, low, high = difference({1: 2.0, 2: 3.0}, {1: 1.0, 2: 2.0, 3: 9.0})
    assert mean == low == high == 1.0
