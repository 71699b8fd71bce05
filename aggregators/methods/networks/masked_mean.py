"""Masked means: each site shares some numbers of a network and keeps the others to itself.

The server's half is one for all of these methods: the mean of a number over the sites that share
it, and the base's number where no site does. The methods differ in the numbers that a site keeps;
its half decides this (`site_agent.federated.halves`). The options of both are declared here.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from aggregators.methods.contract import Combined, OptionsT, Progress
from aggregators.methods.networks import fedavg
from aggregators.methods.networks.updates import PackedMasks, Updates, require_base
from aggregators.methods.sub_models import SubModels
from aggregators.models import Float64, MergeInput, NetworkContribution


class MaskedMean(fedavg.MeanMethod[OptionsT]):
    """``w = base + sum(n_k m_k d_k) / sum(n_k m_k)``, and the base where no site shares.

    ``d_k`` are the differences of a site, ``m_k`` is 1 where it shares a number. Without masks
    the result has the bytes of FedAvg. Personal numbers have no influence.
    """

    personal: ClassVar[bool] = True
    trains_plainly: ClassVar[bool] = False

    def merge_key(self, _fingerprint: Mapping[str, Any]) -> None:
        """Return None: networks without a base have no masks, and `fedavg` merges them."""

    def combine(
        self, sub_models: SubModels[MergeInput], options: OptionsT, progress: Progress, /
    ) -> Combined:
        require_base(sub_models, self.name)
        return super().combine(sub_models, options, progress)

    def averaging(self, updates: Updates, weights: Float64) -> fedavg.Average:
        def average(name: str, block: slice, rows: Float64) -> Float64:
            masks = _block_masks(updates, name, block)
            return (
                fedavg.weighted_mean(rows, weights)
                if masks is None
                else _mean(rows, masks, weights)
            )

        return average


def _block_masks(updates: Updates, name: str, block: slice) -> NDArray[np.bool_] | None:
    """Return a part of the masks, shape (sites, numbers); None if the sites share all of it."""
    rows = np.ones((len(updates.sites), block.stop - block.start), dtype=np.bool_)
    for row, site in zip(rows, updates.sites, strict=True):
        masks = site.model.shared if isinstance(site.model, NetworkContribution) else {}
        if isinstance(masks, PackedMasks):
            row[:] = masks.part(name, block) if name in masks else True
        elif name in masks:
            row[:] = masks[name].reshape(-1)[block]
    return None if rows.all() else rows


def _mean(rows: Float64, masks: NDArray[np.bool_], weights: Float64) -> Float64:
    """Return the weighted mean of each column over the sites that share it; 0 where none does."""
    total: Float64 = np.zeros(rows.shape[1])
    counted: Float64 = np.zeros(rows.shape[1])
    for row, mask, weight in zip(rows, masks, weights, strict=True):
        total += np.where(mask, row * weight, 0.0)
        counted += np.where(mask, weight, 0.0)
    everyone = masks.all(axis=0)
    if everyone.any():
        # As FedAvg has it, to the last bit.
        total[everyone] = fedavg.weighted_mean(rows[:, everyone], weights)
        counted[everyone] = 1.0
    result: Float64 = np.divide(total, counted, out=np.zeros_like(total), where=counted > 0)
    return result


class SitesOptions(fedavg.MeanOptions):
    """Options of methods that weight all sites equally, as in FedCPF's algorithm."""

    mean: Literal["samples", "sites"] = Field(
        default="sites", description="Equal for all sites, or by numbers of samples."
    )


_SHARED_SHARE, _GROWING_SHARE = 1 / 3, 2 / 3
"""Of a series' rounds, after which personal parts begin to grow, and have their full size; the
rest trains them."""


