"""Noise on smashed data, means of them, and private training."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from aggregators.methods.round_options import LocalTraining
from site_agent.errors import ContributionWithheldError, InvalidInputError, TrainingFailedError
from site_agent.federated.private_training import PrivacyPlan, find_noise_multiplier, plan_privacy
from site_agent.networks.modules import new_network
from site_agent.split.frozen import MeansPlan, SmashedData, smash
from site_agent.split.in_process import run_split_rounds
from site_agent.split.messages import decode_arrays
from site_agent.split.noise import SmashedNoise, sensitivity_of, signal_to_noise_db
from site_agent.split.parts import split_network, to_part_module
from site_agent.split.plan import SplitPlan, find_cut
from site_agent.split.private_steps import PrivateSteps, protection_words
from site_agent.training.gaze.loop import repeatable
from tests.site_agent.federated.small_sites import small_sites
from tests.site_agent.split.live_split import live_split, unguarded


@cache
def bounded_part(seed: int, cut_name: str) -> tuple[Any, Any, Any]:
    """Return a client part, its stages, and the bound of the pictures' effect."""
    cut = find_cut("gaze-lenet", cut_name)
    part = split_network(new_network("gaze-lenet", seed), cut).client
    module = to_part_module(part, cut, "client")
    return module, cut.front_stages(module.stages), sensitivity_of(part, cut)


@given(
    seed=st.integers(0, 2**31),
    cut_name=st.sampled_from(["pool1", "pool2", "fc1"]),
    pixels=st.sampled_from([1, 2, 20, 2160]),
    size=st.floats(1e-3, 1e3),
)
def test_no_pair_of_images_is_beyond_the_bounds(
    seed: int, cut_name: str, pixels: int, size: float
) -> None:
    module, front, bound = bounded_part(seed % 3, cut_name)
    draw = np.random.default_rng(seed)
    first = draw.normal(size=(1, 1, 36, 60)).astype(np.float32)
    change = np.zeros(2160, np.float32)
    change[draw.choice(2160, pixels, replace=False)] = size * draw.normal(size=pixels)
    second = first + change.reshape(first.shape)
    with torch.no_grad():
        a, b = (module.run_stages(front, torch.from_numpy(x), None) for x in (first, second))  # type: ignore[arg-type]
    moved, by = (a - b).double(), (second - first).astype(np.float64)
    slack = 1 + 1e-3
    noise = 1e-4 * (1 + float(a.abs().sum()) * 1e-3)
    assert moved.abs().sum() <= bound * np.abs(by).sum() * slack + noise


def test_noise_has_its_scale_and_says_what_it_gives() -> None:
    cut = find_cut("gaze-lenet", "pool1")
    part = split_network(new_network("gaze-lenet"), cut).client
    bound = sensitivity_of(part, cut)
    smashed = torch.zeros(50, 20, 16, 28)
    # Pooling lets through a quarter of what one pixel changes, and a bit more at its edges.
    weight = np.abs(part.tensors["conv1.weight"].astype(np.float64)).sum()
    assert 0.36 * weight < bound < 0.6 * weight
    deviation = np.sqrt(2) * bound
    added = SmashedNoise(0.5).alter(bound, torch.Generator().manual_seed(0))(smashed)
    assert float(added.std()) == pytest.approx(0.5 * deviation, rel=0.02)
    assert float(added.mean()) == pytest.approx(0, abs=0.02 * deviation)
    assert SmashedNoise().alter(bound, torch.Generator())(smashed) is smashed
    assert "epsilon 20 for a change of one pixel" in SmashedNoise(0.5).words(10)
    drawn = torch.randn(200, 10, generator=torch.Generator().manual_seed(0))
    louder = drawn + 10 * torch.randn(200, 10, generator=torch.Generator().manual_seed(1))
    assert signal_to_noise_db(drawn, louder) == pytest.approx(-20, abs=0.5)


@pytest.mark.parametrize("scale", ["thesis", "guaranteed"])
def test_training_under_noise_keeps_the_scale_of_the_noise(scale: str) -> None:
    plan = SplitPlan.model_validate({"rounds": 1, "noise_level": 0.01, "noise_scale": scale})
    base, cut = new_network("gaze-lenet", 1), plan.found_cut
    sites = dict([*small_sites().items()][:1])
    (held,) = run_split_rounds(base, sites, plan)
    before, after = (
        sensitivity_of(part, cut) for part in (split_network(base, cut).client, held.client.network)
    )
    if scale == "guaranteed":
        assert after <= before * (1 + 1e-5)
        return
    weight = torch.from_numpy(np.array(held.client.network.tensors["conv1.weight"])).flatten(1)
    assert float(torch.linalg.matrix_norm(weight, 1)) == pytest.approx(1.0, rel=1e-5)
    noise = SmashedNoise.of(plan)
    assert noise.scale(after) == 0.01
    assert noise.epsilon(1) is None
    assert "bounds no change" in noise.words(1)


