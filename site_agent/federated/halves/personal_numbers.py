"""The sites' halves of methods with personal parts: which numbers of a network stay at a site.

A site sends the differences of the numbers that it shares and the mask of these, and chooses the
personal numbers of the next rounds after training. The mask shows the numbers that changed much at
a site; this is not hidden.

Source: the FedCPF paper, algorithm 1; FedSelect and FedPer as `aggregators.methods.networks`
names them.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aggregators.models import StateDict
from site_agent.federated.halves.contract import Shared, SiteHalf, Tensors
from site_agent.federated.personal import Bits, Masks, PersonalPart, share_of, trained_shapes
from site_agent.federated.plan import seed_of
from site_agent.networks.modules import personal_head, to_module

_TRIAL_SHARE = 0.5
"""Of the rounds before parts begin."""


class PersonalHalf(SiteHalf):
    """Training with personal numbers: those under a mask, by default none in any round."""

    keeps_part: ClassVar[bool] = True

    masks: Masks
    """Of the numbers that are personal in this round."""
    home: Any = None
    """Samples that measure the site's score, if any."""

    def prepare(self, module: nn.Module, samples: Any, data: Any) -> None:  # noqa: ARG002
        before, shapes = self.round.before, trained_shapes(self.round.base)
        self._samples = samples
        self.masks = self.first_masks(shapes, module) if before is None else dict(before.chosen)
        if getattr(self.round.options, "freeze", False):
            self._hold_frozen(module)

    def first_masks(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        module: nn.Module,  # noqa: ARG002
    ) -> dict[str, Bits]:
        """Return the masks of a site's first round; none by default.

        `shapes`: Of the floating-point entries.
        """
        return {name: np.zeros(shape, dtype=np.bool_) for name, shape in shapes.items()}

    def choose(self, changes: Mapping[str, NDArray[Any]]) -> Masks:  # noqa: ARG002
        """Return the masks of the next round; by default those of this one.

        `changes`: As `PersonalPart.changes`.
        """
        return self.masks

    def count_changes(
        self,
        score: float,  # noqa: ARG002
        trained: StateDict,  # noqa: ARG002
    ) -> tuple[int, dict[str, NDArray[Any]]]:
        """Return the step of the score and the changes of each number since counting restarted."""
        return 1, {}

    def share(self, module: nn.Module, trained: StateDict, differences: Tensors) -> Shared:
        score = math.nan
        if self.home is not None and len(self.home):
            score = self.round.task.score_home(module, self.home, self._samples)
        step, changes = self.count_changes(score, trained)
        round_, masks = self.round, self.masks
        values = {
            name: np.where(mask, trained.tensors[name], 0).astype(np.float32)
            for name, mask in masks.items()
        }
        prototypes = None if round_.before is None else round_.before.prototypes
        part = PersonalPart(
            round_.method, round_.site, round_.base_digest, round_.number, values, masks,
            self.choose(changes), changes, step, score, prototypes,
        )  # fmt: skip
        return Shared(_without_personal(differences, masks), masks, part=part)

    def _hold_frozen(self, module: nn.Module) -> None:
        """Put personal numbers back after each step."""
        frozen = [
            (parameter, torch.from_numpy(self.masks[name]), parameter.detach().clone())
            for name, parameter in module.named_parameters()
            if name in self.masks and self.masks[name].any()
        ]

        def restore() -> None:
            with torch.no_grad():
                for parameter, mask, value in frozen:
                    parameter.copy_(torch.where(mask, value, parameter))

        self.after_step = restore


def _without_personal(differences: Tensors, masks: Masks) -> Tensors:
    """Return the differences, with zeros in place of personal numbers."""
    zero = {name: differences[name].dtype.type(0) for name in masks}
    return {
        name: np.where(masks[name], zero[name], value) if name in masks else value
        for name, value in differences.items()
    }


