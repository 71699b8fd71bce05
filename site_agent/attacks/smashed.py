"""Turning smashed data back into eyes: the view of a split training's main server.

The attacker has public persons' pictures ("shadow persons") with the smashed data that it makes of
them, and the victims' smashed data. Three attackers:

- ``A`` (the thesis): a decoder, fitted to the shadow persons, is given one release of each image.
  It is the better of a network and of ridge regression, which knows how strong the noise is, on
  shadow pictures that are held out.
- ``B``: the same with the mean over all releases of an image, so that noise averages out.
- ``C``: knows the client part, and searches for the picture with the nearest smashed data, with a
  prior for smooth pictures (total variation; Mahendran and Vedaldi 2015).

Each result is compared with the mean shadow picture, which needs no smashed data at all: a gain of
0 is as good as that, 1 is the picture itself.
"""

import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import Field
from torch import nn
from torch.nn import functional

from aggregators.models import StateDict
from site_agent.attacks.dualview import fit_embedding, ssim
from site_agent.attacks.reidentification import reidentify
from site_agent.attacks.separation import Float64
from site_agent.datasets.gaze.records import PATCH_SHAPE, GazeSamples, angular_errors_deg
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.split.noise import Alter, SmashedNoise, sensitivity_of, signal_to_noise_db
from site_agent.split.parts import to_part_module
from site_agent.split.plan import Cut
from site_agent.training.gaze.loop import repeatable, to_tensors

Attacker = Literal["A", "B", "C"]
ATTACKERS: tuple[Attacker, ...] = ("A", "B", "C")
FEWEST_PERSONS = 8
"""Victims needed before attackers look for a person."""

_SD_TO_WHITE = 3.0
"""Standard deviations from mean grey to black or white in the pictures shown and scored."""

_PERSON_COMPONENTS = 20
_WIDTH = 16
_HELD_OUT, _RIDGE = 5, 1e-3
_COLUMNS = 12
Decode = Callable[[torch.Tensor], torch.Tensor]


class SmashedAttackSettings(Settings, error=InvalidInputError):
    """The effort of the attackers."""

    passes: int = Field(default=8, ge=1)
    """Of the decoder's training over the shadow pictures."""
    releases: int = Field(default=10, ge=1)
    """How often the smashed data of an image are sent: rounds times epochs."""
    batch_size: int = Field(default=32, ge=1)
    learning_rate: float = Field(default=0.002, gt=0)
    search_steps: int = Field(default=150, ge=0)
    """Of attacker C."""
    smoothness: float = Field(default=0.02, ge=0)
    """Weight of the total variation for attacker C."""
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Inversion:
    """The pictures that an attacker has made of the victims' smashed data, and their errors."""

    pictures: NDArray[np.uint8]
    """Of shape (n, 36, 60). Evened out as networks take them: mean grey, 3 standard deviations to
    white."""
    errors: Float64
    baseline_errors: Float64
    """Of shape (n,). Mean squared error of each picture, of grey levels from 0 to 1; the baseline
    is the mean shadow picture."""
    ssim: float
    """Mean structural similarity."""
    gaze_error_deg: float
    """Of a fixed network on the pictures; NaN without one."""
    persons_found: float
    """Share of the victims that the best one-to-one matching of their pictures identifies; NaN
    without at least 8 victims: among two, every second guess is right."""
    chance: float
    """Of `persons_found`."""

    def gain_of(self, weights: Float64) -> float:
        """Return the gain with pictures weighted."""
        return 1.0 - float((self.errors * weights).sum() / (self.baseline_errors * weights).sum())

    @property
    def gain(self) -> float:
        """How much nearer to the truth than the mean picture: 1 is the truth."""
        return self.gain_of(np.ones(len(self.errors)))

    def facts(self) -> dict[str, Any]:
        """Return the scores as plain data; NaN becomes None."""
        scores = {
            "mse": float(self.errors.mean()), "baseline_mse": float(self.baseline_errors.mean()),
            "gain": self.gain, "ssim": self.ssim, "gaze_error_deg": self.gaze_error_deg,
            "persons_found": self.persons_found, "chance": self.chance,
        }  # fmt: skip
        return {name: None if math.isnan(value) else value for name, value in scores.items()}


