"""A site's half of FedPAC: statistics of its classes, and features drawn to prototypes.

Features are the input of the last layer (the head). Before it trains, a site sends the frequency
and the mean features of each class; the class of a sample is where its gaze goes
(`site_agent.federated.tasks`). It then trains the head alone for one pass, and the body alone for
the passes of the round, with features drawn to the mean features of their class at all sites.

A class with fewer than 5 samples is left out, for its mean would show them. The
frequencies still show a histogram of the site's labels.

Source: as `aggregators.methods.networks.fedpac`.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from aggregators.methods.networks.updates import head_entries
from aggregators.models import ClassStatistics, StateDict
from site_agent.errors import TrainingDataError
from site_agent.federated.halves.contract import Shared, Tensors
from site_agent.federated.halves.personal_numbers import PersonalHalf
from site_agent.federated.leak_checks import FEWEST_SAMPLES
from site_agent.federated.personal import Bits
from site_agent.federated.tasks import Task
from site_agent.networks.modules import last_layer

_AT_ONCE = 16


class FedPacHalf(PersonalHalf):
    """Trains the head first, and sends it with statistics of classes; a reply replaces it."""

    more_passes: ClassVar[int] = 1

    def first_masks(
        self, shapes: Mapping[str, tuple[int, ...]], module: nn.Module
    ) -> dict[str, Bits]:
        head = last_layer(module)
        return {name: np.full(shape, name in head) for name, shape in shapes.items()}

    def prepare(self, module: nn.Module, samples: Any, data: Any) -> None:
        super().prepare(module, samples, data)
        round_ = self.round
        self._parted = HeadAndBody(module, round_.base, round_.task, samples, data)
        prototypes = None if round_.before is None else round_.before.prototypes
        self.extra_loss = self._parted.pull(prototypes, round_.options.lam)

    def begin_pass(self, number: int) -> None:
        self._parted.begin(number)

    def share(self, module: nn.Module, trained: StateDict, differences: Tensors) -> Shared:
        # The personal part is sent, too, because the server mixes it.
        part = super().share(module, trained, differences).part
        return Shared(differences, statistics=self._parted.statistics, part=part)


class HeadAndBody:
    """Trains a head first and then its body, and knows the features of a site's samples.

    `statistics`: The statistics of classes that the site sends.
    """

    def __init__(
        self, module: nn.Module, network: StateDict, task: Task, samples: Any, data: Any
    ) -> None:
        self._module, self._task, self._classes = module, task, task.classes(samples)
        self._head = head_entries(network.infos)
        self._taken, self._of_head = torch.empty(0), True
        module.get_submodule(self._head[0].rpartition(".")[0]).register_forward_pre_hook(self._keep)
        parts = []
        with torch.no_grad():
            module.eval()
            for index in torch.split(torch.arange(len(data)), _AT_ONCE):
                module(*data.inputs(index))
                parts.append(task.features(self._taken).double().numpy())
        self.statistics = class_statistics(np.concatenate(parts), self._classes, task.class_count)

    def _keep(self, _layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self._taken = inputs[0]

    def begin(self, number: int) -> None:
        """Let the head alone change in the first pass (0), and the body alone in the others."""
        self._of_head = number == 0
        for name, parameter in self._module.named_parameters():
            parameter.requires_grad_((name in self._head) == self._of_head)

    def pull(
        self, prototypes: NDArray[np.float32] | None, strength: float
    ) -> Callable[[torch.Tensor], torch.Tensor] | None:
        """Return the mean squared distance of features from the prototypes of their classes.

        It takes the numbers of a step's samples.

        Parameters
        ----------
        prototypes : float32, shape (classes, features), or None
            NaN for classes without.
        """
        # More classes than there are may come from another site; fewer, from a false reply.
        if prototypes is None or len(prototypes) < self._task.class_count:
            return None
        targets, classes = torch.from_numpy(prototypes), torch.from_numpy(self._classes)

        def term(batch: torch.Tensor) -> torch.Tensor:
            of = classes[batch].flatten()
            known = (of >= 0) & ~targets[of].isnan().any(dim=1)
            if self._of_head or not known.any():
                return torch.zeros(())
            features = self._task.features(self._taken)
            return strength * functional.mse_loss(features[known], targets[of[known]])

        return term


def class_statistics(
    features: NDArray[np.float64], classes: NDArray[np.int64], count: int
) -> ClassStatistics:
    """Return the statistics of features by class; classes with fewer than 5 samples are left out.

    Parameters
    ----------
    features : float64, shape (n, numbers) or (n * frames, numbers)
    classes : int64, shape (n,) or (n, frames)
        From 0 to `count` - 1; -1 for none.
    """
    counts, means = np.zeros(count, np.int64), np.zeros((count, features.shape[1]), np.float32)
    by_sample, flat = classes.reshape(len(classes), -1), classes.reshape(-1)
    total = 0.0
    for label in range(count):
        # Of clips, whole clips count: their frames are much alike.
        if (by_sample == label).any(axis=1).sum() < FEWEST_SAMPLES:
            continue
        members = features[flat == label]
        counts[label], means[label] = len(members), members.mean(axis=0)
        total += float(np.square(members).sum())
    number = int(counts.sum())
    if not number:
        raise TrainingDataError(
            None, f"found no class of gaze with {FEWEST_SAMPLES} samples, expected at least one"
        )
    between = np.square(counts / number) @ np.square(means.astype(np.float64)).sum(axis=1)
    return ClassStatistics(counts, means, max(0.0, total / number - float(between)) / number)
