"""DP-SGD in split training: clipping, noise, and the release counted beforehand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from aggregators.methods.round_options import LocalTraining
from site_agent.errors import ContributionWithheldError, InvalidInputError
from site_agent.federated.private_training import PrivacyPlan, find_noise_multiplier, plan_privacy
from site_agent.networks.modules import new_network
from site_agent.split.in_process import run_split_rounds
from site_agent.split.parts import split_network, to_part_module
from site_agent.split.plan import SplitPlan
from site_agent.split.private_steps import PrivateSteps, protection_words
from site_agent.training.gaze.loop import repeatable
from tests.site_agent.federated.small_sites import small_sites
from tests.site_agent.split.live_split import live_split


def plan_of(covers: str, **changes: object) -> SplitPlan:
    training = LocalTraining(dp_epsilon=8.0, dp_clip=1.0, learning_rate=0.002)
    return SplitPlan.model_validate(
        {"rounds": 2, "dp_covers": covers, "training": training, **changes}
    )


def test_the_noise_is_that_of_the_accountant_over_all_rounds() -> None:
    plan = plan_of("client")
    assert plan.training.dp_rounds == 2
    privacy = plan_privacy(plan.training, 16)
    steps = privacy.steps * 2
    assert privacy.noise_multiplier == find_noise_multiplier(8.0, 1e-5, privacy.sample_rate, steps)


@pytest.mark.parametrize(("covers", "part"), [("client", 1.0), ("whole", 1 / math.sqrt(2))])
def test_a_sample_a_thousand_times_as_large_moves_no_more_than_the_clip(
    covers: str, part: float
) -> None:
    plan = plan_of(covers)
    cut = plan.found_cut
    client = split_network(new_network("gaze-lenet"), cut).client
    module = to_part_module(client, cut, "client").train()
    silent = PrivacyPlan(noise_multiplier=0.0, sample_rate=0.5, steps=1)
    private = PrivateSteps(module, plan, silent, 1.0, torch.Generator())
    patches = torch.randn(3, 1, 36, 60, generator=torch.Generator().manual_seed(0))
    patches[1] *= 1000
    patches.requires_grad_()
    smashed = module.run_stages(cut.front_stages(module.stages), patches, torch.zeros(3, 2))
    smashed.square().sum().backward()  # type: ignore[no-untyped-call]
    private.finish(3)
    gradients = [parameter.grad for parameter in module.parameters()]
    norm = float(
        torch.stack([gradient.norm() for gradient in gradients if gradient is not None]).norm()
    )
    assert norm <= 3 * part * plan.training.clip * (1 + 1e-6)
    private.finish(0)
    assert all(
        float(parameter.grad.abs().max()) == 0
        for parameter in module.parameters()
        if parameter.grad is not None
    )


@pytest.mark.parametrize(("covers", "cut"), [("client", "pool1"), ("whole", "u")])
def test_without_noise_and_bounds_it_is_plain_sgd(
    covers: str, cut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All samples in each step, nothing clipped: the gradients are those of the mean loss."""
    everyone = PrivacyPlan(noise_multiplier=0.0, sample_rate=1.0, steps=1)
    monkeypatch.setattr("site_agent.split.training.plan_privacy", lambda *_: everyone)
    training = LocalTraining(dp_epsilon=8.0, dp_clip=1e6, momentum=0, learning_rate=0.1)
    private = SplitPlan.model_validate(
        {"rounds": 1, "cut": cut, "dp_covers": covers, "training": training}
    )
    plain = SplitPlan.model_validate(
        {
            "rounds": 1, "cut": cut,
            "training": LocalTraining(batch_size=1000, momentum=0, learning_rate=0.1),
        }
    )  # fmt: skip
    base = new_network("gaze-lenet", 1)
    changes, expected = (
        next(iter(run_split_rounds(base, small_sites(), plan, guarded=False))).network
        for plan in (private, plain)
    )
    for name, values in expected.tensors.items():
        assert np.allclose(changes.tensors[name], values, atol=1e-5), name
        assert not np.allclose(changes.tensors[name], base.tensors[name], atol=1e-7), name


@pytest.mark.parametrize("covers", ["client", "person"])
def test_noise_reaches_the_parts_that_it_covers(covers: str) -> None:
    plan = plan_of(covers)
    base = new_network("gaze-lenet", 1)
    first, again = (next(iter(run_split_rounds(base, small_sites(), plan))) for _ in range(2))
    assert (first.client.digest, first.server.digest) == (again.client.digest, again.server.digest)
    noisy = np.abs(first.network.tensors["fc2.weight"] - base.tensors["fc2.weight"]).max()
    assert (noisy > 0.01) == (covers != "client")
    parts = "in the client parts only" if covers == "client" else "in both parts"
    assert parts in protection_words(plan)
    assert "training all layers" in protection_words(plan)


def test_what_cannot_be_protected_is_refused() -> None:
    with pytest.raises(ValueError, match="dp_epsilon for whole goes with variant v1, not v2"):
        plan_of("whole", variant="v2")
    plan = plan_of("client", architecture="gaze-resnet18", cut="stem")
    with pytest.raises(InvalidInputError, match="BatchNorm"):
        next(iter(run_split_rounds(new_network("gaze-resnet18"), small_sites(), plan)))


@pytest.mark.parametrize("covers", ["whole"])
def test_every_attempt_is_counted_before_it_begins(
    tmp_path: Path, covers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All kits of a machine have one ledger."""
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))
    spent_file = tmp_path / "home" / "privacy" / "spent.jsonl"
    plan = plan_of(covers, cut="u" if covers == "whole" else "pool1")
    # Opacus warns of its orders, which is silenced for one thread at a time only.
    for samples in small_sites().values():
        plan_privacy(plan.training, len(samples))
    with repeatable(), live_split(tmp_path, plan) as live:
        reports = live.run_clients()
        assert live.server.rounds.is_finished
        for site, report in reports.items():
            place = live.kits[site].folder
            entries = [json.loads(line) for line in spent_file.read_text().splitlines()]
            person = str(small_sites()[site].person[0])
            lines = [entry for entry in entries if entry.get("persons") == [person]]
            attempts = (place / "attempts.jsonl").read_text().splitlines()
            assert report.rounds == len(lines) == len(attempts) == 2
            assert [entry["round"].split(" of ")[0] for entry in lines] == ["1", "2"]


def test_a_site_releases_nothing_beyond_its_budget(tmp_path: Path) -> None:
    with repeatable(), live_split(tmp_path, plan_of("client")) as live:
        client = live.client("site-0")
        client._most_epsilon = 0.5
        with client, pytest.raises(ContributionWithheldError, match=r"this site allows 0\.5"):
            client.run()
        assert live.server.status("site-0")["done"] == {}