@dataclass(frozen=True, eq=False)
class AttackedPart:
    """The results of all attackers on one client part."""

    signal_to_noise_db: float
    """Of the victims' smashed data; infinite without noise."""
    truth: NDArray[np.uint8]
    mean: NDArray[np.uint8]
    """Of shapes (n, 36, 60) and (36, 60)."""
    shadow: GazeSamples
    victims: GazeSamples
    settings: SmashedAttackSettings
    results: Mapping[Attacker, Inversion] = field(default_factory=dict)


Estimate = Callable[[NDArray[np.uint8], NDArray[Any]], NDArray[np.float64]]
"""Takes patches and head angles; returns yaw and pitch. Not trained with the victims."""


def attack_smashed_data(
    part: StateDict,
    cut: Cut,
    shadow: GazeSamples,
    victims: GazeSamples,
    noise: SmashedNoise,
    *,
    settings: SmashedAttackSettings = SmashedAttackSettings(),
    estimate: Estimate | None = None,
) -> AttackedPart:
    """Attack the smashed data of victims, and score the resulting pictures.

    `part`: The client part that made the smashed data. `shadow`, `victims`: Of different persons.
    """
    with repeatable():
        module = to_part_module(part, cut, "client")
        front = cut.front_stages(module.stages)
        generator = torch.Generator().manual_seed(settings.seed)
        add = noise.alter(sensitivity_of(part, cut), generator)
        known, secret = to_tensors(shadow).patches, to_tensors(victims).patches

        def smash(patches: torch.Tensor) -> torch.Tensor:
            return module.run_stages(front, patches, patches.new_zeros(len(patches), 2))

        with torch.no_grad():
            theirs, mine = smash(known), smash(secret)
        released = add(mine)
        ratio = math.inf if noise.level == 0 else signal_to_noise_db(mine, released)
        averaged = _averaging(add, settings.releases)
        made: dict[Attacker, torch.Tensor] = {}
        made["A"] = made["B"] = _fit_decoder(theirs, known, add, settings)(released)
        if noise.level:  # else all releases are alike
            made["B"] = _fit_decoder(theirs, known, averaged, settings)(averaged(mine))
        made["C"] = _search(smash, averaged(mine), settings)
    return _scored(made, known, secret, (shadow, victims), settings, ratio, estimate)


def attack_pictures(
    shadow: GazeSamples, victims: GazeSamples, settings: SmashedAttackSettings
) -> AttackedPart:
    """Attack smashed data that are the pictures themselves: the attackers' upper bound."""
    with repeatable():
        known, secret = to_tensors(shadow).patches, to_tensors(victims).patches
        decoded = _fit_linear(known, known, lambda smashed: smashed, settings)(secret)
        made: dict[Attacker, torch.Tensor] = {"A": decoded, "B": decoded}
        made["C"] = _search(lambda patches: patches, secret, settings)
    return _scored(made, known, secret, (shadow, victims), settings, math.inf, None)


