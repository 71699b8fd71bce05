"""Bases of saliency networks that photograph tokens of clips, and the sites' defence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from aggregators.methods.round_options import LocalTraining
from aggregators.models import StateDict
from site_agent.datasets.egocentric import ClipSamples
from site_agent.datasets.synthetic.egocentric_clips import ClipSettings, write_clips
from site_agent.errors import ContributionWithheldError, InvalidInputError
from site_agent.federated.leak_checks import audit_base, require_safe
from site_agent.federated.local_training import train_at_site
from site_agent.federated.tasks import SaliencyTask, task_of_network
from site_agent.networks.modules import from_module, new_network, to_module
from site_agent.training.saliency import saliency_loss
from tests.site_agent.datasets.gaze.made import folder_of, samples_of

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


def first_gradient(base: StateDict, clips: ClipSamples) -> dict[str, Any]:
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
    assert read_tokens(first_gradient(base, clips), tokens) > 10
    honest: Any = to_module(new_network("glc-tiny"))
    seen = _inputs_of(honest.blocks[0].mlp.fc1, honest, clips)
    assert read_tokens(first_gradient(from_module(honest, "glc-tiny"), clips), seen) < 3
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
