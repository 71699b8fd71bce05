"""What a network learns: how a site's samples train it and score it, whatever the method.

One entry a kind of network; the halves of the methods (`personal`, `local_training`) work with any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from site_agent.datasets.gaze import GazeSamples, angular_errors_deg
from site_agent.networks import predict_gaze
from site_agent.networks.architectures import require_kind
from site_agent.training.gaze.loop import to_tensors, train_epoch

HOME_SHARE = 0.2
"""Of a site's samples that measure its score at home: the last ones of each person."""


class Task(Protocol):
    """What a network learns.

    Laws: the same samples, module and generator give the same parameters; scores are from 0 (as
    good as a constant answer) to 1 (perfect).
    """

    def to_tensors(self, samples: Any) -> Any:
        """Return samples as tensors, with a length."""

    def split_home(self, samples: Any) -> tuple[Any, Any]:
        """Return the samples that train, and those that measure the score at home."""

    def train_epoch(
        self,
        module: nn.Module,
        optimiser: torch.optim.Optimizer,
        data: Any,
        batch_size: int,
        generator: torch.Generator,
        *,
        extra_loss: Callable[[], torch.Tensor] | None = None,
        after_step: Callable[[], None] | None = None,
        progress: Callable[[float], None] = lambda _share: None,
    ) -> float:
        """Train once on all samples, and return the mean loss."""

    def score(self, module: nn.Module, home: Any, trained: Any) -> float:
        """Return the score of a module on samples that did not train it."""


class GazeTask:
    """Directions of gaze in eye patches."""

    to_tensors = staticmethod(to_tensors)
    train_epoch = staticmethod(train_epoch)

    @staticmethod
    def split_home(samples: GazeSamples) -> tuple[GazeSamples, GazeSamples]:
        """Hold back the last fifth of each person's samples; neighbours in time stay together."""
        is_home = np.zeros(len(samples), dtype=np.bool_)
        for person in np.unique(samples.person):
            own = np.flatnonzero(samples.person == person)
            is_home[own[len(own) - int(HOME_SHARE * len(own)) :]] = True
        return samples[~is_home], samples[is_home]

    @staticmethod
    def score(module: nn.Module, home: GazeSamples, trained: GazeSamples) -> float:
        """Return by how much the angular error is smaller than that of the mean gaze."""
        found = predict_gaze(module, home.patches, home.head)
        constant = np.tile(trained.gaze.mean(axis=0), (len(home), 1))
        error = float(angular_errors_deg(found, home.gaze).mean())
        bar = float(angular_errors_deg(constant, home.gaze).mean())
        return max(0.0, 1.0 - error / bar) if bar > 0 else 0.0


def task_of(architecture: str) -> Task:
    """Return what networks of an architecture learn.

    Raises
    ------
    InvalidInputError
        There is no such architecture, or rounds cannot be held with it.
    """
    require_kind(architecture, "gaze", "the base")
    return GazeTask()