def _scored(  # noqa: PLR0917 - of one attack
    made: Mapping[Attacker, torch.Tensor],
    known: torch.Tensor,
    secret: torch.Tensor,
    sides: tuple[GazeSamples, GazeSamples],
    settings: SmashedAttackSettings,
    ratio: float,
    estimate: Estimate | None,
) -> AttackedPart:
    shadow, victims = sides
    truth = _as_pictures(secret)
    mean = _as_pictures(known).astype(np.float64).mean(axis=0)
    embedding = fit_embedding(shadow, _PERSON_COMPONENTS)
    results: dict[Attacker, Inversion] = {}
    for attacker, decoded in made.items():
        pictures = _as_pictures(decoded)
        gaze = math.nan
        if estimate is not None:
            errors = angular_errors_deg(estimate(pictures, victims.head), victims.gaze)
            gaze = float(errors.mean())
        results[attacker] = Inversion(
            pictures, _squares(pictures, truth), _squares(mean, truth),
            float(np.mean([ssim(a, b) for a, b in zip(pictures, truth, strict=True)])),
            gaze, *_find_persons(pictures, victims, embedding, settings.seed),
        )  # fmt: skip
    return AttackedPart(
        ratio, truth, np.round(mean).astype(np.uint8), shadow, victims, settings, results
    )


def sheet_of(attacked: AttackedPart) -> bytes:
    """Return a picture sheet as PNG: the eyes, each attacker's pictures, and the mean picture."""
    chosen = np.linspace(0, len(attacked.truth) - 1, min(_COLUMNS, len(attacked.truth))).astype(int)
    rows = [attacked.truth[chosen]]
    rows += [inversion.pictures[chosen] for inversion in attacked.results.values()]
    rows += [np.repeat(attacked.mean[None], len(chosen), axis=0)]
    grid = np.concatenate([np.concatenate(list(row), axis=1) for row in rows], axis=0)
    (high, wide), content = grid.shape, io.BytesIO()
    Image.fromarray(grid).resize((2 * wide, 2 * high), Image.Resampling.BICUBIC).save(
        content, format="PNG"
    )
    return content.getvalue()


