"""DP-SGD of one part: each sample's gradient is clipped, and noise is added to their sum.

Three ways, by what the noise covers; the accountant and its arithmetic are those of rounds
(`site_agent.federated.private_training`):

- ``client`` (the thesis): the client part. *Nominal*: the server part trains on the same images
  without noise, so that the whole network has no such epsilon.
- ``whole``: both parts. Each clips to ``dp_clip / sqrt(2)``, so that a sample's gradient over both
  has at most the norm `dp_clip`, and adds the noise for `dp_clip`. Image-level, against whoever
  sees only weights; the main server sees the smashed data of every image.
- ``person``: both parts of each person's update are clipped, and noise is added to their mean once
  a round (`in_process`).
"""

from __future__ import annotations

import math

import torch

from site_agent.federated.private_training import (
    PrivacyPlan,
    add_clipped,
    require_private_network,
    set_noisy,
    watch_samples,
)
from site_agent.networks.gaze_modules import StagedNetwork
from site_agent.split.plan import SplitPlan


class PrivateSteps:
    """Turns the gradients of a step into those of DP-SGD.

    Parameters
    ----------
    module : StagedNetwork
        A part; its layers are watched from now on.
    expected : float
        Samples in a step on average.
    generator : torch.Generator
        Of the noise. Whoever knows its seed can take the noise away.
    """

    def __init__(
        self,
        module: StagedNetwork,
        plan: SplitPlan,
        privacy: PrivacyPlan,
        expected: float,
        generator: torch.Generator,
    ) -> None:
        require_private_network(module, plan.architecture)
        self._watched = watch_samples(module)
        self._parameters = [each for each in module.parameters() if each.requires_grad]
        self._clip = plan.training.clip / (math.sqrt(2) if plan.dp_covers == "whole" else 1.0)
        self._deviation = privacy.noise_multiplier * plan.training.clip
        self._expected, self._generator = expected, generator

    def finish(self, samples: int) -> None:
        """Replace the gradients after the backward pass of a sum over samples; it may be empty."""
        totals = [torch.zeros_like(each) for each in self._parameters]
        if samples:
            add_clipped(totals, self._parameters, self._clip)
        set_noisy(totals, self._parameters, self._deviation, self._expected, self._generator)

    def close(self) -> None:
        """Stop watching the layers."""
        self._watched.to_standard_module()


def protection_words(plan: SplitPlan) -> str:
    """Say what differential privacy a training has, and what it covers."""
    training = plan.training
    if training.dp_epsilon is None:
        return training.protection
    covers = {
        "client": "it covers the client parts only: the server parts train on the same images "
        "without noise",
        "whole": "it covers both parts, one image, against whoever sees only weights",
        "person": "it covers both parts, all images of a person, against whoever sees only weights",
    }
    return f"{training.protection}; {covers[plan.dp_covers]}; the main server sees smashed data"
