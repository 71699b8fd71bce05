"""The arithmetic of split training: a site's half of each step, and the server's half.

Laws, with the same batches: one site trains as the undivided network would; with several sites and
a server part for each (V1), averaging both parts is FedAvg of whole networks. The tensors of both
halves are laid out in memory as those of whole networks, so that even the roundings agree.
"""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.nn import functional

from aggregators.models import Float32, NetworkContribution, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.errors import TrainingDataError
from site_agent.federated.leak_checks import WatchedRows, batch_size_for, passes_for
from site_agent.federated.local_training import subtract_network
from site_agent.federated.plan import seed_of
from site_agent.federated.private_training import plan_privacy
from site_agent.networks.gaze_modules import Stage, StagedNetwork
from site_agent.split import part_checks
from site_agent.split.noise import Alter, Normaliser
from site_agent.split.parts import from_part_module, to_part_module
from site_agent.split.plan import SplitPlan
from site_agent.split.private_steps import PrivateSteps
from site_agent.training.gaze.loop import batches, make_optimiser, repeatable, to_tensors


@dataclass(frozen=True)
class StepAnswer:
    """The server's answer to a step."""

    gradient: Float32
    """Gradient of the mean loss with respect to the smashed data, in their shape."""
    loss: float
    """Mean absolute difference of yaw and pitch in radians."""


class Server(Protocol):
    """The server of a site's steps, near or far.

    Laws: steps are numbered from 0 without gaps; a repeated step gets the same answer and changes
    nothing.
    """

    def step(self, number: int, smashed: Float32, head: Float32, gaze: Float32) -> StepAnswer:
        """Take a step on smashed data (n, ...), head angles (n, 2) and gaze (n, 2)."""

    def forward(self, number: int, smashed: Float32) -> Float32:
        """Return the server part's features of smashed data, for the client's tail."""

    def backward(self, number: int, gradient: Float32) -> Float32:
        """Complete the step of `forward`; return the gradient by the smashed data."""


_MOST_GRADIENT = 1.0
"""Norm of a step of the server's part under noise at the thesis' scale (4.4.1)."""


class ServerHalf:
    """A server part while it is trained in a round.

    `samples`: Of the site; only for differential privacy that covers both parts. `noise_seed`: As
    `samples`; drawn by the party that must not be able to remove the noise.
    """

    def __init__(
        self,
        part: StateDict,
        plan: SplitPlan,
        round_number: int,
        *,
        samples: int = 0,
        noise_seed: int | None = None,
    ) -> None:
        self._part, self._cut = part, plan.found_cut
        self._clips = plan.noise_level > 0 and plan.noise_scale == "thesis"
        self.module = to_part_module(part, self._cut, "server").train()
        self._optimiser = new_optimiser(plan, self.module, round_number)
        self._stages = self._cut.server_stages(self.module.stages)
        self._under_way: tuple[torch.Tensor, torch.Tensor] | None = None
        self._private: PrivateSteps | None = None
        if plan.is_private and plan.dp_covers == "whole":
            self._private = private_steps(self.module, plan, samples, noise_seed)

    def step(self, number: int, smashed: Float32, head: Float32, gaze: Float32) -> StepAnswer:  # noqa: ARG002
        """See `Server`."""
        with repeatable():
            self._optimiser.zero_grad(set_to_none=True)
            x = self._input(smashed)
            if not len(x):
                self._step(0)
                return StepAnswer(smashed, 0.0)
            output = self.module.run_stages(self._stages, x, torch.from_numpy(head))
            loss = functional.l1_loss(output, torch.from_numpy(gaze))
            # Gradients of single samples are those of a sum.
            scale = 1 if self._private is None else len(x)
            (loss * scale).backward()  # type: ignore[no-untyped-call]
            self._step(len(x))
        assert x.grad is not None
        return StepAnswer((x.grad / scale).numpy(), float(loss.detach()))

    def _input(self, smashed: Float32) -> torch.Tensor:
        x = torch.from_numpy(smashed) if self._private is not None else as_tensor(smashed)
        return x.requires_grad_()

    def _step(self, rows: int) -> None:
        if self._private is not None:
            self._private.finish(rows)
        elif not rows:
            return
        elif self._clips:
            torch.nn.utils.clip_grad_norm_(self.module.parameters(), _MOST_GRADIENT)
        self._optimiser.step()

    def forward(self, number: int, smashed: Float32) -> Float32:  # noqa: ARG002
        """See `Server`."""
        with repeatable():
            self._optimiser.zero_grad(set_to_none=True)
            x = self._input(smashed)
            # The stages of the server need no head angles where the client has the tail.
            with torch.set_grad_enabled(len(x) > 0):
                output = self.module.run_stages(self._stages, x, x.new_zeros(len(x), 2))
        self._under_way = x, output
        return output.detach().numpy()

    def backward(self, number: int, gradient: Float32) -> Float32:  # noqa: ARG002
        """See `Server`."""
        assert self._under_way is not None, "backward without forward"
        x, output = self._under_way
        self._under_way = None
        if not len(x):
            self._step(0)
            return x.detach().numpy()
        scale = 1 if self._private is None else len(x)
        with repeatable():
            output.backward(as_tensor(gradient) * scale)  # type: ignore[no-untyped-call]
            self._step(len(x))
        assert x.grad is not None
        return (x.grad / scale).numpy()

    def trained(self) -> StateDict:
        """Return the part as it is now."""
        return from_part_module(self.module, self._part)