class _Decoder(nn.Module):
    """Smashed data in, patches out: the client part's stages backwards, each made larger."""

    def __init__(self, shape: tuple[int, ...], deviation: float) -> None:
        super().__init__()
        self._deviation = deviation
        layers: list[nn.Module] = []
        channels = shape[0]
        if len(shape) == 1:
            layers += [nn.Linear(channels, 40 * 72), nn.ReLU(), nn.Unflatten(1, (40, 6, 12))]
            shape, channels = (40, 6, 12), 40
        while shape[1] < 16:
            layers += _grow(channels, _WIDTH)
            shape, channels = (_WIDTH, 2 * shape[1] + 4, 2 * shape[2] + 4), _WIDTH
        layers += [*_grow(channels, _WIDTH), nn.Conv2d(_WIDTH, _WIDTH, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(_WIDTH, 1, 3, padding=1)]
        self._layers = nn.Sequential(*layers)

    def forward(self, smashed: torch.Tensor) -> torch.Tensor:
        patches: torch.Tensor = self._layers(smashed / self._deviation)
        return patches


def _grow(inputs: int, outputs: int) -> list[nn.Module]:
    """Undo a convolution of 5 x 5 and the pooling after it: 16 x 28 becomes 36 x 60."""
    return [
        nn.ConvTranspose2d(inputs, outputs, 4, 2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(outputs, outputs, 5),
        nn.ReLU(),
    ]


def _averaging(add: Alter, releases: int) -> Alter:
    """Return a function that averages `releases` noisy copies of the same smashed data."""

    def average(smashed: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(smashed)
        for _ in range(releases):
            total += add(smashed)
        return total / releases

    return average


def _fit_decoder(
    smashed: torch.Tensor, patches: torch.Tensor, add: Alter, settings: SmashedAttackSettings
) -> Decode:
    """Fit two decoders; return the better one on every fifth shadow picture, held out from both."""
    held = torch.arange(len(smashed)) % _HELD_OUT == 0
    decoders = [
        fit(smashed[~held], patches[~held], add, settings) for fit in (_train_decoder, _fit_linear)
    ]
    released = add(smashed[held])
    return min(decoders, key=lambda decode: functional.mse_loss(decode(released), patches[held]))


def _fit_linear(
    smashed: torch.Tensor,
    patches: torch.Tensor,
    add: Alter,
    settings: SmashedAttackSettings,  # noqa: ARG001
) -> Decode:
    """Return a ridge regression, fitted as if to all possible noisy copies of the smashed data."""
    count = len(smashed)
    x, y = smashed.flatten(1).double(), patches.flatten(1).double()
    noise = float((add(smashed) - smashed).double().square().mean())
    centre, mean = x.mean(0), y.mean(0)
    inner = (x - centre) @ (x - centre).T
    ridge = count * noise + _RIDGE * float(inner.trace()) / count
    weights = (x - centre).T @ torch.linalg.solve(inner + ridge * torch.eye(count), y - mean)

    def decode(released: torch.Tensor) -> torch.Tensor:
        decoded: torch.Tensor = (released.flatten(1).double() - centre) @ weights + mean
        return decoded.float().reshape(-1, 1, *PATCH_SHAPE)

    return decode


def _train_decoder(
    smashed: torch.Tensor, patches: torch.Tensor, add: Alter, settings: SmashedAttackSettings
) -> Decode:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        noisy = add(smashed)
        decoder = _Decoder(tuple(smashed.shape[1:]), float(noisy.std().clamp(min=1e-9)))
        optimiser = torch.optim.Adam(decoder.parameters(), lr=settings.learning_rate)
        for _ in range(settings.passes):
            for batch in torch.split(torch.randperm(len(smashed)), settings.batch_size):
                optimiser.zero_grad(set_to_none=True)
                loss = functional.mse_loss(decoder(add(smashed[batch])), patches[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    def decode(released: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            decoded: torch.Tensor = decoder(released)
        return decoded

    return decode


def _search(
    smash: Callable[[torch.Tensor], torch.Tensor],
    released: torch.Tensor,
    settings: SmashedAttackSettings,
) -> torch.Tensor:
    """Return the patches with the nearest smashed data, by gradient descent."""
    x = torch.zeros(len(released), 1, *PATCH_SHAPE, requires_grad=True)
    optimiser = torch.optim.Adam([x], lr=0.05)
    scale = released.square().mean().clamp(min=1e-12)
    for _ in range(settings.search_steps):
        optimiser.zero_grad(set_to_none=True)
        near = (smash(x) - released).square().mean() / scale
        across = (x[..., 1:] - x[..., :-1]).abs().mean()
        down = (x[..., 1:, :] - x[..., :-1, :]).abs().mean()
        (near + settings.smoothness * (across + down)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return x.detach()


def _as_pictures(patches: torch.Tensor) -> NDArray[np.uint8]:
    """Return patches of mean 0 and deviation 1 as pictures of shape (n, 36, 60)."""
    grey = (patches[:, 0].numpy() / _SD_TO_WHITE + 1) * 127.5
    return np.clip(np.round(grey), 0, 255).astype(np.uint8)


def _squares(decoded: NDArray[Any], truth: NDArray[np.uint8]) -> Float64:
    """Return the mean squared error of each picture."""
    squares: Float64 = np.square((decoded.astype(np.float64) - truth) / 255).mean(axis=(1, 2))
    return squares


def _find_persons(
    pictures: NDArray[np.uint8], victims: GazeSamples, embedding: Any, seed: int
) -> tuple[float, float]:
    """Return the share of victims matched to their own other images, and the share by chance.

    The attacker compares the pictures from every second image with the true other images.
    """
    names = np.unique(victims.person)
    if len(names) < FEWEST_PERSONS:
        return math.nan, math.nan
    rows, gallery = [], []
    for name in names:
        mine = np.flatnonzero(victims.person == name)
        rows.append(pictures[mine[::2]])
        gallery.append(victims[mine[1::2]] if len(mine) > 1 else victims[mine])
    scores = np.array([embedding.similarities([row], gallery)[0] for row in rows])
    match = reidentify(scores, [str(name) for name in names], seed)
    return match.matched, match.chance
