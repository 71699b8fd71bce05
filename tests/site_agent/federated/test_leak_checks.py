"""Bases built to photograph the data of others, of eyes and of clips, and the sites' defence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from aggregators.pruning import prune, weights_of_layers
from site_agent.attacks.gradients import read_inputs
from site_agent.datasets.egocentric import ClipSamples
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from site_agent.datasets.synthetic.eye_patches.dataset import (
    RenderSettings,
    render_person,
    write_eye_dataset,
)
from site_agent.errors import ContributionWithheldError, InvalidInputError
from site_agent.federated import leak_checks
from site_agent.federated.leak_checks import (
    MOST_COSINE,
    LayerInputs,
    _parallel_rows,
    audit_base,
    batch_size_for,
    objections_to_training,
    passes_for,
    require_safe,
    warn_of_few,
)
from site_agent.federated.local_training import train_at_site
from site_agent.federated.tasks import SaliencyTask, task_of_network
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.training.saliency import saliency_loss
from tests.made_once import made_once
from tests.site_agent.datasets.gaze.made import folder_of, samples_of
from tests.site_agent.federated.network_cameras import (
    KINDS,
    Kind,
    build_code_camera,
    build_network_camera,
    first_gradient,
    read_filters,
    read_neighbours,
)

WORDS = {
    "imprint": "500 of the 500 units of fc1 measure the same",
    "alternating": "500 of the 500 units of fc1 measure the same",
    "hidden": "20 of the 500 units of fc1 measure the same",
    "decoy": "500 of the 500 units of fc1 answer alike to your samples",
    "convolutional": "half of the answers of fc1 come from units that answer to at most",
}


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> tuple[GazeSamples, GazeSamples]:
    """The starter's data, and the victim's: other persons."""
    settings = RenderSettings(persons=4, frames_per_person=120, seed=3)
    folder = made_once(
        tmp_path_factory, "camera-eyes", lambda place: write_eye_dataset(place / "eyes", settings)
    )
    samples = open_gaze(folder / "eyes").read()
    is_public = np.isin(samples.person, ["p00", "p01"])
    return samples[is_public], samples[~is_public]


def contribute(base: StateDict, samples: GazeSamples, **settings: float) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    made = train_at_site(
        base,
        "ab" * 32,
        samples,
        LocalTraining.model_validate(settings),
        site="site-a",
        round_number=1,
    ).contribution
    return dict(made.network.tensors)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=[] if kind in {"imprint", "hidden", "decoy"} else [pytest.mark.slow]
        )
        for kind in KINDS
    ],
)
def test_cameras_are_refused_and_what_they_ask_for(
    eyes: tuple[GazeSamples, GazeSamples], kind: Kind
) -> None:
    public, victim = eyes
    camera = build_network_camera(kind, public)
    # The attack works: what one step on all samples would show.
    read = read_neighbours if kind == "decoy" else read_inputs
    shown = read(camera, first_gradient(camera, victim), victim)
    assert len(shown) > (5 if kind == "hidden" else len(victim) // 8)
    assert WORDS[kind] in " ".join(audit_base(camera, victim))
    with pytest.raises(ContributionWithheldError, match="is not a trained network"):
        require_safe("r1", camera, victim, LocalTraining())
    # A refusal would tell of the victim's data, and no bound would cover that.
    require_safe("r1", camera, victim, LocalTraining(dp_epsilon=8))


def test_units_that_one_person_moves_alike_pass_and_rows_behind_still_inputs_do_not() -> None:
    """To one person's pictures most units answer by the same few numbers; no row is another's."""
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(200, 256, generator=draw)
    moved = torch.full((256,), 1 / 16)
    rows = torch.randn(40, 256, generator=draw)
    rows -= (rows @ moved)[:, None] * moved
    rows = moved + 7.5 * rows / rows.norm(dim=1, keepdim=True)
    alike = 3 * torch.randn(200, 1, generator=draw) * moved + 0.041 * noise
    correlations = torch.corrcoef((alike @ rows.T).T)
    assert ((correlations > 0.98).sum(1) > 20).all()
    assert _audit_layer(rows, alike) == []

    still = noise.clone()
    still[:, :128] *= 0.011
    camera = 10 * torch.randn(40, 256, generator=draw)
    camera[:, 128:] = torch.randn(128, generator=draw)
    assert _parallel_rows(camera, MOST_COSINE) == 0
    [objection] = _audit_layer(camera, still)
    assert objection.startswith("40 of the 40 units of 0 measure the same: their weights, by how")


def test_a_few_units_that_always_answer_hide_no_camera(
    eyes: tuple[GazeSamples, GazeSamples],
) -> None:
    public, victim = eyes
    camera = build_network_camera("convolutional", public)
    bias = np.array(camera.tensors["fc1.bias"])
    bias[:20] = 10.0
    hiding = StateDict({**camera.tensors, "fc1.bias": bias}, camera.infos, camera.metadata)
    assert len(read_inputs(hiding, first_gradient(hiding, victim), victim)) > len(victim) // 8
    assert WORDS["convolutional"] in " ".join(audit_base(hiding, victim))
    update = contribute(hiding, victim, batch_size=65_536, momentum=0.0, learning_rate=1e-3)
    assert len(read_inputs(hiding, update, victim)) <= 0.02 * len(victim)


def test_units_that_seldom_answer_pass_next_to_others_that_do() -> None:
    """Persons unlike those that trained a network move many of its units now and then."""
    draw = torch.Generator().manual_seed(0)
    rows, samples = torch.randn(40, 256, generator=draw), torch.randn(400, 256, generator=draw)
    seldom = -torch.quantile(samples @ rows.T, 0.99, dim=0)
    usual = torch.where(torch.arange(40) < 30, seldom, 0.0)
    assert _audit_layer(rows, samples, usual) == []
    [objection] = _audit_layer(rows, samples, seldom)
    assert objection.startswith("half of the answers of 0 come from units that answer to at most 1")


def _audit_layer(
    rows: torch.Tensor, samples: torch.Tensor, bias: torch.Tensor | None = None
) -> list[str]:
    module = torch.nn.Sequential(torch.nn.Linear(rows.shape[1], len(rows)))
    module[0].weight = torch.nn.Parameter(rows)
    module[0].bias = torch.nn.Parameter(torch.zeros(len(rows)) if bias is None else bias)
    inputs = LayerInputs(module)
    inputs.run(module, (samples,))
    return leak_checks._objections_to_layers(inputs, len(samples), ())


def test_what_a_camera_would_get_that_is_not_noticed(eyes: tuple[GazeSamples, GazeSamples]) -> None:
    """Rows of few samples are kept back: the strongest attack reads next to nothing, unclearly."""
    public, victim = eyes
    camera = build_network_camera("convolutional", public)
    update = contribute(camera, victim, batch_size=65_536, momentum=0.0)
    readings = read_inputs(camera, update, victim)
    assert len(readings) <= 0.02 * len(victim), "by differences of rows with nearly equal updates"
    assert all(gain_db < 12 for gain_db, _ in readings.values())
    assert (update["fc1.weight"] == 0).all(axis=1).sum() > 50


def test_differences_of_neighbouring_rows_show_fewer_samples(
    eyes: tuple[GazeSamples, GazeSamples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row of a decoy camera rests on few samples, but neighbours differ by one."""
    public, victim = eyes[0], eyes[1][::3]
    camera = build_network_camera("decoy", public)
    settings = {"batch_size": 65_536, "momentum": 0.0, "learning_rate": 1e-4}
    guarded = read_neighbours(camera, contribute(camera, victim, **settings), victim)
    monkeypatch.setattr(leak_checks, "_readable_pairs", lambda *rows: torch.zeros_like(rows[-1]))
    by_rows = read_neighbours(camera, contribute(camera, victim, **settings), victim)
    assert len(guarded) < len(by_rows) / 2


