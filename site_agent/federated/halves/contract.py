"""A site's half of a federated method: one small class a method.

`site_agent.federated.local_training` makes one for each round that a site trains in, and calls
`hold_back`, `prepare`, in each step `extra_loss` and `after_step`, and in the end `share`.
`SiteHalf` itself trains the whole network and keeps nothing: a method that needs no more has no
class here. A method with a class adds it to `site_agent.federated.halves`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aggregators.methods.round_options import LocalTraining
from aggregators.models import ClassStatistics, StateDict
from site_agent.federated.personal import Masks, PersonalPart
from site_agent.federated.tasks import Task

Tensors = dict[str, NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class LocalRound:
    """A site's training in one round."""

    method: str
    options: Any
    """The method's own."""
    settings: LocalTraining
    site: str
    number: int
    """From 1."""
    base: StateDict
    base_digest: str
    start: StateDict
    """The base with the site's personal numbers."""
    before: PersonalPart | None
    """The personal part after the site's last round."""
    task: Task


@dataclass(frozen=True, eq=False)
class Shared:
    """The results of a site's training: the shared ones, and its personal part."""

    differences: Tensors
    """Changes from the base; 0 where a number is personal."""
    kept: Masks = field(default_factory=dict)
    """Masks of the personal numbers."""
    statistics: ClassStatistics | None = None
    part: PersonalPart | None = None


class SiteHalf:
    """Plain training of the whole network."""

    keeps_part: ClassVar[bool] = False
    """True for methods with personal parts."""

    extra_loss: Callable[[torch.Tensor], torch.Tensor] | None = None
    """Takes the numbers of a step's samples; `prepare` sets it where a method has one."""
    after_step: Callable[[], None] | None = None
    """Called after each step; `prepare` sets it where a method has one."""
    more_passes: ClassVar[int] = 0
    """Passes before those of the round."""

    def __init__(self, round_: LocalRound) -> None:
        self.round = round_

    def hold_back(self, samples: Any) -> Any:
        """Return the training samples; the half may hold some out to measure the site's score."""
        return samples

    def prepare(self, module: nn.Module, samples: Any, data: Any) -> None:
        """Set up the half for the network at the start of training, and for its samples.

        `data`: The samples as tensors.
        """

    def begin_pass(self, number: int) -> None:
        """Prepare for a pass, counted from 0."""

    def share(self, module: nn.Module, trained: StateDict, differences: Tensors) -> Shared:  # noqa: ARG002
        """Divide the result of the training between the round and the site."""
        return Shared(differences)
