"""Hostile updates, and the plans of federated runs."""

from pathlib import Path

import numpy as np
import pytest

from aggregators.models import NetworkContribution
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.federated.local_training import train_contribution
from site_agent.networks.modules import new_network
from site_agent.studies.eyes import StudyJob
from site_agent.studies.gaze.one_run import attack_contribution, federation_plan, rounds_of
from site_agent.studies.gaze.protocol import plan_runs
from site_agent.studies.gaze.settings import make_settings


@pytest.fixture(scope="module")
def update() -> NetworkContribution:
    from aggregators.methods.round_options import LocalTraining

    samples = render_person(RenderSettings(persons=1, frames_per_person=8), 0)
    return train_contribution(
        new_network("gaze-lenet"),
        "0" * 64,
        samples,
        LocalTraining(),
        site="a",
        round_number=1,
        guarded=False,
    )


def test_hostile_updates_are_what_they_are_called(update: NetworkContribution) -> None:
    random = np.random.default_rng(0)
    honest = update.network.tensors["conv2.weight"]
    assert np.array_equal(
        attack_contribution(update, "sign-flip", random).network.tensors["conv2.weight"], -honest
    )
    large = attack_contribution(update, "x50", random).network.tensors["conv2.weight"]
    assert np.allclose(large, 50 * honest, rtol=1e-6)
    noise = attack_contribution(update, "noise", random).network.tensors["conv2.weight"]
    assert noise.std() == pytest.approx(10 * honest.std(), rel=0.05)
    assert abs(np.corrcoef(noise.ravel(), honest.ravel())[0, 1]) < 0.03
    assert attack_contribution(update, "noise", random).samples == update.samples


def test_plans_are_those_of_the_paper(tmp_path: Path) -> None:
    settings = make_settings(quick=True)
    runs = plan_runs([f"p{number:02d}" for number in range(15)], settings)
    plans = {
        (run.protocol, run.method): federation_plan(StudyJob(run, tmp_path, settings, tmp_path))
        for run in runs
        if run.protocol in ("person-independent", "hostile") and run.method != "data-centre"
    }
    adaptive = plans["person-independent", "adaptive"]
    assert adaptive.method == "fedadam"
    assert adaptive.method_options["root"] == "sqrt(v+tau^2)"
    assert adaptive.method_options["mean"] == "sites"
    assert adaptive.method_options["beta1"] == adaptive.method_options["beta2"]
    assert (adaptive.cohort, adaptive.training.momentum) == (0.8, 0.9)
    assert adaptive.training.learning_rate_decay == 0.1
    assert plans["hostile", "trimmed-mean"].method_options["trim"] == 0.3
    assert plans["hostile", "krum"].method_options["hostile"] == 3
    assert plans["hostile", "krum"].cohort == 1.0
    for run in runs:
        passes = rounds_of(run, settings) * run.training.epochs
        alone = run.protocol == "individual"
        assert passes == (settings.individual_passes if alone else settings.passes)
