"""Rounds of split training in one process, for studies and as reference for the real processes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.models import Float32, NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.federated.local_training import clip_update, subtract_network
from site_agent.federated.plan import RoundModel, combine, first_model, seed_of
from site_agent.federated.private_training import plan_privacy
from site_agent.split.noise import Alter, Normaliser, SmashedNoise, sensitivity_of
from site_agent.split.parts import join_parts, split_network, to_part_module
from site_agent.split.plan import FEWEST_SITES, SplitPlan
from site_agent.split.training import (
    ServerHalf,
    contribution_of,
    count_batches,
    steps_of,
    train_client,
)
from site_agent.training.gaze.loop import batches, repeatable, to_tensors

_PARTS = ("client part", "server part")


@dataclass(frozen=True, eq=False)
class SplitRound:
    """A round that was held."""

    number: int
    """From 1."""
    client: RoundModel
    server: RoundModel
    """The parts with their digests."""
    losses: Mapping[str, float]
    """Mean loss of each site in radians; empty where the server part learns alone."""

    @property
    def network(self) -> StateDict:
        """The whole network."""
        return join_parts(self.client.network, self.server.network)


def run_split_rounds(
    base: StateDict, sites: Mapping[str, GazeSamples], plan: SplitPlan, *, guarded: bool = True
) -> Iterator[SplitRound]:
    """Hold the rounds of a plan, and yield each one when it has ended.

    `base`: The whole network to begin with. `sites`: At least 2 samples for each site. `guarded`:
    As for `train_client`.

    Raises
    ------
    TrainingDataError, TrainingFailedError
        A site cannot train.
    InvalidInputError
        The base is not of the plan's architecture, or means are asked for over too few sites.
    AggregatorError
        The parts cannot be averaged.
    """
    if plan.variant == "mean-smashed" and len(sites) < FEWEST_SITES:
        raise InvalidInputError(f"found {len(sites)} sites, expected at least {FEWEST_SITES}")
    parts = split_network(base, plan.found_cut)
    client, server = first_model(parts.client), first_model(parts.server)
    smashed: dict[str, SmashedData] = {}
    for number in range(1, plan.rounds + 1):
        losses: dict[str, float] = {}
        if plan.trains_server_alone:
            if plan.variant == "mean-smashed" or not smashed:
                smashed = {
                    site: smash(
                        client.network,
                        sites[site],
                        plan,
                        _noise(plan, site, number, client.network),
                    )
                    for site in sorted(sites)
                }
            if plan.variant == "mean-smashed":
                trained = _train_on_means(server.network, smashed, plan, number, guarded=guarded)
            else:
                trained = train_on_union(server.network, smashed, plan, number)
            server = first_model(trained)
        elif plan.is_private and plan.dp_covers == "person":
            client, server, losses = _hold_round_of_persons(client, server, sites, plan, number)
        else:
            client, server, losses = _hold_round(
                client, server, sites, plan, number, guarded=guarded
            )
        yield SplitRound(number, client, server, losses)


def _hold_round(
    client: RoundModel,
    server: RoundModel,
    sites: Mapping[str, GazeSamples],
    plan: SplitPlan,
    number: int,
    *,
    guarded: bool,
) -> tuple[RoundModel, RoundModel, dict[str, float]]:
    """Hold a round of V1 or V2."""
    clients: dict[str, NetworkContribution] = {}
    servers: dict[str, NetworkContribution] = {}
    losses = {}
    half = ServerHalf(server.network, plan, number, samples=2)
    for site in plan.order_in(number, sites):
        # Studies release nothing: their noise can be drawn again.
        seeds = [seed_of(plan.training.seed, f"{part} of {site}", number) for part in _PARTS]
        alter = _noise(plan, site, number, client.network)
        if plan.variant == "v1":
            half = ServerHalf(
                server.network, plan, number, samples=len(sites[site]), noise_seed=seeds[1]
            )
        try:
            made = train_client(
                client.network, sites[site], plan, half, site=site, round_number=number,
                guarded=guarded, alter=alter, noise_seed=seeds[0],
            )  # fmt: skip
        except TrainingFailedError as error:
            raise TrainingFailedError(f"site {site}: {error}") from error
        losses[site] = made.loss
        clients[site] = contribution_of(made.differences, made.samples, client.digest, plan)
        if plan.variant == "v1":
            tensors = subtract_network(half.trained(), server.network)
            change = StateDict(tensors, dict(server.network.infos))
            servers[site] = contribution_of(change, made.samples, server.digest, plan)
    averaged = combine(plan.averaging, client, clients).model
    if plan.variant == "v1":
        return averaged, combine(plan.averaging, server, servers).model, losses
    return averaged, first_model(half.trained()), losses


def _hold_round_of_persons(
    client: RoundModel,
    server: RoundModel,
    sites: Mapping[str, GazeSamples],
    plan: SplitPlan,
    number: int,
) -> tuple[RoundModel, RoundModel, dict[str, float]]:
    """Hold a round of V1 in which each person is one part of the means, clipped and noised.

    Source: McMahan et al. 2018, "Learning Differentially Private Recurrent Language Models".
    """
    privacy = plan_privacy(plan.training, 1)
    plainly = plan.model_copy(
        update={"training": plan.training.model_copy(update={"dp_epsilon": None}), "mean": "sites"}
    )
    persons = {
        f"{site}/{person}": samples[samples.person == person]
        for site, samples in sites.items()
        for person in np.unique(samples.person)
    }
    clip, losses = plan.training.clip / math.sqrt(2), {}
    updates: dict[str, dict[str, NetworkContribution]] = {part: {} for part in _PARTS}
    for name, samples in persons.items():
        half = ServerHalf(server.network, plainly, number)
        made = train_client(client.network, samples, plainly, half, site=name, round_number=number)
        tensors = subtract_network(half.trained(), server.network)
        changes = made.differences, StateDict(tensors, dict(server.network.infos))
        for part, change, base in zip(_PARTS, changes, (client, server), strict=True):
            whole = contribution_of(change, len(samples), base.digest, plainly)
            updates[part][name] = clip_update(whole, clip)
        losses[name] = made.loss
    seed = seed_of(plan.training.seed, "noise of all persons", number)
    generator = np.random.default_rng(seed)
    deviation = privacy.noise_multiplier * plan.training.clip / len(persons)
    results = []
    for part, base in zip(_PARTS, (client, server), strict=True):
        mean = combine(plainly.averaging, base, updates[part]).model.network
        tensors = {
            name: values + generator.normal(0.0, deviation, values.shape).astype(np.float32)
            for name, values in mean.tensors.items()
        }
        results.append(first_model(StateDict(tensors, dict(mean.infos), dict(mean.metadata))))
    return results[0], results[1], losses


def _noise(plan: SplitPlan, site: str, number: int, part: StateDict) -> Alter:
    """Return the noise on a site's smashed data in a round."""
    if plan.noise_level == 0:
        return lambda smashed: smashed
    seed = seed_of(plan.training.seed, f"smashed data of {site}", number)
    generator = torch.Generator().manual_seed(seed)
    return SmashedNoise.of(plan).alter(sensitivity_of(part, plan.found_cut), generator)


