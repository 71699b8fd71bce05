"""The sites' halves of methods with personal parts, and rounds in memory."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import encode_model, merge
from aggregators.errors import OptionError, SiteOnlyError, UnknownFormatError
from aggregators.formats import read_model
from aggregators.formats.safetensors_file import SITE_ONLY, require_shareable
from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError
from site_agent.federated.in_process import HeldRound, run_rounds
from site_agent.federated.local_training import train_at_site
from site_agent.federated.personal import assemble, overlap_of, read_part, share_of, write_part
from site_agent.federated.plan import make_plan
from site_agent.federated.tasks import GazeTask
from site_agent.networks.modules import new_network, personal_head, to_module
from tests.site_agent.federated.small_sites import samples_at, small_sites

OPTIONS = {"batch_size": 8, "learning_rate": 0.01, "mean": "sites"}

TWO_SITES = dict(list(small_sites().items())[:2])


def hold(method: str, rounds: int = 2, **options: float | str) -> list[HeldRound]:
    plan = make_plan(method, {**OPTIONS, **options}, rounds=rounds)
    return list(run_rounds(new_network("gaze-lenet"), TWO_SITES, plan))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("fedcpf", {"rho": 0}),
        pytest.param("fedselect", {"rho": 0, "every": 1}, marks=pytest.mark.slow),
        pytest.param("fedprox", {"mu": 0}, marks=pytest.mark.slow),
    ],
)
def test_a_method_that_keeps_nothing_gives_the_bytes_of_fedavg(
    method: str, options: dict[str, float]
) -> None:
    expected = [(item.model.digest, dict(item.update_digests)) for item in hold("fedavg")]
    digests = [(item.model.digest, dict(item.update_digests)) for item in hold(method, **options)]
    assert digests == expected


def test_fedprox_stays_nearer_to_the_base() -> None:
    def moved(mu: float) -> float:
        plan = make_plan("fedprox", {**OPTIONS, "mu": mu}, rounds=1)
        base = new_network("gaze-lenet")
        made = train_at_site(
            base, "ab" * 32, TWO_SITES["site-0"], plan.training, site="a", round_number=1,
            method="fedprox", options=plan.split.merging,
        ).contribution  # fmt: skip
        return float(sum(np.square(tensor).sum() for tensor in made.network.tensors.values()))

    assert moved(10.0) < 0.5 * moved(0.0)


def test_masks_grow_up_to_their_limit_and_the_most_changed_numbers_are_kept() -> None:
    paper = {"begin": 0, "grow": 0.05, "relative": "network", "early_stop": False}
    held = hold("fedcpf", rounds=3, rho=0.08, **paper)  # type: ignore[arg-type]
    shares = [round_.parts["site-0"].share for round_ in held]
    assert shares == pytest.approx([0.05, 0.08, 0.08], abs=1e-6)
    first, second = held[0].parts["site-0"], held[1].parts["site-0"]
    assert not any(mask.any() for mask in first.personal.values())
    for name, mask in second.personal.items():
        assert np.array_equal(mask, first.chosen[name])
        assert not (mask & ~second.chosen[name]).any()
    chosen = np.concatenate([first.chosen[name].reshape(-1) for name in first.chosen])
    changes = np.concatenate([first.changes[name].reshape(-1) for name in first.chosen])
    assert changes[chosen].min() >= changes[~chosen].max()
    assert overlap_of(first.chosen, second.chosen) == pytest.approx(0.05 / 0.08, rel=1e-3)


def test_no_layer_becomes_personal_as_a_whole_where_changes_count_by_their_layer() -> None:
    def shares(relative: str) -> dict[str, float]:
        (held,) = hold("fedcpf", rounds=1, relative=relative, rho=0.5)
        return {name: float(mask.mean()) for name, mask in held.parts["site-0"].chosen.items()}

    by_layer, as_they_are = shares("layer"), shares("network")
    # gaze-lenet has 98.5 % of its numbers in one layer.
    assert as_they_are["conv1.weight"] > 0.9
    assert by_layer["conv1.weight"] < 0.7
    assert by_layer["fc1.weight"] == pytest.approx(0.5, abs=0.02)


def test_parts_grow_in_the_second_third_of_a_series() -> None:
    for rounds in (3, 6, 20):
        options = make_plan("fedcpf", {"rho": 0.5}, rounds=rounds).options
        assert options["begin"] == rounds // 3
        assert options["grow"] * (2 * rounds // 3 - rounds // 3) == pytest.approx(0.5)
    assert make_plan("fedcpf", {"grow": 0.05}, rounds=9).options["grow"] == 0.05
    assert [make_plan("fedselect", {}, rounds=n).options["every"] for n in (2, 6, 9)] == [1, 2, 3]


@pytest.mark.parametrize(
    ("personal", "common", "grows", "keeps"),
    [(0.5, 0.4, True, True), (0.4, 0.4, False, True), (0.4, 0.5, False, False)],
)
def test_a_part_grows_where_it_helps_at_home_and_is_given_up_where_it_harms(
    personal: float, common: float, grows: bool, keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = hold("cpf-random", rounds=2, grow=0.05, begin=0)
    scores = iter([personal, common, 0.5, 0.5])
    monkeypatch.setattr(GazeTask, "score_home", lambda *_: next(scores))
    plan = make_plan("cpf-random", {**OPTIONS, "grow": 0.05, "begin": 0}, rounds=3)
    before = second.parts["site-0"]
    made = train_at_site(
        second.model.network, second.model.digest, TWO_SITES["site-0"], plan.training,
        site="site-0", round_number=3, method="cpf-random", options=plan.split.merging,
        before=before,
    ).part  # fmt: skip
    assert made is not None
    assert first.parts["site-0"].share < before.share
    assert (made.share > before.share) == grows
    assert (made.share > 0) == keeps
    if keeps:
        return
    # For good: nothing is measured again.
    after = train_at_site(
        second.model.network, second.model.digest, TWO_SITES["site-0"], plan.training,
        site="site-0", round_number=4, method="cpf-random", options=plan.split.merging, before=made,
    ).part  # fmt: skip
    assert after is not None
    assert after.share == 0


@pytest.mark.parametrize(("personal", "common", "begins"), [(0.5, 0.4, True), (0.4, 0.5, False)])
def test_a_site_begins_a_part_where_its_own_network_beats_the_mean_at_home(
    personal: float, common: float, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, tried = hold("fedcpf", rounds=2, begin=2, grow=0.25)
    part = tried.parts["site-0"]
    assert share_of(shared.parts["site-0"].personal) == part.share == 0
    assert share_of(part.personal) == 1.0
    scores = iter([personal, common, 0.5])
    monkeypatch.setattr(GazeTask, "score_home", lambda *_: next(scores))
    plan = make_plan("fedcpf", {**OPTIONS, "begin": 2, "grow": 0.25}, rounds=4)
    samples, network = TWO_SITES["site-0"], tried.model.network
    made = train_at_site(
        network, tried.model.digest, samples, plan.training, site="site-0", round_number=3,
        method="fedcpf", options=plan.split.merging, before=part,
    )  # fmt: skip
    assert made.part is not None
    assert (made.part.share > 0) == begins
    if begins:
        return
    # It then is a site of FedAvg: in the next round, all its samples train.
    after, alike = (
        train_at_site(
            network, tried.model.digest, samples, plan.training, site="site-0", round_number=4,
            method=method, options=options, before=before,
        ).contribution
        for method, options, before in (
            ("fedcpf", plan.split.merging, made.part), ("fedavg", None, None)
        )
    )  # fmt: skip
    assert after.samples == alike.samples == len(samples)
    for name, expected in alike.network.tensors.items():
        assert np.array_equal(after.network.tensors[name], expected)


def test_random_masks_have_the_size_of_fedcpfs_and_hardly_overlap() -> None:
    by_change = hold("fedcpf", rounds=1, grow=0.05)[0].parts["site-0"]
    drawn = hold("cpf-random", rounds=1, grow=0.05)[0].parts["site-0"]
    assert drawn.share == by_change.share == pytest.approx(0.05, abs=1e-6)
    assert overlap_of(by_change.chosen, drawn.chosen) < 0.1


def test_fedselect_takes_a_share_of_each_entry_every_few_rounds() -> None:
    held = hold("fedselect", rounds=2, every=2)
    assert held[0].parts["site-0"].share == 0
    for mask in held[1].parts["site-0"].chosen.values():
        assert int(mask.sum()) == int(0.25 * mask.size)


def test_personal_numbers_have_no_influence_and_local_shares_nothing() -> None:
    held = hold("fedcpf", rounds=2)
    part = held[1].parts["site-0"]
    before, after = held[0].model.network, held[1].model.network
    everywhere = {
        name: part.personal[name] & held[1].parts["site-1"].personal[name] for name in part.personal
    }
    assert share_of(everywhere) > 0
    for name, mask in everywhere.items():
        assert np.array_equal(after.tensors[name][mask], before.tensors[name][mask])
    alone = hold("local")
    base = encode_model(new_network("gaze-lenet"))
    assert encode_model(alone[-1].model.network) == base
    mine = assemble(alone[-1].model.network, alone[-1].parts["site-0"])
    assert encode_model(mine) != base


def test_local_is_training_alone() -> None:
    plan = make_plan("fedavg", OPTIONS, rounds=1)
    alone = dict([next(iter(TWO_SITES.items()))])
    expected = next(iter(run_rounds(new_network("gaze-lenet"), alone, plan))).model.network
    first, second = hold("local")
    mine = assemble(first.model.network, first.parts["site-0"])
    # Of dense layers, fedavg keeps rows back that would show a sample.
    for name in ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias"):
        np.testing.assert_allclose(mine.tensors[name], expected.tensors[name], atol=1e-6)
    later = assemble(second.model.network, second.parts["site-0"])
    assert not np.allclose(later.tensors["conv1.weight"], mine.tensors["conv1.weight"], atol=1e-5)


def test_fedper_keeps_the_last_layer() -> None:
    part = hold("fedper", rounds=1)[0].parts["site-0"]
    kept = {name for name, mask in part.personal.items() if mask.all()}
    assert kept == {"fc2.weight", "fc2.bias"}
    assert not any(mask.any() for name, mask in part.personal.items() if name not in kept)


def test_the_head_of_a_saliency_network_that_fedper_keeps_has_a_block_of_the_decoder() -> None:
    module = to_module(new_network("glc-tiny"))
    head = personal_head(module)
    assert {name.split(".")[0] for name in head} == {"decode_block2", "classifier"}
    kept = sum(parameter.numel() for name, parameter in module.named_parameters() if name in head)
    assert 0.05 < kept / 111_505 < 0.2


@pytest.mark.slow
def test_frozen_numbers_stay_as_they_are() -> None:
    held = hold("fedcpf", rounds=3, freeze=True)
    second, third = held[1].parts["site-0"], held[2].parts["site-0"]
    for name, mask in second.personal.items():
        assert np.array_equal(second.values[name][mask], third.values[name][mask])


def test_a_part_is_read_back_and_marked_as_site_only(tmp_path: Path) -> None:
    part = hold("fedcpf", rounds=2)[1].parts["site-0"]
    path = tmp_path / "home" / "002.safetensors"
    write_part(part, path)
    assert path.stat().st_mode & 0o077 == 0
    read = read_part(path)
    base = new_network("gaze-lenet")
    assert encode_model(assemble(base, read)) == encode_model(assemble(base, part))
    assert (read.method, read.site, read.round_number) == ("fedcpf", "site-0", 2)
    with pytest.raises(UnknownFormatError, match="a personal part"):
        read_model(path)
    whole = StateDict(base.tensors, base.infos, {**base.metadata, **SITE_ONLY})
    with pytest.raises(SiteOnlyError, match="site-only"):
        require_shareable(whole, path.name)
    merged = merge("fedavg", [whole, base]).model
    with pytest.raises(SiteOnlyError):
        require_shareable(merged, "what was merged from it")
    other = StateDict(
        {"w": np.zeros(3, np.float32)}, {"w": base.infos["fc2.bias"]}, dict(base.metadata)
    )
    with pytest.raises(InvalidInputError, match="personal part of 'site-0'"):
        assemble(other, read)


def test_differential_privacy_covers_plain_training_only() -> None:
    with pytest.raises(OptionError, match="the noise covers only training"):
        make_plan("fedcpf", {"dp_epsilon": 3}, rounds=1)


IN_MEMORY = {"batch_size": 8, "learning_rate": 0.01}


def test_a_hostile_site_sends_what_it_likes() -> None:
    def spoil(site: str, number: int, made: NetworkContribution) -> NetworkContribution:
        if (site, number) != ("site-1", 2):
            return made
        tensors = {
            name: np.full_like(made.network.tensors[name], np.nan) for name in made.network.infos
        }
        return replace(made, network=StateDict(tensors, made.network.infos))

    plan = make_plan("median", IN_MEMORY, rounds=2)
    first, second = run_rounds(new_network("gaze-lenet"), small_sites(), plan, corrupt=spoil)
    assert not any("left out" in warning for warning in first.warnings)
    assert "site-1 holds infinities or NaN and was left out" in second.warnings


def test_a_round_of_many_sites_reads_and_trains_its_cohort_only() -> None:
    """1,500 small sites: time and memory of a round are those of the sites that train."""

    opened: set[str] = set()

    class Sites(dict[str, GazeSamples]):
        def __getitem__(self, site: str) -> GazeSamples:
            opened.add(site)
            return super().__getitem__(site)

    samples = samples_at(0, 4)
    sites = Sites({f"site-{number:04}": samples for number in range(1500)})
    plan = make_plan("fedavg", IN_MEMORY, rounds=2, cohort=0.002)
    first, second = run_rounds(new_network("gaze-lenet"), sites, plan)
    assert len(first.update_digests) == len(second.update_digests) == 3
    assert opened == {*first.update_digests, *second.update_digests}