@dataclass(frozen=True, eq=False)
class ClientUpdate:
    """The client part after a site's training."""

    differences: StateDict
    """From the part with which the round began."""
    samples: int
    steps: int
    loss: float
    """Mean over all steps, in radians."""


def train_client(
    part: StateDict,
    samples: GazeSamples,
    plan: SplitPlan,
    server: Server,
    *,
    site: str,
    round_number: int,
    alter: Alter = lambda smashed: smashed,
    noise_seed: int | None = None,
) -> ClientUpdate:
    """Train a client part on a site's samples, with a server that has the rest of the network.

    As in rounds of whole networks, a step takes at most an eighth of the samples, and dense rows
    that would show one sample are sent as zeros (`site_agent.federated.leak_checks`).

    `part`: The client part of the round. `alter`: Alters smashed data before they leave.
    `noise_seed`: Of the noise of DP-SGD, in studies; by default nobody knows it.

    Raises `TrainingDataError` if the site has fewer than 2 samples, and `TrainingFailedError` if
    the server answers with numbers that are not finite, or of another shape.
    """
    if len(samples) < 2:
        raise TrainingDataError(None, f"found {len(samples)} samples, expected at least 2")
    cut = plan.found_cut
    module = to_part_module(part, cut, "client")
    front, tail = cut.front_stages(module.stages), cut.tail_stages(module.stages)
    size, epochs = steps_of(plan, len(samples))
    generator = torch.Generator().manual_seed(seed_of(plan.training.seed, site, round_number))
    optimiser = new_optimiser(plan, module, round_number)
    total = 0.0
    with repeatable():
        data = to_tensors(samples)
        rows = WatchedRows(module, data, epochs)
        watch = part_checks.GradientWatch(module, samples.gaze, plan)
        private = private_steps(module, plan, len(data), noise_seed) if plan.is_private else None
        module.train()
        optimiser.register_step_post_hook(Normaliser(module, plan).scale)
        drawn = list(_draw_batches(plan, len(data), size, epochs, generator))
        for number, batch in enumerate(drawn):
            optimiser.zero_grad(set_to_none=True)
            head, gaze = data.head[batch], data.gaze[batch]
            # Opacus' hooks complain of layers whose inputs need no gradient.
            patches = data.patches[batch].requires_grad_(private is not None)
            # Nor does it forget a forward pass without a backward pass.
            with torch.set_grad_enabled(len(batch) > 0):
                smashed = module.run_stages(front, patches, head)
            sent = alter(smashed.detach()).contiguous().numpy()
            # Gradients of single samples are those of a sum.
            scale = 1 if private is None else len(batch)
            if cut.tail:
                features = as_tensor(server.forward(number, sent)).requires_grad_()
                loss = 0.0
                if len(batch):
                    loss = _finish_at_home(module, tail, features, head, gaze, scale)
                by_features = features if features.grad is None else features.grad / scale
                gradient = server.backward(number, by_features.detach().numpy())
            else:
                answer = server.step(number, sent, head.numpy(), gaze.numpy())
                gradient, loss = answer.gradient, answer.loss
            watch.require_usable(gradient, loss, sent, number)
            if len(batch):
                smashed.backward(as_tensor(gradient) * scale)  # type: ignore[no-untyped-call]
            if private is not None:
                private.finish(len(batch))
            optimiser.step()
            total += loss * len(batch)
        rows.close()
        if private is not None:
            private.close()
    trained = from_part_module(module, part)
    differences = subtract_network(trained, part)
    # The noise protects all rows.
    if private is None:
        rows.keep_back(differences)
    return ClientUpdate(
        StateDict(differences, dict(part.infos)),
        len(samples),
        len(drawn),
        total / max(1, sum(len(batch) for batch in drawn)),
    )


