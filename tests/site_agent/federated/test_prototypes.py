"""FedPAC at the sites: classes, statistics, order of training, and replies."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aggregators.methods.networks.replies import encode_reply
from aggregators.methods.networks.updates import head_entries
from aggregators.models import StateDict
from site_agent.datasets.egocentric import FIXATION, UNTRACKED, ClipSamples
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.federated.halves.fedpac import HeadAndBody, class_statistics
from site_agent.federated.in_process import HeldRound, run_rounds
from site_agent.federated.local_training import train_at_site
from site_agent.federated.personal import PersonalStore, assemble, read_part, with_reply
from site_agent.federated.plan import make_plan
from site_agent.federated.tasks import GazeTask, RepresentationTask, SaliencyTask
from site_agent.networks.architectures import GAZE_ARCHITECTURES, SALIENCY_ARCHITECTURES
from site_agent.networks.modules import last_layer, new_network, to_module
from tests.site_agent.federated.small_sites import small_sites

TWO_SITES = dict(list(small_sites().items())[:2])
HEAD = ("fc2.weight", "fc2.bias")


@pytest.fixture(scope="module")
def held() -> list[HeldRound]:
    plan = make_plan("fedpac", {"batch_size": 8, "learning_rate": 0.01}, rounds=2)
    return list(run_rounds(new_network("gaze-lenet"), TWO_SITES, plan))


ARCHITECTURES = {*GAZE_ARCHITECTURES, *SALIENCY_ARCHITECTURES} - {"glc-paper", "glc-8"}


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_server_and_sites_agree_on_the_last_layer(architecture: str) -> None:
    network = new_network(architecture)
    assert frozenset(head_entries(network.infos)) == last_layer(to_module(network))


def test_patches_have_nine_classes_of_gaze() -> None:
    samples = next(iter(TWO_SITES.values()))[:4]
    looks = np.array([(-0.3, -0.3), (0.0, -0.15), (0.3, 0.3), (0.05, 0.0)])
    classes = GazeTask.classes(replace(samples, gaze=looks))
    assert classes.tolist() == [0, 4, 8, 7]


def test_what_is_learned_without_labels_has_no_classes() -> None:
    samples = next(iter(TWO_SITES.values()))
    with pytest.raises(InvalidInputError, match="learns without labels, expected one with classes"):
        RepresentationTask().classes(samples)


def clips(count: int, seed: int = 0) -> ClipSamples:
    draw = np.random.default_rng(seed)
    kind = np.full((count, 4), FIXATION, np.uint8)
    kind[:, 0] = UNTRACKED
    return ClipSamples(
        draw.integers(0, 256, (count, 4, 48, 48, 3), dtype=np.uint8),
        draw.uniform(0.3, 0.7, (count, 4, 2)), kind, np.full((count, 4, 2), np.nan),
        np.full(count, "p"), np.full(count, "v"), np.full(count, "train"),
    )  # fmt: skip


def test_frames_of_clips_have_sixteen_classes_and_features_of_their_own() -> None:
    task = SaliencyTask("glc-tiny")
    samples = clips(12)
    samples.gaze[0, 1:4] = [(0, 0), (1, 1), (0.3, 0.99)]
    classes = task.classes(samples)
    assert classes.shape == (12, 4)
    assert classes[0, :4].tolist() == [-1, 0, 15, 13]
    tokens = torch.arange(2 * 3 * 8 * 4 * 4, dtype=torch.float32).reshape(2, 3, 8, 4, 4)
    features = task.features(tokens)
    assert features.shape == (16, 3)
    assert torch.equal(features[9], tokens[1, :, 1].mean((1, 2)))
    made = train_at_site(
        new_network("glc-tiny"), "ab" * 32, samples, make_plan("fedpac", {}, rounds=1).training,
        site="a", round_number=1, method="fedpac",
    ).contribution.statistics  # fmt: skip
    assert made is not None
    assert made.means.shape == (16, 16)
    assert made.counts[[5, 6, 9, 10]].sum() == made.counts.sum() > 0


def test_the_statistics_are_those_of_the_formulas_without_rare_classes() -> None:
    draw = np.random.default_rng(1)
    classes = np.array([0] * 8 + [2] * 12 + [1] * 4)
    features = draw.normal(size=(24, 5))
    statistics = class_statistics(features, classes, 4)
    assert statistics.counts.tolist() == [8, 0, 12, 0]
    shares = np.array([0.4, 0.6])
    by_class = [features[:8], features[8:20]]
    square = sum(p * np.square(f).sum(axis=1).mean() for p, f in zip(shares, by_class, strict=True))
    between = sum(
        p**2 * np.square(f.mean(axis=0)).sum() for p, f in zip(shares, by_class, strict=True)
    )
    assert statistics.variance == pytest.approx((square - between) / 20, rel=1e-6)
    np.testing.assert_allclose(statistics.means[2], by_class[1].mean(axis=0), rtol=1e-6)
    # Eight frames of one clip show that clip.
    with pytest.raises(TrainingDataError, match="no class of gaze with 5 samples"):
        class_statistics(draw.normal(size=(32, 5)), np.repeat(np.arange(4), 8).reshape(4, 8), 4)


def test_the_head_is_trained_first_and_then_the_body() -> None:
    base, samples = new_network("gaze-lenet"), next(iter(TWO_SITES.values()))
    module, task = to_module(base), GazeTask()
    parted = HeadAndBody(module, base, task, samples, task.to_tensors(samples))
    for number in range(3):
        parted.begin(number)
        free = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
        assert (free == set(HEAD)) == (number == 0)
        assert bool(free & set(HEAD)) == (number == 0)
    assert parted.pull(None, 1.0) is None
    prototypes = np.full((9, 502), np.nan, np.float32)
    prototypes[7] = 0.5
    pull = parted.pull(prototypes, 2.0)
    assert pull is not None
    batch = torch.arange(len(samples))
    data = task.to_tensors(samples)
    module(*data.inputs(batch))
    members = torch.from_numpy(task.classes(samples) == 7)
    expected = 2 * (parted._taken[members] - 0.5).square().mean()
    assert float(pull(batch).detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    parted.begin(0)
    assert float(pull(batch)) == 0


def test_each_site_goes_on_with_the_head_that_was_mixed_for_it(held: list[HeldRound]) -> None:
    for site in TWO_SITES:
        part = held[0].parts[site]
        state = held[0].model.state
        assert state is not None
        prefix = f"reply/{held[0].update_digests[site]}/"
        assert part.prototypes is not None
        for name in HEAD:
            mixed = state.moments.tensors[prefix + name]
            assert np.array_equal(part.values[name], mixed)
            assert part.personal[name].all()
        mine = assemble(held[0].model.network, part)
        assert np.array_equal(mine.tensors["fc2.weight"], part.values["fc2.weight"])
        assert np.array_equal(
            mine.tensors["fc1.weight"], held[0].model.network.tensors["fc1.weight"]
        )


def test_prototypes_hold_features_together(held: list[HeldRound]) -> None:
    part = held[0].parts["site-0"]

    def distance(lam: float) -> float:
        options = {"batch_size": 8, "lam": lam, "learning_rate": 0.001}
        plan = make_plan("fedpac", options, rounds=2)
        base, samples, task = held[0].model.network, TWO_SITES["site-0"], GazeTask()
        made = train_at_site(
            base, "ab" * 32, samples, plan.training, site="site-0", round_number=2,
            method="fedpac", options=plan.split.merging, before=part,
        ).contribution  # fmt: skip
        tensors = {
            name: np.add(base.tensors[name], made.network.tensors[name]) for name in base.infos
        }
        trained = StateDict(tensors, base.infos, base.metadata)
        after = HeadAndBody(
            to_module(trained), trained, task, samples, task.to_tensors(samples)
        ).statistics
        assert part.prototypes is not None
        known = (after.counts > 0) & ~np.isnan(part.prototypes[:, 0])
        return float(np.square(after.means[known] - part.prototypes[known]).mean())

    assert distance(20.0) < distance(0.0)


def test_a_store_takes_a_reply_and_refuses_a_false_one(
    held: list[HeldRound], tmp_path: Path
) -> None:
    store = PersonalStore(tmp_path / "series")
    part, state = held[0].parts["site-0"], held[0].model.state
    assert state is not None
    store.keep(replace(part, values={**part.values, "fc2.bias": np.zeros(2, np.float32)}))
    reply = encode_reply(state, held[0].update_digests["site-0"])
    assert reply is not None
    for _ in range(2):
        store.take_reply("site-0", 1, reply)
        path = store.path("site-0", 1)
        read = read_part(path)
        assert np.array_equal(read.values["fc2.bias"], part.values["fc2.bias"])
        np.testing.assert_array_equal(read.prototypes, part.prototypes)
        assert path.stat().st_mode & 0o077 == 0
    for false in (b"", reply[:-8], reply.replace(b"poolctl-site-reply", b"poolctl-site-other")):
        with pytest.raises(InvalidInputError, match="reply to 'site-0' in round 1 cannot be used"):
            store.take_reply("site-0", 1, false)
    other = replace(part, personal={"fc.weight": np.ones((2, 514), np.bool_)})
    with pytest.raises(InvalidInputError, match=r"head/fc\.weight"):
        with_reply(other, reply)
