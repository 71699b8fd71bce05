"""Differential privacy of rounds: the noise, the basis of its size, and the counted releases."""

import itertools
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from site_agent.attacks.gradients import SampleGradients
from site_agent.attacks.leaks import leak_of_network
from site_agent.attacks.separation import separation
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import ContributionWithheldError, InvalidInputError
from site_agent.federated.local_training import Privacy, count_honest, train_at_site
from site_agent.federated.plan import make_plan
from site_agent.federated.private_training import (
    History,
    PrivacyLedger,
    PrivacyPlan,
    epsilon_of,
    find_noise_multiplier,
    noise_words,
    plan_privacy,
    train_privately,
    watch_samples,
)
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.training.gaze.loop import to_tensors
from tests.conftest import PROJECT_ROOT
from tests.site_agent.federated.small_sites import samples_at

pytestmark = pytest.mark.usefixtures("small_lenet")

SETTINGS = LocalTraining(batch_size=8, dp_epsilon=3.0, dp_rounds=5)


def norm_of(network: StateDict) -> float:
    return float(np.sqrt(sum(np.square(tensor).sum() for tensor in network.tensors.values())))


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_a_series_spends_nearly_all_of_its_epsilon(epsilon: float) -> None:
    plan = plan_privacy(SETTINGS.model_copy(update={"dp_epsilon": epsilon}), 160)
    assert (plan.sample_rate, plan.steps) == (8 / 160, 20)
    spent = epsilon_of((plan.release,) * 5, SETTINGS.dp_delta)
    assert spent == epsilon_of(((plan.noise_multiplier, 0.05, 100),), SETTINGS.dp_delta)
    assert 0.95 * epsilon < spent <= epsilon


RELEASES: dict[float, History] = {
    4.6882: ((1.0, 0.1, 40),),
    3.1246: ((3.0, 1.0, 5),),
    0.16: ((20.0, 1.0, 1),),
    6.0639: ((1.0, 0.1, 40), (2.0, 1.0, 3)),
    9.6937: ((0.5, 0.02, 100),),
    0.3087: ((60.0, 0.1, 3000),),
}
"""By the epsilon that dp-accounting 0.6 finds at a delta of 1e-5, by loss distributions."""


@pytest.mark.parametrize("expected", RELEASES)
def test_the_epsilon_is_just_above_that_of_dp_accounting(expected: float) -> None:
    assert expected <= epsilon_of(RELEASES[expected], 1e-5) <= expected + 0.02


@pytest.mark.parametrize("layers", ["last", "all"])
@pytest.mark.parametrize("unit", ["sample", "person"])
def test_one_sample_or_person_moves_the_sum_by_its_clipped_part_at_most(
    unit: str, layers: str
) -> None:
    """Without noise, with all drawn: the sums with and without it differ by `dp_clip` at most."""
    both = GazeSamples.join(
        [samples_at(1, 16), replace(samples_at(2, 16), person=np.full(16, "p09"))]
    )
    # Large steps of samples, so that rounding is small compared with them.
    rate = 0.001 if unit == "person" else 1.0
    settings = LocalTraining(
        batch_size=2, learning_rate=rate, momentum=0.0, dp_epsilon=1.0, dp_clip=0.01, dp_unit=unit,
        dp_layers=layers,
    )  # fmt: skip
    quiet = PrivacyPlan(0.0, 1.0, 1)
    base = new_network("gaze-lenet", 3)

    def sum_of(samples: GazeSamples) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        module = to_module(base)
        units = train_privately(
            module, to_tensors(samples), samples, settings, quiet, round_number=1, seed=0
        )
        changes = [
            (item.detach().double() - torch.from_numpy(np.array(base.tensors[name])).double())
            for name, item in module.state_dict().items()
        ]
        # A person's update is clipped whole, and a sample's gradient before the step.
        scale = units if unit == "person" else units / settings.learning_rate
        return torch.cat([change.flatten() for change in changes]).numpy() * scale

    whole, less = sum_of(both), sum_of(both[1:] if unit == "sample" else both[both.person != "p09"])
    moved = float(np.linalg.norm(whole - less))
    assert 0 < moved <= 0.01 * 1.001
    loud = replace(both, gaze=np.where(np.arange(32)[:, None] == 0, 1000.0, both.gaze))
    assert float(np.linalg.norm(sum_of(loud) - less)) <= 0.021, "however wrong its label"