@dataclass(frozen=True, eq=False)
class SmashedData:
    """The client part's output for all images of a site: `smashed` has shape (n, ...)."""

    smashed: Float32
    head: Float32
    gaze: Float32

    def __len__(self) -> int:
        return len(self.smashed)


def smash(part: StateDict, samples: GazeSamples, plan: SplitPlan, alter: Alter) -> SmashedData:
    """Return a client part's smashed data of all images of a site, without training it."""
    module = to_part_module(part, plan.found_cut, "client")
    front = plan.found_cut.front_stages(module.stages)
    Normaliser(module, plan)
    with repeatable(), torch.no_grad():
        data = to_tensors(samples)
        # In pieces, as the first stages of all images at once take much memory.
        results = [
            alter(module.run_stages(front, data.patches[piece], data.head[piece])).contiguous()
            for piece in torch.split(torch.arange(len(data)), 256)
        ]
        return SmashedData(torch.cat(results).numpy(), data.head.numpy(), data.gaze.numpy())


def train_on_union(
    part: StateDict, smashed: Mapping[str, SmashedData], plan: SplitPlan, number: int
) -> StateDict:
    """Train a server part as a data centre would, on the smashed data of all sites."""
    half = ServerHalf(part, plan, number)
    together = SmashedData(
        *(
            np.concatenate([getattr(smashed[site], name) for site in sorted(smashed)])
            for name in ("smashed", "head", "gaze")
        )
    )
    generator = torch.Generator().manual_seed(seed_of(plan.training.seed, "all sites", number))
    step = 0
    for _ in range(plan.training.epochs):
        order = torch.randperm(len(together), generator=generator)
        for batch in batches(order, plan.training.batch_size):
            chosen = batch.numpy()
            half.step(step, *_take(together, chosen))
            step += 1
    return half.trained()


def _train_on_means(
    part: StateDict,
    smashed: Mapping[str, SmashedData],
    plan: SplitPlan,
    number: int,
    *,
    guarded: bool,
) -> StateDict:
    """Train a server part on the means of the i-th batches of at least 3 sites."""
    half = ServerHalf(part, plan, number)
    size, epochs = plan.training.batch_size, plan.training.epochs
    if guarded:
        size = min(steps_of(plan, len(item))[0] for item in smashed.values())
    generators = {
        site: torch.Generator().manual_seed(seed_of(plan.training.seed, site, number))
        for site in sorted(smashed)
    }
    step = 0
    for _ in range(epochs):
        orders = {
            site: torch.randperm(len(smashed[site]), generator=generators[site]).numpy()
            for site in generators
        }
        for index in range(max(count_batches(len(item), size) for item in smashed.values())):
            part_of = slice(index * size, (index + 1) * size)
            chosen = [
                _take(smashed[site], order[part_of])
                for site, order in orders.items()
                if len(order) >= part_of.stop
            ]
            if len(chosen) >= FEWEST_SITES:
                means = (np.mean(np.stack(item), axis=0) for item in zip(*chosen, strict=True))
                half.step(step, *means)
                step += 1
    return half.trained()


def _take(data: SmashedData, chosen: NDArray[np.int64]) -> tuple[Float32, Float32, Float32]:
    return data.smashed[chosen], data.head[chosen], data.gaze[chosen]
