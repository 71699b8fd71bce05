"""The state of a training after an epoch, from which it goes on after an interruption."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aggregators.whole_file import whole_file


@dataclass
class TrainingState:
    """What changes from epoch to epoch.

    Attributes
    ----------
    epoch : int
        Number of finished epochs.
    best : dict
        Parameters and buffers of the network that is kept: that of the smallest validation error,
        or the last one without validation.
    best_epoch : int
    errors_deg : list of float
        Validation error after each epoch; empty without validation.
    losses : list of float
    """

    module: nn.Module
    optimiser: torch.optim.Optimizer
    generator: torch.Generator
    epoch: int = 0
    best: dict[str, torch.Tensor] = field(default_factory=dict)
    best_epoch: int = 0
    errors_deg: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def keep_network(self) -> None:
        """Keep the network as it is now."""
        self.best = {name: value.clone() for name, value in self.module.state_dict().items()}
        self.best_epoch = self.epoch

    def save(self, path: Path, key: str) -> None:
        """Write the state of the training that `key` names."""
        content: dict[str, Any] = {
            "key": key,
            "module": self.module.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            **{name: getattr(self, name) for name in _PLAIN},
        }
        with whole_file(path) as file:
            torch.save(content, file)

    def load(self, path: Path, key: str) -> bool:
        """Go on from a file, if it is of the training that `key` names."""
        if not path.is_file():
            return False
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["key"] != key:
            return False
        self.module.load_state_dict(content["module"])
        self.optimiser.load_state_dict(content["optimiser"])
        self.generator.set_state(content["generator"])
        for name in _PLAIN:
            setattr(self, name, content[name])
        return True


_PLAIN = ("epoch", "best", "best_epoch", "errors_deg", "losses")
