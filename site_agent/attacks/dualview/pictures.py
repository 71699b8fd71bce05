"""View 1: pictures on which the victim's network does well, and those of other sites do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from site_agent.attacks.dualview.prior import EyePrior
from site_agent.attacks.leaks import ALL_SITES, Float64, Leak
from site_agent.datasets.gaze import PATCH_SHAPE, GazeSamples

if TYPE_CHECKING:
    import torch
    from torch import nn


@dataclass(frozen=True)
class InversionSettings:
    """How pictures are searched.

    The paper's weights for faces (10, 6, 4) are for its critic; with those of gaze and appearance
    the search leaves what eyes look like, and finds fewer persons than its start.

    Attributes
    ----------
    prior, gaze, appearance : float
        Weights of the three parts of the loss.
    restarts : int
        Pictures of each victim, each with another gaze.
    steps : int
        Of gradient descent with Nesterov's momentum.
    rivals : int
        Other sites with which a step compares the victim, drawn anew in each step.
    sharpness : float
        The losses of sites, in radians, are multiplied by this before the softmax.
    """

    prior: float = 10.0
    gaze: float = 1.0
    appearance: float = 0.1
    restarts: int = 5
    steps: int = 60
    rivals: int = 3
    sharpness: float = 20.0
    learning_rate: float = 0.02
    momentum: float = 0.9
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Victims:
    """The sites under attack, and what the search starts from.

    Attributes
    ----------
    sites : sequence of str
    starts : float64, shape (sites, components)
        Codes to start at, such as those predicted from updates. The prior is centred on them:
        without it, the search ends at pictures that suit the networks and look like nobody.
    """

    sites: Sequence[str]
    starts: Float64


def reconstruct(
    leak: Leak,
    victims: Victims,
    prior: EyePrior,
    public: GazeSamples,
    settings: InversionSettings,
) -> NDArray[np.uint8]:
    """Return pictures of each victim, of shape (sites, restarts, 36, 60).

    Parameters
    ----------
    leak : Leak
        Networks after the last round are inverted. If none leaked, only the prior speaks; if only
        a combined one did, the search is the same for all sites, and no appearance term applies.
    public : GazeSamples
        At least as many as restarts: gaze and head of the pictures are spread over theirs.
    """
    from site_agent.networks import to_module
    from site_agent.training.gaze.loop import repeatable

    spread = np.argsort(public.gaze[:, 0], kind="stable")
    ranks = (np.arange(settings.restarts) + 0.5) / settings.restarts * len(spread)
    asked = public[spread[ranks.astype(int)]]
    after = leak.rounds[-1].after if leak.rounds else {}
    with repeatable():
        modules = {site: to_module(network) for site, network in after.items()}
        for module in modules.values():
            module.requires_grad_(False)
        if ALL_SITES in modules or not modules:
            start = victims.starts.mean(axis=0)
            codes = _search(modules, ALL_SITES, start, prior, asked, settings)
            return np.repeat(prior.decode(codes)[None], len(victims.sites), axis=0)
        found = [
            prior.decode(_search(modules, site, start, prior, asked, settings))
            for site, start in zip(victims.sites, victims.starts, strict=True)
        ]
    return np.array(found)


def _search(  # noqa: PLR0917
    modules: dict[str, nn.Module],
    victim: str,
    start: Float64,
    prior: EyePrior,
    asked: GazeSamples,
    settings: InversionSettings,
) -> Float64:
    """Return the codes of the pictures of one victim, shape (restarts, components)."""
    import torch

    rng = np.random.default_rng([settings.seed, settings.steps])
    begin = np.repeat(start[None], len(asked), axis=0)
    codes = torch.tensor(begin, dtype=torch.float32, requires_grad=True)
    centre = torch.tensor(start, dtype=torch.float32)
    mean = torch.tensor(prior.mean, dtype=torch.float32)
    basis = torch.tensor(prior.basis, dtype=torch.float32)
    head = torch.tensor(asked.head, dtype=torch.float32)
    gaze = torch.tensor(asked.gaze, dtype=torch.float32)
    optimiser = torch.optim.SGD(
        [codes], lr=settings.learning_rate, momentum=settings.momentum, nesterov=True
    )
    others = sorted(set(modules) - {victim})
    for _ in range(settings.steps):
        optimiser.zero_grad()
        loss = settings.prior * (codes - centre).square().mean(dim=1).sum()
        if modules:
            chosen = rng.choice(len(others), min(settings.rivals, len(others)), replace=False)
            names = [victim, *(others[index] for index in chosen)]
            losses = _losses([modules[name] for name in names], mean + codes @ basis, head, gaze)
            loss = loss + settings.gaze * losses[0].sum()
            if len(names) > 1:
                known = torch.log_softmax(-settings.sharpness * losses, dim=0)[0]
                loss = loss - settings.appearance * known.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return codes.detach().numpy().astype(np.float64)


def _losses(
    modules: Sequence[nn.Module], grey: torch.Tensor, head: torch.Tensor, gaze: torch.Tensor
) -> torch.Tensor:
    """Return the losses of networks on pictures, shape (networks, pictures)."""
    import torch

    patches = grey.reshape(-1, 1, *PATCH_SHAPE)
    patches = patches - patches.mean(dim=(2, 3), keepdim=True)
    deviation = patches.square().mean(dim=(2, 3), keepdim=True).sqrt()
    scaled = patches / deviation.clamp(min=4.0)
    return torch.stack([(module(scaled, head) - gaze).abs().mean(dim=1) for module in modules])
