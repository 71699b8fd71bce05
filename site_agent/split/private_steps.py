"""DP-SGD of one part: each sample's gradient is clipped, and noise is added to their sum.

Three ways, by the scope of the noise; the accountant and its arithmetic are those of rounds
(`site_agent.federated.private_training`):

- ``client`` (the thesis): the client part. *Nominal*: the server part trains on the same images
  without noise, so that the whole network has no such epsilon.
- ``whole``: both parts. Each clips to ``dp_clip / sqrt(2)``, so that a sample's gradient over both
  has at most the norm `dp_clip`, and adds the noise for `dp_clip`. Image-level, against readers of
  the weights alone; the main server sees the smashed data of every image.
- ``person``: both parts of each person's update are clipped, and noise is added to their mean once
  a round (`in_process`).
"""

import math
from dataclasses import dataclass

import torch

from site_agent.federated import private_training
from site_agent.networks.gaze_modules import StagedNetwork
from site_agent.split.parts import size_of
from site_agent.split.plan import PERSONS_IN_ONE_PROCESS, SplitPlan


class PrivateSteps:
    """Turns the gradients of a step into those of DP-SGD.

    `module`: A part; its layers are watched from now on. `expected`: Samples in a step on average.
    `generator`: Of the noise. Knowing its seed is enough to remove the noise.
    """

    def __init__(
        self,
        module: StagedNetwork,
        plan: SplitPlan,
        privacy: private_training.PrivacyPlan,
        expected: float,
        generator: torch.Generator,
    ) -> None:
        private_training.require_private_network(module, plan.architecture)
        self._watched = private_training.watch_samples(module)
        self._parameters = [
            parameter for parameter in module.parameters() if parameter.requires_grad
        ]
        self._clip = plan.training.clip / (math.sqrt(2) if plan.dp_covers == "whole" else 1.0)
        self._deviation = privacy.noise_multiplier * plan.training.clip
        self._expected, self._generator = expected, generator

    def finish(self, samples: int) -> None:
        """Replace the gradients after the backward pass of a sum over samples; it may be empty."""
        totals = [torch.zeros_like(parameter) for parameter in self._parameters]
        if samples:
            private_training.add_clipped(totals, self._parameters, self._clip)
        private_training.set_noisy(
            totals, self._parameters, self._deviation, self._expected, self._generator
        )

    def close(self) -> None:
        """Stop watching the layers."""
        self._watched.to_standard_module()


_COVERS = {
    "client": "one image, in the client parts only: the server parts train on the same images "
    "without noise",
    "whole": "one image, in both parts, against readers of the weights alone",
    "person": "all images of a person, in both parts, against readers of the weights alone",
}


def protection_words(plan: SplitPlan) -> str:
    """Describe the differential privacy of a training, and its scope."""
    training = plan.training
    if training.dp_epsilon is None:
        return training.protection
    return f"{training.protection}; it covers {_COVERS[plan.dp_covers]}"


@dataclass(frozen=True)
class Protection:
    """The differential privacy of the weights of a training."""

    epsilon: float | None
    delta: float | None
    noise_multiplier: float | None
    """The three are None without it."""
    covers: str
    notes: tuple[str, ...] = ()
    """Notes on the size of the noise, its effect, and the limits of one process."""


def describe_protection(plan: SplitPlan, *, sites: int, units: int) -> Protection:
    """Return the epsilon of a training's weights, with its scope.

    `units`: Images of each site; persons, where these are covered.
    """
    training = plan.training
    if training.dp_epsilon is None:
        note = "dp_epsilon bounds what the weights show"
        return Protection(None, None, None, "nothing", (note,))
    noise = private_training.plan_privacy(training, units).noise_multiplier
    size = size_of(plan.found_cut)
    numbers = size.client_parameters
    if plan.dp_covers != "client":
        numbers += size.server_parameters
    ratio = private_training.noise_ratio(training, units, numbers, sites)
    notes = [
        f"sigma {noise:.3g} times the clip of {training.clip:g} at delta {training.dp_delta:g}",
        f"the noise in the result is {ratio:.2g} times the largest change that all can make"
        + (": expect nothing to be learned" if ratio > private_training.MOST_NOISE else ""),
    ]
    if plan.dp_covers == "person":
        notes.append(PERSONS_IN_ONE_PROCESS)
    covers = _COVERS[plan.dp_covers]
    return Protection(training.dp_epsilon, training.dp_delta, noise, covers, tuple(notes))
