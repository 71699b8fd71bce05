"""Smashed data of a frozen client part: sent once, or only their means over sites."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from aggregators.models import Float32, StateDict
from site_agent.datasets.gaze.records import GazeSamples
from site_agent.datasets.samples import Samples
from site_agent.federated.plan import seed_of
from site_agent.split.noise import Alter, Normaliser
from site_agent.split.parts import to_part_module
from site_agent.split.plan import FEWEST_SITES, SplitPlan
from site_agent.split.training import ServerHalf, steps_of
from site_agent.training.gaze.loop import batches, repeatable, to_tensors


@dataclass(frozen=True, eq=False)
class SmashedData(Samples):
    """The client part's output for all images of a site: `smashed` has shape (n, ...)."""

    NAMES: ClassVar = ("smashed", "head", "gaze")

    smashed: Float32
    head: Float32
    gaze: Float32

    def rows(self, chosen: NDArray[np.int64]) -> "SmashedData":
        """Return some rows; zeros where the number is -1."""
        return SmashedData(
            *(
                np.where((chosen >= 0).reshape(-1, *[1] * (item.ndim - 1)), item[chosen], 0)
                for item in vars(self).values()
            )
        )


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
    together = SmashedData.join([smashed[site] for site in sorted(smashed)])
    generator = torch.Generator().manual_seed(seed_of(plan.training.seed, "all sites", number))
    step = 0
    for _ in range(plan.training.epochs):
        order = torch.randperm(len(together), generator=generator)
        for batch in batches(order, plan.training.batch_size):
            chosen = batch.numpy()
            half.step(step, *_take(together, chosen))
            step += 1
    return half.trained()


@dataclass(frozen=True)
class MeansPlan:
    """The means of one round over at least 3 sites, which follow from the sites' sample counts."""

    plan: SplitPlan
    number: int
    """Of the round."""
    size: int
    """Rows in a step."""
    sites: NDArray[np.int64]
    """How many sites give to each row of a pass."""

    @classmethod
    def of(cls, plan: SplitPlan, number: int, counts: Mapping[str, int]) -> "MeansPlan":
        """Return the plan of a round; `counts` has the number of samples of each site."""
        size = min(steps_of(plan, count)[0] for count in counts.values())
        whole = [count // size * size for count in counts.values()]
        rows = sorted(whole)[-FEWEST_SITES]
        if plan.pairs == "by-gaze":
            return cls(plan, number, size, np.full(rows, len(counts)))
        return cls(plan, number, size, np.sum([np.arange(rows) < x for x in whole], axis=0))

    @property
    def rows(self) -> int:
        """Rows of all passes."""
        return len(self.sites) * self.plan.training.epochs

    def give(self, site: str, data: SmashedData) -> SmashedData:
        """Return a site's data for all rows: zeros where it has no sample left."""
        plan, rows, count = self.plan, len(self.sites), len(data)
        generator = torch.Generator().manual_seed(seed_of(plan.training.seed, site, self.number))
        common = np.random.default_rng(seed_of(plan.training.seed, "all sites", self.number))
        passes = []
        for _ in range(plan.training.epochs):
            if plan.pairs == "shuffled":
                order = torch.randperm(count, generator=generator).numpy()
                order = order[: count // self.size * self.size][:rows]
                passes.append(np.pad(order, (0, rows - len(order)), constant_values=-1))
            else:
                order = _order_by_gaze(data.gaze, common.uniform(0, np.pi), round(rows**0.5))
                # Sites of all sizes give the same quantiles, in a common order.
                passes.append(order[(2 * common.permutation(rows) + 1) * count // (2 * rows)])
        return data.rows(np.concatenate(passes))

    def mean(self, total: SmashedData) -> SmashedData:
        """Return the mean of each row from the sum over all sites."""
        sites = np.tile(self.sites, self.plan.training.epochs)
        return SmashedData(
            *(
                (item / sites.reshape(-1, *[1] * (item.ndim - 1))).astype(np.float32)
                for item in vars(total).values()
            )
        )

    def train(self, part: StateDict, means: SmashedData) -> StateDict:
        """Return a server part after steps on the means."""
        half = ServerHalf(part, self.plan, self.number)
        for step in range(len(means) // self.size):
            first = step * self.size
            half.step(step, *_take(means, np.arange(first, first + self.size)))
        return half.trained()


def _order_by_gaze(gaze: Float32, angle: float, strips: int) -> NDArray[np.int64]:
    """Sort samples along a direction into strips, and each strip across it."""
    along = gaze @ (np.cos(angle), np.sin(angle))
    across = gaze @ (-np.sin(angle), np.cos(angle))
    rank = np.argsort(np.argsort(along, kind="stable"))
    return np.lexsort((across, rank * strips // len(gaze)))


def train_on_means_of(
    part: StateDict, smashed: Mapping[str, SmashedData], plan: SplitPlan, number: int
) -> StateDict:
    """Train a server part on the means over sites, in one process."""
    counts = {site: len(item) for site, item in smashed.items()}
    means = MeansPlan.of(plan, number, counts)
    shared = [vars(means.give(site, smashed[site])) for site in sorted(smashed)]
    total = SmashedData(*(sum(item[name] for item in shared) for name in SmashedData.NAMES))
    return means.train(part, means.mean(total))


def _take(data: SmashedData, chosen: NDArray[np.int64]) -> tuple[Float32, Float32, Float32]:
    return data.smashed[chosen], data.head[chosen], data.gaze[chosen]