@pytest.mark.parametrize("count", [6, 40])
def test_rows_whose_difference_or_sum_is_an_input_are_found(count: int) -> None:
    """Of few inputs with many numbers, and of many with few; about a mean far from zero."""
    draw = torch.Generator().manual_seed(count)
    inputs = 3 + torch.randn(count, 12, generator=draw)
    weight = 5 * torch.randn(9, 12, generator=draw)
    bias = torch.randn(9, generator=draw)
    for row, other, sign in ((4, 1, 1), (7, 2, -1)):
        bias[row] = sign * bias[other] + 0.5
        weight[row] = sign * weight[other] + 0.5 * inputs[3]
    shown = torch.arange(9) == 8
    weight[8] = weight[4]
    marked = leak_checks._readable_pairs(weight, bias, inputs, shown)
    assert {1, 4} & (rows := set(torch.nonzero(marked).flatten().tolist()))
    assert {2, 7} & rows
    assert len(rows) == 2, "without one of its rows a pair shows nothing more"


def test_filters_of_few_samples_are_kept_back(
    eyes: tuple[GazeSamples, GazeSamples], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit does not notice a camera of filters; each shows one place of one picture."""
    public, victim = eyes[0], eyes[1][::2]
    camera = build_network_camera("filters", public)
    assert audit_base(camera, victim) == []
    settings = {"batch_size": 65_536, "momentum": 0.0, "learning_rate": 1e-4}
    guarded = contribute(camera, victim, **settings)
    assert read_filters(camera, guarded, victim) == {}
    assert (guarded["conv2.weight"] == 0).all(axis=(1, 2, 3)).sum() > 5
    monkeypatch.setattr(leak_checks, "_CONVOLUTIONS", ())
    assert len(read_filters(camera, contribute(camera, victim, **settings), victim)) > 1


def test_the_audit_is_no_promise(eyes: tuple[GazeSamples, GazeSamples]) -> None:
    """Decoys off the span of public pictures pass, and a site's contribution shows a few."""
    public, victim = eyes[0], eyes[1][::2]
    camera = build_network_camera("off the span", public)
    assert audit_base(camera, victim) == []
    assert read_neighbours(camera, first_gradient(camera, victim), victim)
    update = contribute(camera, victim, batch_size=65_536, momentum=0.0, learning_rate=1e-3)
    assert len(read_neighbours(camera, update, victim)) <= 0.03 * len(victim)


def test_decoders_that_sort_eyes_are_refused() -> None:
    settings = RenderSettings(persons=1, frames_per_person=60, both_eyes=True, seed=3)
    samples = render_person(settings, 0)
    objections = " ".join(audit_base(build_code_camera(samples), samples))
    assert "units of decoder.fc answer alike to your samples" in objections
    assert audit_base(new_network("cross-encoder-small", 1), samples) == []


def test_an_honest_base_shows_single_samples_only_before_rows_are_kept_back(
    eyes: tuple[GazeSamples, GazeSamples],
) -> None:
    few = eyes[1][::6]
    base = new_network("gaze-lenet", 1)
    assert len(read_inputs(base, first_gradient(base, few), few)) > 3
    assert read_inputs(base, contribute(base, few), few) == {}


def test_honest_bases_pass(eyes: tuple[GazeSamples, GazeSamples]) -> None:
    public, private = eyes
    network = new_network("gaze-lenet", 2)
    bases = {"fresh": network, "wide": new_network("gaze-lenet-wide", 3)}
    for number in range(3):
        update = contribute(network, public, learning_rate=0.02, batch_size=8)
        tensors = {name: network.tensors[name] + update[name] for name in network.infos}
        network = StateDict(tensors, network.infos, network.metadata)
        bases[f"trained {number}"] = network
    bases["pruned"] = prune(network, weights_of_layers(network, "linear"), 0.9)
    for samples in (private, private[::7]):
        for name, base in bases.items():
            assert audit_base(base, samples) == [], name


def test_settings_that_no_site_accepts() -> None:
    assert objections_to_training(LocalTraining()) == []
    [objection] = objections_to_training(LocalTraining(epochs=1000))
    assert objection == "the round asks for epochs 1000, and sites train with at most 100"
    [objection] = objections_to_training(LocalTraining(batch_size=1))
    assert objection == "the round asks for batch_size 1, and sites train with at least 2"
    assert len(objections_to_training(LocalTraining(learning_rate=5, momentum=0.999))) == 2


def test_a_step_takes_at_most_an_eighth_of_the_samples() -> None:
    asked = LocalTraining(batch_size=65_536)
    assert [batch_size_for(asked, count) for count in (2, 17, 800)] == [2, 2, 100]
    assert batch_size_for(LocalTraining(batch_size=8), 800) == 8
    assert [passes_for(asked, count) for count in (2, 8, 17, 800)] == [8, 2, 1, 1]
    assert "rests on 17 samples and 9 steps" in warn_of_few(asked, 17)
    assert not warn_of_few(asked, 800)


TASK = SaliencyTask("glc-tiny")

TRAINING = LocalTraining(optimiser="adamw", learning_rate=0.001, batch_size=4)


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> ClipSamples:
    folder = tmp_path_factory.mktemp("clip-cameras") / "clips"
    write_clips(folder, ClipSettings(persons=1, videos=10, seconds=3))
    samples: ClipSamples = TASK.read(folder)
    return samples


def camera(clips: ClipSamples) -> tuple[StateDict, torch.Tensor]:
    """Return a base that sorts tokens by thresholds, and the tokens that it gets to see.

    All rows of the first MLP measure the same, with thresholds between the largest of the victim's
    own tokens: more than an attacker can know (Fowl et al. 2022, and "Decepticons" for tokens).
    """
    module: Any = to_module(new_network("glc-tiny"))
    block = module.blocks[0]
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        block.attn.proj.weight.zero_()
        tokens = _inputs_of(block.mlp.fc1, module, clips)
        row = torch.randn(tokens.shape[1], generator=draw)
        units = block.mlp.fc1.out_features
        highest = (tokens @ row).sort(descending=True).values[: units + 1]
        steep = 1e3
        block.mlp.fc1.weight[:] = steep * row
        block.mlp.fc1.bias[:] = -steep * (highest[:-1] + highest[1:]) / 2
        block.mlp.fc2.weight[:] = torch.randn(block.mlp.fc2.weight.shape[0], 1, generator=draw)
    return from_module(module, "glc-tiny"), tokens


def _inputs_of(layer: torch.nn.Module, module: Any, clips: ClipSamples) -> torch.Tensor:
    seen: list[torch.Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _layer, inputs: seen.append(inputs[0].detach()))
    module(*TASK.to_tensors(clips).inputs(slice(None)))
    hook.remove()
    return seen[0].flatten(0, -2)


def first_gradient_of_clips(base: StateDict, clips: ClipSamples) -> dict[str, Any]:
    module, data = to_module(base), TASK.to_tensors(clips)
    logits = module(*data.inputs(slice(None)))[:, 0]
    saliency_loss(logits, data.targets).backward()  # type: ignore[no-untyped-call]
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def read_tokens(gradient: dict[str, Any], tokens: torch.Tensor) -> int:
    """Return how many tokens of the victim are found in the differences of neighbouring rows."""
    weight = torch.as_tensor(gradient["blocks.0.mlp.fc1.weight"]).diff(dim=0)
    bias = torch.as_tensor(gradient["blocks.0.mlp.fc1.bias"]).diff()
    usable = bias.abs() > 1e-12
    readings = weight[usable] / bias[usable, None]
    distances = torch.cdist(readings, tokens).min(dim=1).values
    return int((distances < 0.1 * tokens.norm(dim=1).mean()).sum())


def test_a_camera_of_tokens_works_and_is_refused(clips: ClipSamples) -> None:
    base, tokens = camera(clips)
    assert read_tokens(first_gradient_of_clips(base, clips), tokens) > 10
    honest: Any = to_module(new_network("glc-tiny"))
    seen = _inputs_of(honest.blocks[0].mlp.fc1, honest, clips)
    assert read_tokens(first_gradient_of_clips(from_module(honest, "glc-tiny"), clips), seen) < 3
    assert "units of blocks.0.mlp.fc1 measure the same" in " ".join(audit_base(base, clips))
    with pytest.raises(ContributionWithheldError, match="is not a trained network"):
        require_safe("r1", base, clips, TRAINING)


def test_honest_bases_pass_and_rows_of_few_clips_stay_at_home(clips: ClipSamples) -> None:
    network = new_network("glc-tiny", 1)
    for number in range(1, 3):
        assert audit_base(network, clips) == []
        made = train_at_site(
            network, "ab" * 32, clips, TRAINING, site="site-a", round_number=number
        ).contribution
        tensors = {
            name: network.tensors[name] + made.network.tensors[name] for name in made.network.infos
        }
        network = StateDict(tensors, network.infos, network.metadata)
    few = train_at_site(network, "ab" * 32, clips[:4], TRAINING, site="site-a", round_number=3)
    sent = few.contribution.network.tensors
    assert not sent["blocks.0.mlp.fc1.weight"].any()
    assert not sent["global_fuse.attn.proj.weight"].any()
    assert not sent["patch_embed.proj.weight"].any()
    assert sent["norm.weight"].any()


def test_data_of_the_other_kind_are_refused(clips: ClipSamples, tmp_path: Path) -> None:
    assert isinstance(task_of_network(new_network("glc-tiny")), SaliencyTask)
    patches = folder_of(tmp_path, samples_of("a", 12))
    with pytest.raises(InvalidInputError, match="holds eye patches; the network is trained with"):
        TASK.read(patches)
    assert len(np.unique(clips.person)) == 1
