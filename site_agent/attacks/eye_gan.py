"""DualView's generator of eyes: a Wasserstein network that public eyes train.

Source: Elfares et al. 2024, "PrivatEyes", section 4.2, which gives no layers. The loss of the
generator has the diversity term of Yang et al. 2019; the critic has the gradient penalty of
Gulrajani et al. 2017. Pictures of earlier rounds enter as Zhang et al. 2020 have it: blurred to a
*skeleton*, they pass dilated convolutions on their way into the generator, and the critic sees
them next to the picture.
"""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import nn
from torch.nn import functional

from site_agent.datasets.gaze.records import PATCH_SHAPE
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.training.gaze.loop import repeatable
from site_agent.work import Progress, no_progress

LATENT = 100
_COARSE = (9, 15)
_DILATIONS = (2, 4, 8, 16)
_PENALTY, _DIVERSITY = 10.0, 10.0
_CODES_APART = 2 / 3
_ALONE = 0.5
"""Share of the training pictures without a skeleton, as in the first round."""


class GanSettings(Settings, error=InvalidInputError):
    """Settings of the training of the generator and of its critic."""

    steps: int = Field(default=1000, ge=1)
    """Of the generator."""
    critic_steps: int = Field(default=3, ge=1)
    """Of the critic, for each step of the generator."""
    batch_size: int = Field(default=16, ge=2)
    learning_rate: float = Field(default=1e-3, gt=0)
    seed: int = 0


class EyeGenerator(nn.Module):
    """Makes pictures of shape (n, 1, 36, 60), 0 to 1, of latent codes and skeletons."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Linear(LATENT, 48 * _COARSE[0] * _COARSE[1])
        widths = [1, *(8 for _ in _DILATIONS)]
        self.skeleton = nn.Sequential(
            *(layer for place, gap in enumerate(_DILATIONS)
              for layer in (nn.Conv2d(widths[place], 8, 3, padding=gap, dilation=gap), nn.ReLU())),
            nn.AvgPool2d(2),
        )  # fmt: skip
        self.last = nn.Conv2d(12, 1, 5, padding=2)
        self.picture = nn.Sequential(
            nn.GroupNorm(8, 56), nn.ReLU(),
            nn.Conv2d(56, 96, 3, padding=1), nn.PixelShuffle(2), nn.GroupNorm(8, 24), nn.ReLU(),
            nn.Conv2d(24, 48, 3, padding=1), nn.PixelShuffle(2), nn.ReLU(),
            self.last,
        )  # fmt: skip
        self.mean = nn.Parameter(torch.zeros(1, *PATCH_SHAPE))
        """Before the sigmoid; training begins at the mean eye and needs fewer steps so."""
        nn.init.zeros_(self.last.weight)

    def forward(self, codes: torch.Tensor, skeletons: torch.Tensor) -> torch.Tensor:
        coarse = self.code(codes).reshape(-1, 48, *_COARSE)
        shown = self.skeleton(functional.avg_pool2d(skeletons, 2))
        made: torch.Tensor = self.mean + self.picture(torch.cat([coarse, shown], dim=1))
        return made.sigmoid()


class EyeCritic(nn.Module):
    """Scores pictures next to their skeletons: the more they are like eyes, the higher."""

    def __init__(self) -> None:
        super().__init__()
        widths = (2, 16, 32, 64, 64)
        self.layers = nn.Sequential(
            *(layer for inside, outside in pairwise(widths)
              for layer in (nn.Conv2d(inside, outside, 4, 2, 1), nn.LeakyReLU(0.2))),
            nn.Flatten(), nn.Linear(64 * 2 * 3, 1),
        )  # fmt: skip

    def forward(self, pictures: torch.Tensor, skeletons: torch.Tensor) -> torch.Tensor:
        score: torch.Tensor = self.layers(torch.cat([pictures, skeletons], dim=1))[:, 0]
        return score


@dataclass(frozen=True, eq=False)
class EyeGan:
    """A trained generator with its critic."""

    generator: EyeGenerator
    critic: EyeCritic

    def draw(self, count: int, seed: int = 0) -> NDArray[np.uint8]:
        """Return pictures of random codes without a skeleton, shape (count, 36, 60)."""
        codes = _codes(count, torch.Generator().manual_seed(seed))
        with torch.inference_mode(), repeatable():
            made = self.generator(codes, no_skeletons(count))
        pictures: NDArray[np.uint8] = (255 * made[:, 0]).round().numpy().astype(np.uint8)
        return pictures

    def score(self, patches: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Return the critic's scores of patches (n, 36, 60), which have no skeleton."""
        pictures = torch.tensor(patches[:, None], dtype=torch.float32) / 255
        with torch.inference_mode(), repeatable():
            scores: NDArray[np.float32] = self.critic(pictures, no_skeletons(len(patches))).numpy()
        return scores

    def save(self, path: Path) -> None:
        """Write both networks for `load`."""
        torch.save([self.generator.state_dict(), self.critic.state_dict()], path)

    @classmethod
    def load(cls, path: Path) -> "EyeGan":
        """Read the networks from the file of `save`."""
        gan = cls(EyeGenerator(), EyeCritic())
        for network, state in zip(
            (gan.generator, gan.critic), torch.load(path, weights_only=True), strict=True
        ):
            network.load_state_dict(state)
            network.requires_grad_(False)
        return gan