def _finish_at_home(  # noqa: PLR0917 - as a stage of the network takes them
    module: StagedNetwork,
    tail: Sequence[Stage],
    features: torch.Tensor,
    head: torch.Tensor,
    gaze: torch.Tensor,
    scale: int,
) -> float:
    """Compute the loss and the gradients of a tail, and return the loss."""
    mean = functional.l1_loss(module.run_stages(tail, features, head), gaze)
    (mean * scale).backward()  # type: ignore[no-untyped-call]
    return float(mean.detach())


def _draw_batches(
    plan: SplitPlan, samples: int, size: int, epochs: int, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Yield the samples of each step: shuffled, or of DP-SGD each drawn by chance."""
    if plan.is_private:
        privacy = plan_privacy(plan.training, samples)
        for _ in range(privacy.steps):
            chance = torch.rand(samples, generator=generator)
            yield (chance < privacy.sample_rate).nonzero().flatten()
        return
    for _ in range(epochs):
        yield from batches(torch.randperm(samples, generator=generator), size)


def private_steps(
    module: StagedNetwork, plan: SplitPlan, samples: int, noise_seed: int | None
) -> PrivateSteps:
    """Return the hook that turns a part's steps into those of DP-SGD.

    `noise_seed`: None draws one that nobody knows.
    """
    privacy = plan_privacy(plan.training, samples)
    seed = secrets.randbits(63) if noise_seed is None else noise_seed
    generator = torch.Generator().manual_seed(seed)
    return PrivateSteps(module, plan, privacy, privacy.sample_rate * samples, generator)


def steps_of(plan: SplitPlan, samples: int) -> tuple[int, int]:
    """Return how many samples a step takes, and how many passes a site makes in a round."""
    return batch_size_for(plan.training, samples), passes_for(plan.training, samples)


def new_optimiser(
    plan: SplitPlan, module: torch.nn.Module, round_number: int
) -> torch.optim.Optimizer:
    """Return the optimiser of a part in a round."""
    training = plan.training
    rate = training.learning_rate_in(round_number)
    return make_optimiser(plan.optimiser, module, rate, training.momentum, training.weight_decay)


def as_tensor(values: Float32) -> torch.Tensor:
    """Return a batch as a tensor with the memory layout that it has in whole networks."""
    tensor = torch.from_numpy(values)
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def contribution_of(
    differences: StateDict, samples: int, base_digest: str, plan: SplitPlan
) -> NetworkContribution:
    """Return a part's differences as a contribution to the round."""
    return NetworkContribution(
        network=StateDict(differences.tensors, dict(differences.infos)),
        holds="differences",
        samples=samples,
        base_digest=base_digest,
        settings=plan.training.shared(),
    )