def test_the_noise_has_the_size_that_was_planned() -> None:
    samples, base = samples_at(1, 40), new_network("gaze-lenet", 3)
    settings = LocalTraining(
        batch_size=5, learning_rate=1.0, momentum=0.0, dp_epsilon=1.0, dp_clip=1e-6,
        dp_unit="sample", dp_layers="all",
    )  # fmt: skip
    module, plan = to_module(base), PrivacyPlan(2.0, 5 / 40, 1)
    train_privately(module, to_tensors(samples), samples, settings, plan, round_number=1, seed=4)
    change = module.state_dict()["fc1.weight"] - torch.from_numpy(
        np.array(base.tensors["fc1.weight"])
    )
    assert float(change.std()) == pytest.approx(2.0 * 1e-6 / 5, rel=0.02)


def test_each_lab_adds_its_share_of_the_noise_for_persons() -> None:
    by_person = SETTINGS.model_copy(update={"dp_unit": "person"})
    alone, shared = plan_privacy(by_person, 100), plan_privacy(by_person, 100, honest_labs=4)
    assert shared.noise_share == pytest.approx(alone.noise_share / 2)
    assert shared.release == alone.release, "what the sum spends"
    assert plan_privacy(SETTINGS, 100, honest_labs=4).noise_share == 1.0


def test_no_more_members_are_found_within_a_session_than_epsilon_allows() -> None:
    # A coin decides which frames of one person train; the attacker has all frames and labels.
    samples, base = samples_at(1, 60), new_network("gaze-lenet", 3)
    settings = LocalTraining(batch_size=8, momentum=0.0, dp_epsilon=1.0)
    planned = plan_privacy(settings, 30)
    changes = []
    for plan in (planned, replace(planned, noise_multiplier=0.0)):
        gradients, coins = SampleGradients(samples), np.random.default_rng(5)
        scores, members = [], []
        for number in range(4):
            trains = coins.random(len(samples)) < 0.5
            trained, module = samples[trains], to_module(base)
            train_privately(
                module, to_tensors(trained), trained, settings, plan, round_number=1, seed=number
            )
            leak = leak_of_network(base, from_module(module, "gaze-lenet"))
            scores.append(gradients.scores(leak)["gradient regression"])
            members.append(trains)
        apart = separation(np.concatenate(scores), np.concatenate(members), resamples=0)
        changes.append(apart.true_positives_at_1_percent)
    assert changes[0] <= np.e * 0.01 + 0.05, "0.05 for chance, with about 120 of each"
    assert changes[1] > 0.5, "the control, without noise"


@pytest.mark.parametrize("unit", ["sample", "person"])
def test_by_default_the_last_layer_alone_learns_and_gets_noise(unit: str) -> None:
    settings = SETTINGS.model_copy(update={"dp_unit": unit})
    made = train_at_site(
        new_network("gaze-lenet", 3), "ab" * 32, samples_at(1, 16), settings,
        site="site-a", round_number=1,
    ).contribution  # fmt: skip
    changed = {name for name, tensor in made.network.tensors.items() if tensor.any()}
    assert changed == {"fc2.weight", "fc2.bias"}
    assert all(tensor.all() for name, tensor in made.network.tensors.items() if name in changed)


def test_a_user_hears_how_much_noise_a_result_has_before_anything_is_sent() -> None:
    few = LocalTraining(dp_epsilon=8.0, dp_unit="person", dp_rounds=3)
    sentence = noise_words(few, 1, 1006, 15)
    assert sentence.startswith("with 1 person at each of 15 sites and epsilon 8, the noise in the ")
    assert "is 4.9 times the largest change" in sentence
    assert "is 1.9 times" in noise_words(few, 1, 1006, 15, honest_labs=7)
    everything = few.model_copy(update={"dp_layers": "all"})
    sentence = noise_words(everything, 1, 1_827_076, 15)
    assert sentence.startswith("expect nothing to be learned: with 1 person at each of 15 sites")
    assert "take dp_layers=last, dp_unit=sample, a larger epsilon or more persons" in sentence


def test_a_series_is_covered_as_a_whole() -> None:
    plan = make_plan("fedavg", {"dp_epsilon": 3.0}, rounds=7)
    assert plan.training.dp_rounds == 7
    assert "epsilon 3 at delta 1e-05 over 7 rounds" in plan.training.protection
    assert make_plan("fedavg", {}, rounds=7).training.protection == "no differential privacy"
    one = find_noise_multiplier(3.0, 1e-5, 0.1, 10)
    assert find_noise_multiplier(3.0, 1e-5, 0.1, 70) > one


@pytest.mark.filterwarnings("ignore:Optimal order")
def test_less_noise_is_asked_for_than_by_renyi() -> None:
    from opacus.accountants.utils import get_noise_multiplier

    by_renyi = get_noise_multiplier(
        target_epsilon=3.0, target_delta=1e-5, sample_rate=0.1, steps=70, accountant="rdp"
    )
    assert 0.85 * by_renyi < find_noise_multiplier(3.0, 1e-5, 0.1, 70) < 0.96 * by_renyi


