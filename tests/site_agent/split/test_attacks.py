"""Attacks of the maker of a client part and of the main server, and the site's answers."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from aggregators.methods.round_options import LocalTraining
from aggregators.models import Float32, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.errors import ContributionWithheldError, InvalidInputError, TrainingFailedError
from site_agent.networks.modules import new_network
from site_agent.split.cuts import find_cut
from site_agent.split.frozen import smash
from site_agent.split.kits import SplitKit, draw_client_part, provision, read_kit
from site_agent.split.part_checks import (
    audit_client_part,
    distance,
    require_known_origin,
    require_near,
)
from site_agent.split.parts import join_parts, split_network, to_part_module
from site_agent.split.plan import SplitPlan
from site_agent.split.training import ServerHalf, StepAnswer, train_client
from site_agent.training.gaze.loop import to_tensors
from tests.site_agent.federated.small_sites import samples_at, small_sites
from tests.site_agent.split.live_split import make_kits

PLAN = SplitPlan(training=LocalTraining(learning_rate=0.01, epochs=4))
CUT = find_cut("gaze-lenet", "pool1")


def code_of_pictures() -> StateDict:
    """Return a client part with filters of two weights: the sums of neighbouring pixels."""
    part = draw_client_part(PLAN, 3)
    weight = np.zeros_like(part.tensors["conv1.weight"])
    for number in range(len(weight)):
        row, column = divmod(number, 4)
        weight[number, 0, row, column : column + 2] = 0.7
    return StateDict({**part.tensors, "conv1.weight": weight}, part.infos, part.metadata)


def test_a_code_of_the_pictures_passes_the_audit_but_not_the_look_at_its_origin(
    tmp_path: Path,
) -> None:
    code = code_of_pictures()
    assert audit_client_part(code, samples_at(0), CUT) == []
    server = split_network(new_network("gaze-lenet", 0), CUT).server
    server = StateDict(
        server.tensors,
        server.infos,
        {**code.metadata, "architecture": server.metadata["architecture"]},
    )
    addresses = {"server": "localhost:1", "aggregator": "localhost:2"}
    provision(
        tmp_path / "made", PLAN, join_parts(code, server), addresses=addresses,
        sites=list(small_sites()), client_seed=3,
    )  # fmt: skip
    made = read_kit(tmp_path / "made" / "site-0")
    with pytest.raises(ContributionWithheldError, match="was not drawn from a seed"):
        require_known_origin(made, "")
    with pytest.raises(ContributionWithheldError, match="is not the one of seed 3, drawn by torch"):
        require_known_origin(replace(made, client_seed=3), "")
    require_known_origin(made, made.first_client)


def test_sites_repeat_the_first_part_and_the_server_cannot(tmp_path: Path) -> None:
    kits = make_kits(tmp_path, PLAN, client_seed=None)
    seeds = {kits[site].client_seed for site in small_sites()}
    assert len(seeds) == 1
    assert None not in seeds
    assert kits["server"].client_seed is None
    require_known_origin(kits["site-0"], "")


def test_kits_of_earlier_versions_are_read_or_refused_by_name(tmp_path: Path) -> None:
    make_kits(tmp_path, PLAN)
    file = tmp_path / "site-0" / "kit.json"
    facts = json.loads(file.read_text())

    def read(**changes: str) -> SplitKit:
        file.write_text(json.dumps({**facts, "plan": {**facts["plan"], **changes}}))
        return read_kit(file.parent)

    assert read(noise="laplace").plan == PLAN
    with pytest.raises(InvalidInputError, match="gaussian noise, expected laplace"):
        read(noise="gaussian")
    for variant in ("v2", "frozen-client"):
        with pytest.raises(InvalidInputError, match=f"{variant}: processes hold v1"):
            read(variant=variant)


def test_a_part_that_the_aggregator_swaps_is_refused() -> None:
    part = draw_client_part(PLAN, 3)
    swapped = code_of_pictures()
    for size in (0.01, 0.3, 1.0):
        tensors = {name: size * values for name, values in swapped.tensors.items()}
        with pytest.raises(ContributionWithheldError, match="of its size away from the last"):
            require_near("2 of 5", StateDict(tensors, part.infos, part.metadata), part, CUT)
    near = {name: 1.1 * values for name, values in part.tensors.items()}
    require_near("2 of 5", StateDict(near, part.infos, part.metadata), part, CUT)


class Hijacker:
    """A main server that trains the client part to be a code of the pictures.

    It knows the pictures already: one that has to guess them gets less.

    `pull`: Size of its gradients times that of the smashed data.
    """

    def __init__(self, samples: GazeSamples, pull: float) -> None:
        module = to_part_module(code_of_pictures(), CUT, "client")
        data = to_tensors(samples)
        with torch.no_grad():
            self._aim = module.run_stages(CUT.front_stages(module.stages), data.patches, data.head)
        self._gaze, self._pull = data.gaze, pull

    def step(self, number: int, smashed: Float32, head: Float32, gaze: Float32) -> StepAnswer:
        which = torch.cdist(torch.from_numpy(gaze), self._gaze).argmin(dim=1)
        gradient = smashed - self._aim[which].numpy()
        size = float(np.linalg.norm(gradient)) * float(np.linalg.norm(smashed))
        return StepAnswer((self._pull / size * gradient).astype(np.float32), 0.1)

    forward = backward = None  # type: ignore[assignment]


@pytest.mark.parametrize(("pull", "word"), [(300.0, "pulls by 300"), (40.0, "has moved the part")])
def test_a_server_with_another_aim_is_left(pull: float, word: str) -> None:
    """Feature-space hijacking: without bounds the part ends as the server likes."""
    samples, part = samples_at(0), draw_client_part(PLAN, 3)
    plan = PLAN.model_copy(update={"optimiser": "adam"})
    hijacker = Hijacker(samples, pull)
    long = plan.model_copy(update={"training": LocalTraining(learning_rate=0.01, epochs=40)})
    made = train_client(part, samples, long, hijacker, site="a", round_number=1, guarded=False)
    end = {name: part.tensors[name] + made.differences.tensors[name] for name in part.infos}
    aim = code_of_pictures().tensors
    assert distance(end, aim, CUT) < 0.3
    assert distance(part.tensors, aim, CUT) > 1
    with pytest.raises(TrainingFailedError, match=f"{word}.*serves another aim than your gaze"):
        train_client(part, samples, long, hijacker, site="a", round_number=1)


class Observed(ServerHalf):
    """A main server of cut `u` that remembers the last gradients by its features."""

    gradients: Float32

    def backward(self, number: int, gradient: Float32) -> Float32:
        self.gradients = gradient
        return super().backward(number, gradient)


def test_the_server_of_cut_u_computes_the_gaze_from_its_own_numbers() -> None:
    """No label is sent, but gradients have four values: sums of two of them are the last layer."""
    training = LocalTraining(learning_rate=0.02, learning_rate_decay=0.2, batch_size=16)
    plan = SplitPlan(cut="u", rounds=5, training=training)
    samples = render_person(RenderSettings(persons=1, frames_per_person=100, seed=5), 0)
    parts = split_network(new_network("gaze-lenet", 1), plan.found_cut)
    client, server = parts.client, parts.server
    for number in range(1, plan.rounds + 1):
        observed = Observed(server, plan, number)
        made = train_client(client, samples, plan, observed, site="a", round_number=number)
        changed = {
            name: client.tensors[name] + made.differences.tensors[name] for name in client.infos
        }
        client, server = StateDict(changed, client.infos, client.metadata), observed.trained()
    one = observed.gradients[0]
    other = min(observed.gradients, key=lambda row: abs(float(row @ one)))
    smashed = smash(client, samples, plan, lambda data: data).smashed
    seen = observed.forward(0, smashed) @ np.stack([one + other, one - other], axis=1)
    correlations = np.abs(np.corrcoef(seen.T, samples.gaze.T)[:2, 2:])
    yaw_first, pitch_first = correlations.diagonal().min(), correlations[::-1].diagonal().min()
    assert max(yaw_first, pitch_first) > 0.7
