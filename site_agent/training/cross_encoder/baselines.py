"""Baselines of the study of cross-encoders that need no weights from elsewhere, and another head.

SimCLR and BYOL learn features that two random views of one patch share: shifted by a few pixels and
lit otherwise. They see no pair of frames or eyes, so nothing tells them which feature is the gaze.

Sources: Chen et al. 2020, "A Simple Framework for Contrastive Learning of Visual Representations";
Grill et al. 2020, "Bootstrap Your Own Latent".
"""

from copy import deepcopy
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from site_agent.datasets.gaze.records import gaze_vectors
from site_agent.networks.gaze_modules import GAZE_SIZE, CrossEncoder
from site_agent.training.cross_encoder.loop import FrameTensors
from site_agent.training.gaze.loop import make_optimiser, random_view, repeatable
from site_agent.training.steps import take_steps

_SHIFT_PX, _LIGHT = 3, 0.6
_WIDTH, _PROJECTED = 64, 32
_TEMPERATURE = 0.2
_MOMENTUM = 0.99
"""By which BYOL's target network follows."""


def _layers(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _PROJECTED))


class TwoViews(nn.Module):
    """An encoder while its features of two views of a patch are made alike."""

    def __init__(self, encoder: CrossEncoder, method: Literal["simclr", "byol"]) -> None:
        super().__init__()
        self.encoder, self.projector = encoder, _layers(GAZE_SIZE)
        self.predictor: nn.Module | None = _layers(_PROJECTED) if method == "byol" else None
        # The target is no part of the network: no gradient reaches it.
        self._target = deepcopy(encoder), deepcopy(self.projector)

    def _project(self, view: torch.Tensor) -> torch.Tensor:
        projected: torch.Tensor = self.projector(self.encoder.encode(view)[0])
        return projected

    def loss(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Return the loss of two views (n, 1, 36, 60) of patches."""
        mine = [self._project(view) for view in (first, second)]
        if self.predictor is None:
            together = functional.normalize(torch.cat(mine), dim=1)
            alike = together @ together.T / _TEMPERATURE
            alike = alike.masked_fill(torch.eye(len(alike), dtype=torch.bool), -torch.inf)
            return functional.cross_entropy(alike, torch.arange(len(alike)).roll(len(first)))
        encoder, projector = self._target
        with torch.no_grad():
            aims = [projector(encoder.encode(view)[0]) for view in (second, first)]
        pairs = zip(mine, aims, strict=True)
        predict = self.predictor
        likeness = [functional.cosine_similarity(predict(x), aim).mean() for x, aim in pairs]
        return 2 - likeness[0] - likeness[1]

    def follow(self) -> None:
        """Move BYOL's target a little towards the network."""
        for target, source in zip(self._target, (self.encoder, self.projector), strict=True):
            entries = zip(target.state_dict().values(), source.state_dict().values(), strict=True)
            for value, new in entries:
                value.lerp_(new, 1 - _MOMENTUM) if value.is_floating_point() else value.copy_(new)


def train_on_views(
    encoder: CrossEncoder,
    method: Literal["simclr", "byol"],
    data: FrameTensors,
    *,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    seed: int,
) -> CrossEncoder:
    """Train an encoder by SimCLR or BYOL on single patches, and return it."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(), repeatable():
        torch.manual_seed(seed)
        module = TwoViews(encoder, method)
        optimiser = make_optimiser("adamw", module, learning_rate, 0.0, 0.0)

        def loss_of(batch: torch.Tensor) -> torch.Tensor:
            views = (random_view(data.patches[batch], _SHIFT_PX, _LIGHT, generator) for _ in "ab")
            return module.loss(*views)

        for _ in range(epochs):
            order = torch.randperm(len(data), generator=generator)
            # Both losses compare patches, so a last batch may be too small for them.
            steps = torch.split(order[: len(order) // batch_size * batch_size], batch_size)
            take_steps(module, optimiser, steps, loss_of, after_step=module.follow)
    return encoder.eval()


def two_layer_error(
    features: NDArray[np.float64],
    gaze: NDArray[np.float64],
    test_features: NDArray[np.float64],
    test_gaze: NDArray[np.float64],
    *,
    steps: int,
    seed: int,
) -> float:
    """Return the mean angle in degrees of a head of two linear layers that answers 3-D directions.

    `gaze`, `test_gaze`: Yaw and pitch in radians. The head is trained on all samples in each step.
    """
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-6
    inputs, tests = (
        torch.from_numpy(((x - centre) / scale).astype(np.float32))
        for x in (features, test_features)
    )
    aims = torch.from_numpy(gaze_vectors(gaze).astype(np.float32))
    with torch.random.fork_rng(), repeatable():
        torch.manual_seed(seed)
        width = inputs.shape[1]
        head = nn.Sequential(nn.Linear(width, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 3))
        optimiser = make_optimiser("adamw", head, 0.003, 0.0, 0.01)
        everything = [torch.arange(len(aims))] * steps
        take_steps(head, optimiser, everything, lambda _: functional.l1_loss(head(inputs), aims))
        with torch.inference_mode():
            directions = functional.normalize(head(tests), dim=1).numpy().astype(np.float64)
    cosine = (directions * gaze_vectors(test_gaze)).sum(axis=1)
    return float(np.rad2deg(np.arccos(np.clip(cosine, -1, 1))).mean())