def no_skeletons(count: int) -> torch.Tensor:
    """Return the skeletons that say nothing."""
    return torch.zeros(count, 1, *PATCH_SHAPE)


def blur(pictures: torch.Tensor) -> torch.Tensor:
    """Return the skeletons of pictures (n, 1, 36, 60), 0 to 1: their means at 9 x 15 places."""
    coarse = functional.avg_pool2d(pictures, 4)
    wide: torch.Tensor = functional.interpolate(coarse, PATCH_SHAPE, mode="nearest")
    return wide - 0.5


def train_gan(
    patches: NDArray[np.uint8], settings: GanSettings, progress: Progress = no_progress
) -> EyeGan:
    """Train a generator on public eye patches, of shape (n, 36, 60)."""
    generate = torch.Generator().manual_seed(settings.seed)
    eyes = torch.tensor(patches[:, None], dtype=torch.float32) / 255

    def choose() -> tuple[torch.Tensor, torch.Tensor]:
        """Return eyes and their skeletons, and empty skeletons for half of them."""
        chosen = eyes[torch.randint(len(eyes), (settings.batch_size,), generator=generate)]
        shown = torch.rand(len(chosen), 1, 1, 1, generator=generate) >= _ALONE
        return chosen, blur(chosen) * shown

    with repeatable(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        gan = EyeGan(EyeGenerator(), EyeCritic())
        # Of two eyes, as of two codes: the absolute difference of a number.
        apart = float((eyes - eyes.roll(len(eyes) // 2, 0)).abs().mean()) / _CODES_APART
        gan.generator.mean.data = eyes.mean(dim=0).clamp(0.01, 0.99).logit()
        for_generator, for_critic = (
            torch.optim.Adam(network.parameters(), settings.learning_rate, betas=(0.5, 0.999))
            for network in (gan.generator, gan.critic)
        )
        for step in range(settings.steps):
            progress(step / settings.steps, f"training the generator, step {step + 1}")
            for _ in range(settings.critic_steps):
                real, skeletons = choose()
                with torch.no_grad():
                    made = gan.generator(_codes(len(real), generate), skeletons)
                weights = torch.rand(len(real), 1, 1, 1, generator=generate)
                loss = critic_loss(gan.critic, real, made, skeletons, weights)
                for_critic.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                for_critic.step()
            _, skeletons = choose()
            codes = _codes(2 * len(skeletons), generate)
            loss = _generator_loss(gan, codes, skeletons.repeat(2, 1, 1, 1), apart)
            for_generator.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            for_generator.step()
    for network in (gan.generator, gan.critic):
        network.requires_grad_(False)
    return gan


def critic_loss(
    critic: EyeCritic, real: torch.Tensor, made: torch.Tensor, skeletons: torch.Tensor,
    weights: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Return minus the Wasserstein distance of made pictures, with the penalty on slopes.

    `weights`: Of shape (n, 1, 1, 1); the slopes are asked at these places between both pictures.
    """
    between = (weights * real + (1 - weights) * made).requires_grad_()
    (slopes,) = torch.autograd.grad(critic(between, skeletons).sum(), between, create_graph=True)
    steep = (slopes.flatten(1).norm(dim=1) - 1).square().mean()
    gap = critic(made, skeletons).mean() - critic(real, skeletons).mean()
    loss: torch.Tensor = gap + _PENALTY * steep
    return loss


def _generator_loss(
    gan: EyeGan, codes: torch.Tensor, skeletons: torch.Tensor, most: float
) -> torch.Tensor:
    """Return the loss of pictures; both halves have the same skeletons.

    `most`: Difference of two pictures, in that of their codes, beyond which no more is gained.
    """
    made = gan.generator(codes, skeletons)
    apart, asked = (
        (first - second).flatten(1).abs().mean(1)
        for first, second in (part.chunk(2) for part in (made, codes))
    )
    different = (apart / asked).clamp(max=most).mean()
    loss: torch.Tensor = -gan.critic(made, skeletons).mean() - _DIVERSITY * different
    return loss


def _codes(count: int, generate: torch.Generator) -> torch.Tensor:
    """Return random codes, between -1 and 1."""
    return 2 * torch.rand(count, LATENT, generator=generate) - 1
