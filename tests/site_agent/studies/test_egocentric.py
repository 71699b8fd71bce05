"""The study of personalised rounds: the separation of its data, its rates, and its verdict."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.errors import AggregatorError
from site_agent.datasets.egocentric import ClipSamples
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.settings import ClipSettings
from site_agent.errors import InvalidInputError
from site_agent.settings import with_values
from site_agent.studies.egocentric import draw_world, load_samples, open_data, write_samples
from site_agent.studies.engine import Conduct, hold_study
from site_agent.studies.protocol_file import read_protocol
from site_agent.work import no_progress
from tests.site_agent.datasets.other_layouts import write_layout
from tests.site_agent.studies.drawn_results import results_of, table_of

PROTOCOL = read_protocol("egocentric")
SMALL: dict[str, Any] = {
    "methods": ["local", "fedavg", "fedcpf"], "seeds": 1, "people": 2, "videos": 5,
    "heterogeneities": [1.0], "first_people": 2, "first_epochs": 1, "seconds": 2.0, "rounds": 1,
    "rhos": [], "rates": [0.001], "accs": [], "eye_people": 2, "eye_frames": 24, "eye_rounds": 1,
    "eye_rates": [0.02],
}  # fmt: skip


def test_each_method_has_equally_many_candidates_and_the_sweeps_change_one_option() -> None:
    sizes = {"rates": [0.001, 0.002], "heterogeneities": [0.0, 1.0], "rhos": [0.1], "accs": [0.2]}
    settings = with_values(PROTOCOL.settings, {**SMALL, **sizes, "seeds": 2})
    steps = PROTOCOL.steps(None, settings)
    tuned = [step for step in steps if step.name == "tuned"]
    assert {(step.factors["tuning_world"], step.factors["tuning_seed"]) for step in tuned} == {
        ("h=1", 1000)
    }
    assert len(tuned) == 3 * 2
    assert not [step for step in steps if step.name == "eyes_tuned"], "eyes have one candidate"
    assert sum(step.name in ("clips", "eyes") for step in steps) == 3 * 3 * 2
    swept = [step for step in steps if step.name.startswith("swept")]
    assert [(step.factors["world"], step.factors.get("rho"), step.factors.get("acc"))
            for step in swept] == 2 * [("h=1", 0.1, None)] + 2 * [("h=1", None, 0.2)]  # fmt: skip
    by_key = {step.key: step for step in steps}
    clips = next(step for step in steps if step.name == "clips")
    needed = {by_key[key].name: by_key[key].factors for key in clips.needs}
    assert set(needed) == {"first", "drawn", "tuned"}
    blobs = PROTOCOL.steps(None, with_values(settings, {"worlds": ["blobs"]}))
    assert not [step for step in blobs if step.name == "first"], "their methods begin with new ones"
    assert needed["tuned"]["method"] == clips.factors["method"]


@pytest.mark.parametrize("world", ["h=1", "blobs h=1", "eyes", "turned h=1"])
def test_training_validation_and_test_have_no_video_or_session_in_common(
    world: str, tmp_path: Path
) -> None:
    settings = with_values(PROTOCOL.settings, SMALL)
    write_samples(draw_world(world, 0, settings, no_progress), tmp_path / "world.npz")
    for parts in load_samples(tmp_path / "world.npz").values():
        groups = [
            set((samples.video if isinstance(samples, ClipSamples) else samples.session).tolist())
            for samples in parts.values()
        ]
        assert all(groups)
        assert not groups[0] & groups[1]
        assert not groups[0] & groups[2]
        assert not groups[1] & groups[2]


def test_persons_of_the_worlds_of_preferences_differ_in_what_a_network_can_learn() -> None:
    settings = with_values(PROTOCOL.settings, {**SMALL, "people": 2})
    brightness = {}
    for amount in (0, 1):
        clips = draw_world(f"blobs h={amount}", 0, settings, no_progress)
        assert isinstance(clips, ClipSamples)
        index = np.clip((clips.truth * clips.frames.shape[2]).astype(int), 0, 47)
        rows = np.indices(clips.kind.shape)
        looked = clips.frames[rows[0], rows[1], index[..., 1], index[..., 0]].mean(-1)
        brightness[amount] = [np.median(looked[clips.person == name]) for name in ("P01", "P02")]
    assert min(brightness[0]) > 200
    assert brightness[1][0] > 200
    assert brightness[1][1] < 50
    straight, turned = (
        draw_world(f"turned h={amount}", 0, settings, no_progress) for amount in (0, 1)
    )
    assert isinstance(straight, GazeSamples)
    assert isinstance(turned, GazeSamples)
    for name, sign in zip(np.unique(straight.person), (1, -1), strict=True):
        before = straight.gaze[straight.person == name]
        after = turned.gaze[turned.person == name]
        middle = before.mean(axis=0)
        assert after - middle == pytest.approx(sign * (before - middle))


def test_methods_may_have_options_of_their_own(tmp_path: Path) -> None:
    protocol = read_protocol("preferences")
    assert any("relative=network" in method for method in protocol.settings.methods)  # type: ignore[attr-defined]
    settings = with_values(
        protocol.quick, {**SMALL, "methods": ["fedcpf rho=0.1"], "worlds": ["turned"]}
    )
    outcome = hold_study(protocol, tmp_path, None, settings, Conduct(workers="1"))
    assert not outcome.failed
    assert "turned h=1,fedcpf rho=0.1" in (tmp_path / "methods.csv").read_text(encoding="utf-8")
    with pytest.raises(AggregatorError, match="fedcfp"):
        protocol.steps(None, with_values(settings, {"methods": ["fedcfp"]}))


def test_a_study_is_conducted(tmp_path: Path) -> None:
    settings = with_values(PROTOCOL.settings, {**SMALL, "rates": [0.001, 0.002]})
    outcome = hold_study(PROTOCOL, tmp_path, None, settings, Conduct(workers="1"))
    assert not outcome.failed
    assert outcome.kept == 0
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert text.startswith("h=1: fedcpf is the best personalised method (F1 ")
    assert {path.name for path in outcome.files} >= {"methods.csv", "persons.csv", "rounds.png"}


@pytest.mark.slow
def test_two_data_sets_make_one_table_with_sites_of_sessions(tmp_path: Path) -> None:
    drawing = ClipSettings(persons=2, videos=5, seconds=2.0)
    for layout in ("egtea", "ego4d"):
        write_layout(tmp_path / layout, drawing, layout)
    datasets = open_data([tmp_path / "egtea", tmp_path / "ego4d"])
    chosen = {**SMALL, "methods": ["local", "fedper"], "site_count": 2, "every": 6}
    settings = with_values(PROTOCOL.settings, chosen)
    outcome = hold_study(PROTOCOL, tmp_path / "study", datasets, settings, Conduct(workers="1"))
    assert not outcome.failed
    lines = (tmp_path / "study" / "methods.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [
        [world, method] for world in ("ego4d", "egtea") for method in ("local", "fedper")
    ]
    persons = (tmp_path / "study" / "persons.csv").read_text(encoding="utf-8")
    assert {line.split(",")[4] for line in persons.splitlines()[1:]} == {"site-1", "site-2"}
    with pytest.raises(InvalidInputError, match="give one"):
        open_data([tmp_path / "egtea", tmp_path / "egtea"])


def rows_of(gain: float) -> list[dict[str, Any]]:
    draw = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for method in ("local", "fedavg", "fedcpf", "cpf-random"):
        for seed in range(3):
            easy = np.random.default_rng(seed).normal(0.4, 0.1, 5)
            scores = easy + gain * (method == "fedcpf") + draw.normal(0, 0.01, 5)
            rows += [
                {
                    "world": "h=1", "method": method, "seed": seed, "person": f"p{number}",
                    "rate": 0.001, "begun": float(easy[number]), "score": float(score),
                    "validation": float(scores.mean()),
                }
                for number, score in enumerate(scores)
            ]  # fmt: skip
    return rows


def test_the_verdict_rests_on_paired_intervals() -> None:
    results = results_of("egocentric", clips=rows_of(0.05))
    findings = results.findings()
    tests = "SELECT pairs, difference, p_of_t_test FROM paired WHERE method = 'fedcpf' AND less = "
    _, [(pairs, difference, p_value)] = results.query(f"{tests}'fedavg'")
    assert (pairs, float(p_value) < 1e-6) == (15, True)
    assert difference == pytest.approx(0.05, abs=0.01)
    assert findings[0].startswith("h=1: fedcpf is the best personalised method")
    assert "better than fedavg" in findings[0]
    assert "better than local" in findings[0]
    assert "fedcpf is better than the network that all begin with" in findings[1]
    assert "fedcpf is better than cpf-random" in findings[2]
    equal = results_of("egocentric", clips=rows_of(0.0)).findings()
    assert "not different from fedavg" in equal[0]


def test_one_pair_has_no_p_value() -> None:
    one = [row for row in rows_of(0.05) if (row["seed"], row["person"]) == (0, "p0")]
    paired = table_of(results_of("egocentric", clips=one), "paired")
    assert {(row["pairs"], row["p_of_t_test"]) for row in paired} == {(1, None)}


def test_the_smaller_error_of_eyes_is_the_better() -> None:
    rows = [{**row, "world": "eyes"} for row in rows_of(-0.05)]
    (verdict, *_) = results_of("egocentric", eyes=rows).findings()
    assert verdict.startswith("eyes: fedcpf is the best personalised method (error ")
    assert "degrees); better than fedavg" in verdict