def test_at_the_scale_of_the_thesis_sgd_trains_under_noise_that_else_makes_it_diverge() -> None:
    def last_loss(scale: str) -> float:
        plan = SplitPlan.model_validate({"rounds": 2, "noise_level": 2.0, "noise_scale": scale})
        *_, held = run_split_rounds(new_network("gaze-lenet", 1), small_sites(), plan)
        return max(held.losses.values())

    assert last_loss("thesis") < 1.0
    with pytest.raises(TrainingFailedError, match=r"diverges.*take --set optimiser=adam"):
        last_loss("guaranteed")


def test_batchnorm_has_no_bound() -> None:
    cut = find_cut("gaze-resnet18", "stem")
    part = split_network(new_network("gaze-resnet18"), cut).client
    with pytest.raises(InvalidInputError, match="BatchNorm2d in bn1"):
        sensitivity_of(part, cut)


@pytest.mark.parametrize("variant", ["v1", "frozen-client"])
def test_studies_draw_the_same_noise_again(variant: str) -> None:
    plan = SplitPlan.model_validate({"variant": variant, "rounds": 1, "noise_level": 0.01})
    base = new_network("gaze-lenet", 1)
    results = [next(iter(run_split_rounds(base, small_sites(), plan))) for _ in range(2)]
    assert results[0].server.digest == results[1].server.digest
    plain = plan.model_copy(update={"noise_level": 0.0})
    assert next(iter(run_split_rounds(base, small_sites(), plain))).server.digest != (
        results[0].server.digest
    )


def test_predictions_send_noise_as_training_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = SplitPlan.model_validate({"rounds": 1, "noise_level": 0.5})
    sent = []
    with live_split(tmp_path, plan) as live, live.client("site-0") as client:
        call = client._server.call

        def recorded(method: str, path: str, body: bytes = b"", **more: Any) -> bytes:
            if path == "/predict":
                sent.append(decode_arrays(body, live.server.shapes["predict"])["smashed"])
            return call(method, path, body, **more)

        monkeypatch.setattr(client._server, "call", recorded)
        samples = small_sites()["site-0"]
        client.predict(samples)
        part = live.aggregator.rounds.model.network
    clean = smash(part, samples, plan, lambda smashed: smashed).smashed
    scale = SmashedNoise(0.5).scale(sensitivity_of(part, plan.found_cut))
    noise = np.concatenate(sent) - clean
    assert float(noise.std()) == pytest.approx(np.sqrt(2) * scale, rel=0.05)


COUNTS = {"site-0": 90, "site-1": 61, "site-2": 40, "site-3": 19}


def data_of(site: str) -> SmashedData:
    """Return smashed data of one number, with gaze in another range at each site."""
    draw, count = np.random.default_rng(int(site[-1])), COUNTS[site]
    gaze = draw.normal(size=(count, 2)).astype(np.float32) * (1 + int(site[-1]))
    return SmashedData(np.ones((count, 1), np.float32), np.zeros((count, 2), np.float32), gaze)


def shared_rows(pairs: str) -> tuple[MeansPlan, list[SmashedData]]:
    training = {"batch_size": 4, "epochs": 2}
    plan = SplitPlan.model_validate(
        {"variant": "mean-smashed", "pairs": pairs, "training": training}
    )
    means = MeansPlan.of(plan, 1, COUNTS)
    return means, [means.give(site, data_of(site)) for site in COUNTS]


@pytest.mark.parametrize("pairs", ["shuffled", "by-gaze"])
def test_a_mean_is_over_at_least_three_sites(pairs: str) -> None:
    means, rows = shared_rows(pairs)
    sites = np.sum([item.smashed[:, 0] for item in rows], axis=0)
    assert len(sites) == means.rows
    assert sites.min() >= 3
    assert np.array_equal(sites, np.tile(means.sites, 2))
    total = SmashedData(
        *(np.sum([vars(x)[n] for x in rows], axis=0) for n in ("smashed", "head", "gaze"))
    )
    assert np.array_equal(means.mean(total).smashed, np.ones((means.rows, 1)))


def test_sites_that_sort_by_gaze_keep_its_spread_in_the_means() -> None:
    spread = {}
    for pairs in ("shuffled", "by-gaze"):
        means, rows = shared_rows(pairs)
        gaze = np.sum([item.gaze for item in rows], axis=0) / np.tile(means.sites, 2)[:, np.newaxis]
        spread[pairs] = gaze.std()
    assert spread["by-gaze"] > 1.5 * spread["shuffled"]


def test_each_pass_pairs_other_samples() -> None:
    for pairs in ("shuffled", "by-gaze"):
        means, rows = shared_rows(pairs)
        gaze = np.sum([item.gaze for item in rows], axis=0)
        first, second = (set(map(tuple, part)) for part in np.split(gaze, 2))
        assert len(first & second) < means.rows / 4


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
    with unguarded():
        changes, expected = (
            next(iter(run_split_rounds(base, small_sites(), plan))).network
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
