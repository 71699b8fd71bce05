"""A site's half of FedProx: a pull towards the round's network."""

from typing import Any

import torch
from torch import nn

from site_agent.federated.halves.contract import SiteHalf


class FedProxHalf(SiteHalf):
    """Adds ``mu / 2`` times the squared distance from the round's network to the loss."""

    def prepare(self, module: nn.Module, samples: Any, data: Any) -> None:  # noqa: ARG002
        mu = self.round.options.mu
        if mu == 0:
            return
        start = [parameter.detach().clone() for parameter in module.parameters()]

        def pull(_batch: torch.Tensor) -> torch.Tensor:
            pairs = zip(module.parameters(), start, strict=True)
            squares = torch.stack([(now - then).square().sum() for now, then in pairs])
            distance: torch.Tensor = mu / 2 * squares.sum()
            return distance

        self.extra_loss = pull