class LocalHalf(PersonalHalf):
    """Keeps all numbers."""

    def first_masks(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        module: nn.Module,  # noqa: ARG002
    ) -> dict[str, Bits]:
        return {name: np.ones(shape, dtype=np.bool_) for name, shape in shapes.items()}


class FedPerHalf(PersonalHalf):
    """Keeps the head."""

    def first_masks(
        self, shapes: Mapping[str, tuple[int, ...]], module: nn.Module
    ) -> dict[str, Bits]:
        head = personal_head(module)
        return {name: np.full(shape, name in head) for name, shape in shapes.items()}


class _ChangesHalf(PersonalHalf):
    """Counts how much each number changes over rounds."""

    def count_changes(
        self, score: float, trained: StateDict
    ) -> tuple[int, dict[str, NDArray[Any]]]:
        before, start = self.round.before, self.round.start
        step, restarts = self.restart_counting(1 if before is None else before.step, score)
        changes = {}
        for name, mask in self.masks.items():
            moved = np.subtract(trained.tensors[name], start.tensors[name], dtype=np.float32)
            changes[name] = np.abs(moved) * ~mask
            if before is not None and not restarts:
                changes[name] += before.changes[name]
        return step, changes

    def restart_counting(self, step: int, score: float) -> tuple[int, bool]:
        """Return the next step of the score, and whether counting restarts with this round."""
        raise NotImplementedError


class FedSelectHalf(_ChangesHalf):
    """Adds a share of each entry's rest, every few rounds, while that keeps below ``rho``."""

    def restart_counting(self, step: int, score: float) -> tuple[int, bool]:  # noqa: ARG002
        return step, (self.round.number - 1) % self.round.options.every == 0

    def choose(self, changes: Mapping[str, NDArray[Any]]) -> Masks:
        options = self.round.options
        if self.round.number % options.every:
            return self.masks
        chosen = {}
        for name, mask in self.masks.items():
            room = math.floor(options.rho * mask.size + 1e-9) - int(mask.sum())
            count = min(math.floor(options.grow * int((~mask).sum()) + 1e-9), room)
            ranks = changes[name].reshape(-1)
            chosen[name] = _with_largest(mask.reshape(-1), ranks, count).reshape(mask.shape)
        return chosen


class _CpfHalf(PersonalHalf):
    """Adds numbers of the whole network while they help on samples kept out of training.

    All numbers are shared at first. In a *trial*, the last rounds before parts begin, a site goes
    on training its own network, and shares all of it. It begins a part where this network is then
    better at home than the mean of all sites' networks; a part that harms later is given up.
    Rounds that decide nothing train on the samples at home, too.
    """

    _gain: float | None = None
    """Difference of the site's score with its own numbers and with the round's network alone; None
    where there is nothing to compare."""

    def hold_back(self, samples: Any) -> Any:
        options = self.round.options
        waits = options.early_stop and self.round.number <= options.begin - _trial_rounds(options)
        if options.rho > 0 and not waits and not self._is_decided:
            samples, self.home = self.round.task.split_home(samples)
        return samples

    @property
    def _tries(self) -> bool:
        """True in a trial: the site shares all numbers, and keeps its own network as well."""
        begin = self.round.options.begin if self.round.options.early_stop else 0
        return begin - _trial_rounds(self.round.options) < self.round.number <= begin

    @property
    def _is_decided(self) -> bool:
        before, options = self.round.before, self.round.options
        if before is None or not options.early_stop or before.round_number <= options.begin:
            return False
        share = share_of(before.chosen)
        return share == 0 or share > options.rho - options.grow / 2

    def prepare(self, module: nn.Module, samples: Any, data: Any) -> None:
        super().prepare(module, samples, data)
        round_, before = self.round, self.round.before
        if before is None or not round_.options.early_stop or self._is_decided or self._tries:
            return
        if self.home is None or not len(self.home) or not share_of(before.personal):
            return
        personal, common = (
            round_.task.score_home(to_module(network), self.home, samples)
            for network in (round_.start, round_.base)
        )
        self._gain = personal - common
        if self._gain < 0:
            module.load_state_dict(to_module(round_.base).state_dict())

    def choose(self, changes: Mapping[str, NDArray[Any]]) -> Masks:
        waits = self.round.number <= self.round.options.begin
        if waits or self._is_decided or self._gain == 0:
            return self.masks
        if self._gain is None or self._gain > 0:
            return self.add(changes)
        return {name: np.zeros_like(mask) for name, mask in self.masks.items()}

    def share(self, module: nn.Module, trained: StateDict, differences: Tensors) -> Shared:
        shared = super().share(module, trained, differences)
        if not self._tries or shared.part is None:
            return shared
        everything = {name: np.ones_like(mask) for name, mask in self.masks.items()}
        values = {name: trained.tensors[name].astype(np.float32) for name in everything}
        return replace(shared, part=replace(shared.part, personal=everything, values=values))

    def add(self, changes: Mapping[str, NDArray[Any]]) -> Masks:
        """Return the masks of the next round where the part still grows."""
        raise NotImplementedError


