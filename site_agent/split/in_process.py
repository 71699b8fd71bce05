"""Rounds of split training in one process, for studies and as reference for the real processes."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

from aggregators.models import NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.federated.local_training import clip_update, subtract_network
from site_agent.federated.plan import RoundModel, combine, first_model, seed_of
from site_agent.federated.private_training import plan_privacy
from site_agent.split.frozen import SmashedData, smash, train_on_means_of, train_on_union
from site_agent.split.noise import Alter, SmashedNoise, sensitivity_of
from site_agent.split.parts import join_parts, split_network
from site_agent.split.plan import FEWEST_SITES, SplitPlan
from site_agent.split.training import ServerHalf, contribution_of, train_client

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
    base: StateDict, sites: Mapping[str, GazeSamples], plan: SplitPlan
) -> Iterator[SplitRound]:
    """Hold the rounds of a plan, and yield each one when it has ended.

    `base`: The whole network to begin with. `sites`: At least 2 samples for each site.

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
                trained = train_on_means_of(server.network, smashed, plan, number)
            else:
                trained = train_on_union(server.network, smashed, plan, number)
            server = first_model(trained)
        elif plan.is_private and plan.dp_covers == "person":
            client, server, losses = _hold_round_of_persons(client, server, sites, plan, number)
        else:
            client, server, losses = _hold_round(client, server, sites, plan, number)
        yield SplitRound(number, client, server, losses)


def _hold_round(
    client: RoundModel,
    server: RoundModel,
    sites: Mapping[str, GazeSamples],
    plan: SplitPlan,
    number: int,
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
                alter=alter, noise_seed=seeds[0],
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
