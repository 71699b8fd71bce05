"""A federated method in one file: each site keeps its biases."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import nn

from aggregators.methods.networks.masked_mean import MaskedMean, SitesOptions
from aggregators.methods.registry import METHODS
from site_agent.federated.halves import HALVES
from site_agent.federated.halves.personal_numbers import PersonalHalf


class KeptBiases(MaskedMean[SitesOptions]):
    """The masked mean of the other numbers."""

    name = "kept-biases"
    summary = "masked mean; sites keep their biases"
    version = 1
    options_type = SitesOptions


class KeptBiasesHalf(PersonalHalf):
    """Keeps the biases."""

    def first_masks(
        self, shapes: Mapping[str, tuple[int, ...]], module: nn.Module
    ) -> dict[str, NDArray[np.bool_]]:
        return {name: np.full(shape, name.endswith("bias")) for name, shape in shapes.items()}


def register() -> None:
    """Add the method to both tables, as one line in each of them does."""
    METHODS[KeptBiases.name], HALVES[KeptBiases.name] = KeptBiases(), KeptBiasesHalf  # type: ignore[index]