class FedCpfHalf(_CpfHalf, _ChangesHalf):
    """Adds those of all remaining numbers that have changed most, up to ``rho``.

    The site's score is measured on samples kept out of training. Counting of changes restarts
    whenever it has become better by ``acc``. The number of rounds by which the paper divides the
    changes does not alter their order.
    """

    def restart_counting(self, step: int, score: float) -> tuple[int, bool]:
        before = step
        while score >= step * self.round.options.acc:
            step += 1
        return step, step > before

    def add(self, changes: Mapping[str, NDArray[Any]]) -> Masks:
        if self.round.options.relative == "layer":
            changes = relative_to_layer(changes, self.masks)
        return _add_largest(self.masks, changes, self.round.options)


class CpfRandomHalf(_CpfHalf):
    """Adds the same count of numbers as FedCPF, drawn at random."""

    def add(self, changes: Mapping[str, NDArray[Any]]) -> Masks:  # noqa: ARG002
        round_ = self.round
        seed = seed_of(round_.settings.seed, f"personal part of {round_.site}", round_.number)
        generator = np.random.default_rng(seed)
        drawn = {name: generator.random(mask.shape) for name, mask in self.masks.items()}
        return _add_largest(self.masks, drawn, round_.options)


def _trial_rounds(options: Any) -> int:
    return math.ceil(_TRIAL_SHARE * int(options.begin))


def relative_to_layer(changes: Mapping[str, NDArray[Any]], masks: Masks) -> dict[str, NDArray[Any]]:
    """Return changes divided by the root mean square over the entry's numbers outside the mask."""
    relative = {}
    for name, values in changes.items():
        rest = values[~masks[name]].astype(np.float64)
        scale = math.sqrt(np.square(rest).mean()) if rest.size else 0.0
        relative[name] = values / (scale or 1.0)
    return relative


def _add_largest(masks: Masks, by: Mapping[str, NDArray[Any]], options: Any) -> dict[str, Bits]:
    """Return masks with those of all remaining numbers that are largest in `by`."""
    before = np.concatenate([mask.reshape(-1) for mask in masks.values()])
    room = math.floor(options.rho * before.size + 1e-9) - int(before.sum())
    count = min(math.floor(options.grow * before.size + 1e-9), room)
    ranks = np.concatenate([by[name].reshape(-1) for name in masks])
    ends = np.cumsum([mask.size for mask in masks.values()])
    parts = np.split(_with_largest(before, ranks, count), ends[:-1])
    return {
        name: part.reshape(mask.shape)
        for (name, mask), part in zip(masks.items(), parts, strict=True)
    }


def _with_largest(mask: Bits, ranks: NDArray[Any], count: int) -> Bits:
    """Return a flat mask and the `count` largest of the others; of equal ones, the first."""
    if count <= 0:
        return mask
    rest = np.flatnonzero(~mask)
    order = np.argsort(-ranks[rest], kind="stable")[:count]
    after = mask.copy()
    after[rest[order]] = True
    return after