class CpfOptions(fedavg.MeanOptions):
    """Options of FedCPF; in the paper, the mean is over sites."""

    rho: float = Field(
        default=0.5, ge=0, le=1, description="Largest personal share of a site's numbers."
    )
    grow: float | None = Field(
        default=None, gt=0, le=1,
        description="Share that becomes personal in a round (0.05 in the paper); by default, so "
        "much that rho is reached at two thirds of the rounds.",
    )  # fmt: skip
    begin: int | None = Field(
        default=None, ge=0, le=100_000,
        description="Rounds in which all numbers are shared, before parts grow (0 in the paper); "
        "by default a third of the rounds.",
    )  # fmt: skip
    relative: Literal["layer", "network"] = Field(
        default="layer",
        description="Compare changes by the root mean square of their layer's, or as they are, as "
        "in the paper: a layer with most of the numbers then shares next to nothing.",
    )
    early_stop: bool = Field(
        default=True,
        description="Begin a part only where the site's own network beats the mean on samples "
        "kept out of training, stop growth where it does not help, and give up a part that harms.",
    )
    acc: float = Field(
        default=0.05, gt=0, le=1,
        description="Step of the score at home after which changes are counted from zero again.",
    )  # fmt: skip
    freeze: bool = Field(
        default=False, description="Stop training numbers once they have become personal."
    )

    def over(self, rounds: int) -> Self:
        begin, grow = self.begin, self.grow
        if begin is None:
            begin = math.floor(_SHARED_SHARE * rounds)
        if grow is None:
            grow = (self.rho or 1.0) / max(1, math.floor(_GROWING_SHARE * rounds) - begin)
        return self.model_copy(update={"begin": begin, "grow": grow})


class FedCpf(MaskedMean[CpfOptions]):
    """FedCPF: the numbers that changed most since the site last improved become personal.

    Source: "FedCPF" (federated personalisation of egocentric gaze), algorithm 1, with a masked
    mean in place of its sums that depend on the order of the sites.
    """

    name = "fedcpf"
    summary = "masked mean; sites keep the numbers that change most while they improve"
    options_type = CpfOptions


class CpfRandom(MaskedMean[CpfOptions]):
    """FedCPF's control: draws the same number of personal numbers at random in each round."""

    name = "cpf-random"
    summary = "masked mean; sites keep as many numbers as in fedcpf, drawn at random"
    options_type = CpfOptions


class SelectOptions(SitesOptions):
    """Options of FedSelect.

    It needs no option ``relative``, as it compares the changes of one entry only with each other.
    """

    every: int | None = Field(
        default=None, ge=1, le=1000,
        description="Rounds between two choices; by default 3, and less in series of less than 9.",
    )  # fmt: skip
    grow: float = Field(
        default=0.25, gt=0, le=1, description="Share of each entry's rest that becomes personal."
    )
    rho: float = Field(default=0.8, ge=0, le=1, description="Largest personal share of each entry.")

    def over(self, rounds: int) -> Self:
        if self.every is not None:
            return self
        return self.model_copy(update={"every": min(3, max(1, rounds // 3))})


class FedSelect(MaskedMean[SelectOptions]):
    """FedSelect: every few rounds a quarter of each entry's rest, by its change, stays at home.

    Source: Tamirisa et al. 2024, "FedSelect: Personalized Federated Learning with Customized
    Selection of Parameters for Fine-Tuning".
    """

    name = "fedselect"
    summary = "masked mean; sites keep a share of each entry, by its change over some rounds"
    options_type = SelectOptions


class FedPer(MaskedMean[fedavg.MeanOptions]):
    """FedPer: the last layer or layers of each site stay at home.

    Source: Arivazhagan et al. 2019, "Federated Learning with Personalization Layers".
    """

    name = "fedper"
    summary = "mean of all layers but the last ones, which each site keeps"
    options_type = fedavg.MeanOptions
    same_parts = True


class Local(MaskedMean[fedavg.MeanOptions]):
    """Every site trains alone: the bar that training together has to pass."""

    name = "local"
    summary = "every site trains alone and shares nothing; for simulations and studies"
    options_type = fedavg.MeanOptions

    contribution = None


class ProxOptions(fedavg.MeanOptions):
    """Options of FedProx."""

    mu: float = Field(
        default=0.01, ge=0, le=1000, description="Pull of a site's training to the round's network."
    )


class FedProx(fedavg.FedAvg):
    """FedAvg of sites that add ``mu / 2`` times the squared distance from the base to the loss.

    Source: Li et al. 2020, "Federated Optimization in Heterogeneous Networks".
    """

    name = "fedprox"
    version = 1
    trains_plainly = False
    summary = "fedavg; sites are held near to the round's network while they train"
    options_type = ProxOptions

    def merge_key(self, _fingerprint: Mapping[str, Any]) -> None:
        """Return None: `mu` is for training, and `fedavg` merges trained networks."""