def test_an_epsilon_that_no_noise_reaches_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"no noise keeps 1 step within epsilon 0\.05"):
        find_noise_multiplier(0.05, 1e-5, 1.0, 1)


def test_networks_that_mix_samples_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="gaze-resnet18 has BatchNorm"):
        train_at_site(
            new_network("gaze-resnet18"), "ab" * 32, samples_at(1, 16), SETTINGS,
            site="site-a", round_number=1,
        )  # fmt: skip


class TestLedger:
    def test_a_budget_ends_what_a_site_gives(self, tmp_path: Path) -> None:
        base, samples = new_network("gaze-lenet", 3), samples_at(1, 40)
        settings = LocalTraining(batch_size=5, dp_epsilon=1.0, dp_clip=0.1)

        def contribute(number: int) -> StateDict:
            privacy = Privacy(tmp_path, most_epsilon=2.0)
            return train_at_site(
                base, "ab" * 32, samples, settings,
                site="site-a", round_number=number, privacy=privacy,
            ).contribution.network  # fmt: skip

        first, again = contribute(1), contribute(1)
        assert norm_of(first) != norm_of(again), "fresh noise is drawn, and nobody knows it"

        def contribute_for_ever() -> None:
            for number in itertools.count(2):
                contribute(number)

        with pytest.raises(ContributionWithheldError, match="this site allows 2 "):
            contribute_for_ever()
        ledger = PrivacyLedger(tmp_path)
        spent = ledger.epsilon(samples, 1e-5)
        assert 1.0 < spent <= 2.0
        assert ledger.epsilon(samples_at(2), 1e-5) == 0.0
        # The round's own persons, whatever else the data hold.
        assert ledger.epsilon(GazeSamples.join([samples_at(2), samples]), 1e-5) == spent

    def test_samples_and_persons_have_one_budget_however_they_are_named(
        self, tmp_path: Path
    ) -> None:
        ledger, samples = PrivacyLedger(tmp_path), samples_at(1, 40)
        renamed = replace(samples, person=np.full(len(samples), "P-01"))[:20]

        def spend(data: GazeSamples, unit: Literal["sample", "person"]) -> float:
            settings = LocalTraining(batch_size=5, dp_epsilon=4.0, dp_unit=unit)
            plan = plan_privacy(settings, len(data))
            return ledger.spend(plan, settings, data, round_name="1", most_epsilon=4.1)

        assert spend(samples, "sample") == pytest.approx(4.0, abs=0.05)
        for data, unit in ((samples, "person"), (renamed, "sample"), (renamed, "person")):
            with pytest.raises(ContributionWithheldError, match=r"this site allows 4\.1"):
                spend(data, unit)  # type: ignore[arg-type]
        assert spend(samples_at(2, 40), "person") == pytest.approx(4.0, abs=0.05)

    def test_a_killed_site_never_counts_fewer_releases_than_it_made(self, tmp_path: Path) -> None:
        """A file that was written has its line in the ledger."""
        module = "tests.site_agent.federated.endless_releases"
        with subprocess.Popen(
            [sys.executable, "-m", module, tmp_path], cwd=PROJECT_ROOT
        ) as process:
            deadline = time.monotonic() + 540
            while not list(tmp_path.glob("*.sent")):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            process.send_signal(signal.SIGKILL)
        lines = (tmp_path / "spent.jsonl").read_text().splitlines()
        sent = len(list(tmp_path.glob("*.sent")))
        assert 0 < sent <= len(lines)
        assert PrivacyLedger(tmp_path).epsilon(samples_at(1, 40), 1e-5) > 0


def test_gradients_of_samples_add_up_however_a_module_is_laid_out() -> None:
    """Opacus takes inputs with the channels last for others, and gives wrong gradients then."""
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 5, 3))
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(6, 3, 12, 14, generator=torch.Generator().manual_seed(0)).requires_grad_()
    watched = watch_samples(module)
    watched(x).square().sum().backward()
    for parameter in module.parameters():
        assert parameter.grad is not None
        by_sample = parameter.grad_sample  # type: ignore[attr-defined]
        assert torch.allclose(by_sample.sum(0), parameter.grad, rtol=1e-4, atol=1e-3)
    watched.to_standard_module()


@pytest.mark.parametrize(
    ("invited", "summed", "honest"), [(10, 10, 5), (10, 7, 2), (9, 6, 1), (15, 3, 1), (15, 15, 7)]
)
def test_labs_that_may_be_missing_from_the_sum_add_no_noise(
    invited: int, summed: int, honest: int
) -> None:
    assert count_honest(range(invited), summed) == honest
