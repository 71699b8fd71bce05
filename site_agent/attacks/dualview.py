"""DualView: pictures of a site's persons and the directions of their gaze, from leaked networks.

Source: Elfares et al. 2024, "PrivatEyes", section 4.2. View 1 searches for pictures that are likely
under a public prior and have a small loss in the leaked networks, smallest in the victim's where
each site's network leaked. View 2 infers the distribution of gaze. The prior of `DualView` is a
principal component analysis of public eyes, which takes seconds on a CPU; `reconstruct_by_gan` has
the generative adversarial network of the paper.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.ndimage import gaussian_filter
from scipy.stats import gaussian_kde
from torch import nn

from aggregators.models import StateDict
from site_agent.attacks.eye_gan import LATENT, EyeGan, blur, no_skeletons
from site_agent.attacks.leaks import ALL_SITES, Leak
from site_agent.attacks.membership import predict_from_updates
from site_agent.attacks.separation import Float64
from site_agent.datasets.gaze.records import PATCH_SHAPE, GazeSamples
from site_agent.errors import InvalidInputError
from site_agent.networks.modules import to_module
from site_agent.settings import Settings
from site_agent.training.gaze.loop import repeatable

# The prior: principal components of public eye patches.
COMPONENTS = 64


@dataclass(frozen=True, eq=False)
class EyePrior:
    """A Gaussian model of eye patches."""

    mean: Float64
    """Of shape (2160,). Grey levels, 0 to 255."""
    basis: Float64
    """Of shape (components, 2160). Each component times its standard deviation, so that codes of
    public eyes have mean 0 and variance 1: the mean square of a code is its squared Mahalanobis
    distance."""

    @property
    def components(self) -> int:
        return len(self.basis)

    def decode(self, codes: Float64) -> NDArray[np.uint8]:
        """Return the pictures of codes of shape (n, components): shape (n, 36, 60)."""
        grey = self.mean + codes @ self.basis
        pictures: NDArray[np.uint8] = np.clip(np.round(grey), 0, 255).astype(np.uint8)
        return pictures.reshape(-1, *PATCH_SHAPE)

    def encode(self, patches: NDArray[np.uint8]) -> Float64:
        """Return the codes of patches of shape (n, 36, 60)."""
        rest = patches.reshape(len(patches), -1) - self.mean
        codes: Float64 = rest @ self.basis.T / (self.basis**2).sum(axis=1)
        return codes


def fit_prior(patches: NDArray[np.uint8], components: int = COMPONENTS) -> EyePrior:
    """Fit the prior to public eye patches, of shape (n, 36, 60)."""
    flat = patches.reshape(len(patches), -1).astype(np.float64)
    mean = flat.mean(axis=0)
    # Fewer patches than pixels: their inner products are the smaller matrix.
    _, vectors = np.linalg.eigh((flat - mean) @ (flat - mean).T)
    count = min(components, len(flat) - 1)
    largest = vectors[:, ::-1][:, :count]
    return EyePrior(mean, largest.T @ (flat - mean) / np.sqrt(len(flat) - 1))


# View 2: the directions in which persons looked, from the changes of losses by training.
CELLS = 9
_LEAST = 1e-6


@dataclass(frozen=True)
class GazeGrid:
    """A 9 x 9 grid over yaw and pitch; limits in radians."""

    yaw: tuple[float, float] = (-0.5, 0.5)
    pitch: tuple[float, float] = (-0.5, 0.3)

    @property
    def centres(self) -> Float64:
        """Yaw and pitch of the middle of each cell, shape (81, 2)."""
        axes = [
            low + (high - low) * (np.arange(CELLS) + 0.5) / CELLS
            for low, high in (self.yaw, self.pitch)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)

    def density(self, gaze: Float64) -> Float64:
        """Return the kernel density of gaze (n, 2) at the centres by Scott's rule; its sum is 1."""
        density = gaussian_kde(gaze.T)(self.centres.T) + _LEAST
        shares: Float64 = density / density.sum()
        return shares

    def changes(self, gains: Float64, gaze: Float64) -> Float64:
        """Return the mean change of loss in each cell, standardised over the cells of a site.

        `gains` (float64, shape (sites, n)): `LeakLosses.gains` on public samples. `gaze` (float64,
        shape (n, 2)): Of those samples.

        Returns float64, shape (sites, 81).
        """
        distance = np.square(gaze[:, None] - self.centres[None]).sum(axis=2)
        cell = distance.argmin(axis=1)
        counts = np.bincount(cell, minlength=CELLS**2)
        sums = np.array([np.bincount(cell, gain, CELLS**2) for gain in gains])
        overall = gains.mean(axis=1, keepdims=True)
        # A cell without public samples counts as the mean.
        means = (sums + overall) / (counts + 1)
        scaled: Float64 = (means - overall) / (means.std(axis=1, keepdims=True) + 1e-12)
        return scaled


def infer_densities(
    changes: Float64, shadow_changes: Float64, shadow_densities: Float64, seed: int = 0
) -> Float64:
    """Infer each site's distribution of gaze by an autoencoder trained on shadow sites.

    `changes` (float64, shape (sites, 81)): See `GazeGrid.changes`; several rounds stand side by
    side. `shadow_changes` (float64, shape (shadow sites, 81)): likewise. `shadow_densities`
    (float64, shape (shadow sites, 81)).

    Returns float64, shape (sites, 81).
    """
    mean = np.log(shadow_densities.mean(axis=0))
    with repeatable(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [
            nn.Linear(changes.shape[1], 32),
            nn.ReLU(),
            nn.Linear(32, 4),
            nn.Linear(4, 32),
            nn.ReLU(),
        ]
        network = nn.Sequential(*layers, nn.Linear(32, CELLS**2))
        known = torch.tensor(shadow_changes, dtype=torch.float32)
        target = torch.tensor(shadow_densities, dtype=torch.float32)
        prior = torch.tensor(mean, dtype=torch.float32)
        optimiser = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-3)
        for _ in range(200):
            optimiser.zero_grad()
            noisy = known + 0.3 * torch.randn_like(known)
            log_shares = torch.log_softmax(prior + network(noisy), dim=1)
            loss = -(target * log_shares).sum(dim=1).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.inference_mode():
            seen = torch.tensor(changes, dtype=torch.float32)
            inferred = torch.softmax(prior + network(seen), dim=1).numpy()
    return inferred.astype(np.float64)


def kl_divergence(truth: Float64, inferred: Float64) -> float:
    """Return KL(truth | inferred) of two densities of shape (81,), in nats."""
    inferred = np.maximum(inferred, _LEAST / CELLS**2)
    return float(np.sum(truth * np.log(np.maximum(truth, _LEAST / CELLS**2) / inferred)))


# View 1: pictures on which the victim's network does well, and those of other sites do not.


class InversionSettings(Settings, error=InvalidInputError):
    """Settings of the search for pictures.

    The paper's weights for faces (10, 6, 4) are for its critic; with those of gaze and appearance
    the search leaves the space of eyes, and finds fewer persons than its start.
    """

    prior: float = 10.0
    gaze: float = 1.0
    appearance: float = 0.1
    """Weights of the three parts of the loss."""
    restarts: int = Field(default=5, ge=1)
    """Pictures of each victim, each with another gaze."""
    steps: int = Field(default=60, ge=0)
    """Of gradient descent with Nesterov's momentum."""
    rivals: int = Field(default=3, ge=0)
    """Other sites with which a step compares the victim, drawn again in each step."""
    sharpness: float = 20.0
    """The losses of sites, in radians, are multiplied by this before the softmax."""
    learning_rate: float = 0.02
    momentum: float = 0.9
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Victims:
    """The sites under attack, and the starting points of the search."""

    sites: Sequence[str]
    starts: Float64
    """Of shape (sites, components). Codes to start at, such as those predicted from updates. The
    prior is centred on them: without it, the search ends at pictures that suit the networks and
    look like nobody."""


def reconstruct(
    leak: Leak, victims: Victims, prior: EyePrior, public: GazeSamples, settings: InversionSettings
) -> NDArray[np.uint8]:
    """Return pictures of each victim, of shape (sites, restarts, 36, 60).

    `leak`: Networks after the last round are inverted. If none leaked, only the prior speaks; if
    only a combined one did, the search is the same for all sites, and no appearance term applies.
    `public`: At least as many as restarts: gaze and head of the pictures are spread over theirs.
    """
    after = leak.rounds[-1].after if leak.rounds else {}

    def begin(number: int | None) -> _Space:
        centre = victims.starts.mean(axis=0) if number is None else victims.starts[number]
        return _Components(prior, centre, settings.restarts)

    return _reconstruct(after, victims.sites, begin, public, settings)


def reconstruct_by_gan(
    leak: Leak,
    sites: Sequence[str],
    gan: EyeGan,
    public: GazeSamples,
    settings: InversionSettings,
    *,
    auxiliary: bool = True,
) -> NDArray[np.uint8]:
    """Return pictures of each site as the paper makes them, of shape (sites, restarts, 36, 60).

    `auxiliary`: Pictures of a round are the skeletons of those of the next; otherwise only the last
    round is inverted.
    """
    rounds = [round_.after for round_ in leak.rounds] or [{}]
    earlier: NDArray[np.uint8] | None = None

    def begin(number: int | None) -> _Space:
        known = None if earlier is None else earlier[number or 0]
        return _Generated(gan, known, settings)

    for after in rounds if auxiliary else rounds[-1:]:
        earlier = _reconstruct(after, sites, begin, public, settings)
    assert earlier is not None
    return earlier


def _reconstruct(
    after: Mapping[str, StateDict],
    sites: Sequence[str],
    begin: "Callable[[int | None], _Space]",
    public: GazeSamples,
    settings: InversionSettings,
) -> NDArray[np.uint8]:
    """Return pictures of each site; `begin` takes its number, or None for all of them together."""
    asked = public[spread_over_gaze(public, settings.restarts)]
    with repeatable():
        modules = {site: to_module(network) for site, network in after.items()}
        for module in modules.values():
            module.requires_grad_(False)
        if ALL_SITES in modules or not modules:
            pictures = _search(modules, ALL_SITES, begin(None), asked, settings)
            return np.repeat(pictures[None], len(sites), axis=0)
        return np.array(
            [
                _search(modules, site, begin(number), asked, settings)
                for number, site in enumerate(sites)
            ]
        )


def spread_over_gaze(public: GazeSamples, count: int) -> NDArray[np.int64]:
    """Return the places of some samples, spread over the order of their yaw."""
    order = np.argsort(public.gaze[:, 0], kind="stable")
    ranks = (np.arange(count) + 0.5) / count * len(order)
    places: NDArray[np.int64] = order[ranks.astype(int)]
    return places


@dataclass(frozen=True, eq=False)
class DualView:
    """The attacker's preparation of view 1: public pictures, and sites of his own."""

    public: GazeSamples
    """For the prior, and for gaze and head of the pictures."""
    persons: Sequence[GazeSamples]
    """Samples of each shadow site."""
    networks: Mapping[str, StateDict]
    """Of the shadow sites, trained from the first base of the leak."""

    @cached_property
    def prior(self) -> EyePrior:
        return fit_prior(self.public.patches)

    def reconstruct(
        self, leak: Leak, sites: Sequence[str], settings: "InversionSettings"
    ) -> NDArray[np.uint8]:
        """Return pictures of each site, as `reconstruct`; the updates say where to begin."""
        starts = np.zeros((len(sites), self.prior.components))
        if leak.rounds:
            codes = [self.prior.encode(mine.patches).mean(axis=0) for mine in self.persons]
            starts = predict_from_updates(leak, sites, self.networks, np.array(codes))
        return reconstruct(leak, Victims([*sites], starts), self.prior, self.public, settings)


class _Space(Protocol):
    """Where a search goes: codes, their pictures, and how unlikely these are."""

    codes: torch.Tensor

    def grey(self) -> torch.Tensor:
        """Return the pictures of the codes, grey levels of shape (n, 2160)."""

    def penalty(self, grey: torch.Tensor) -> torch.Tensor:
        """Return how unlikely each picture is, shape (n,)."""

    def limit(self) -> None:
        """Bring codes back into the space."""


class _Components:
    """Principal components, around codes at which the search begins."""

    def __init__(self, prior: EyePrior, centre: Float64, count: int) -> None:
        self._mean = torch.tensor(prior.mean, dtype=torch.float32)
        self._basis = torch.tensor(prior.basis, dtype=torch.float32)
        self._centre = torch.tensor(centre, dtype=torch.float32)
        self.codes = self._centre.repeat(count, 1).requires_grad_()

    def grey(self) -> torch.Tensor:
        return self._mean + self.codes @ self._basis

    def penalty(self, grey: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
        return (self.codes - self._centre).square().mean(dim=1)

    def limit(self) -> None:
        pass


class _Generated:
    """Codes of a generator, with skeletons from pictures of an earlier round, if there are any."""

    def __init__(
        self, gan: EyeGan, earlier: NDArray[np.uint8] | None, settings: InversionSettings
    ) -> None:
        self._gan, count = gan, settings.restarts
        self._skeletons = no_skeletons(count)
        if earlier is not None:
            self._skeletons = blur(torch.tensor(earlier[:, None], dtype=torch.float32) / 255)
        random = np.random.default_rng([settings.seed, LATENT])
        start = random.uniform(-1, 1, (count, LATENT))
        self.codes = torch.tensor(start, dtype=torch.float32, requires_grad=True)

    def grey(self) -> torch.Tensor:
        grey: torch.Tensor = 255 * self._gan.generator(self.codes, self._skeletons).flatten(1)
        return grey

    def penalty(self, grey: torch.Tensor) -> torch.Tensor:
        pictures = grey.reshape(-1, 1, *PATCH_SHAPE) / 255
        penalty: torch.Tensor = -self._gan.critic(pictures, self._skeletons)
        return penalty

    def limit(self) -> None:
        self.codes.data.clamp_(-1, 1)


def _search(
    modules: "dict[str, nn.Module]",
    victim: str,
    space: _Space,
    asked: GazeSamples,
    settings: InversionSettings,
) -> NDArray[np.uint8]:
    """Return the pictures of one victim, shape (restarts, 36, 60)."""
    rng = np.random.default_rng([settings.seed, settings.steps])
    head = torch.tensor(asked.head, dtype=torch.float32)
    gaze = torch.tensor(asked.gaze, dtype=torch.float32)
    optimiser = torch.optim.SGD(
        [space.codes], lr=settings.learning_rate, momentum=settings.momentum, nesterov=True
    )
    others = sorted(set(modules) - {victim})
    for _ in range(settings.steps):
        optimiser.zero_grad()
        grey = space.grey()
        loss = settings.prior * space.penalty(grey).sum()
        if modules:
            chosen = rng.choice(len(others), min(settings.rivals, len(others)), replace=False)
            names = [victim, *(others[index] for index in chosen)]
            losses = _losses([modules[name] for name in names], grey, head, gaze)
            loss = loss + settings.gaze * losses[0].sum()
            if len(names) > 1:
                known = torch.log_softmax(-settings.sharpness * losses, dim=0)[0]
                loss = loss - settings.appearance * known.sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        space.limit()
    with torch.no_grad():
        grey = space.grey().clamp(0, 255).round()
    pictures: NDArray[np.uint8] = grey.numpy().astype(np.uint8).reshape(-1, *PATCH_SHAPE)
    return pictures


def _losses(
    modules: "Sequence[nn.Module]", grey: "torch.Tensor", head: "torch.Tensor", gaze: "torch.Tensor"
) -> "torch.Tensor":
    """Return the losses of networks on pictures, shape (networks, pictures)."""
    patches = grey.reshape(-1, 1, *PATCH_SHAPE)
    patches = patches - patches.mean(dim=(2, 3), keepdim=True)
    deviation = patches.square().mean(dim=(2, 3), keepdim=True).sqrt()
    scaled = patches / deviation.clamp(min=4.0)
    return torch.stack([(module(scaled, head) - gaze).abs().mean(dim=1) for module in modules])


# Judging reconstructed pictures: an embedding of persons, PSNR and SSIM.


@dataclass(frozen=True, eq=False)
class Embedding:
    """Principal components of other persons' eyes, after light and camera are evened out."""

    prior: EyePrior

    def of(self, patches: NDArray[np.uint8]) -> Float64:
        """Return the mean embedding of pictures (n, 36, 60) of one person, of length 1."""
        scale = np.linalg.norm(self.prior.basis, axis=1)
        mean = (self.prior.encode(_even(patches)) * scale).mean(axis=0)
        unit: Float64 = mean / max(float(np.linalg.norm(mean)), 1e-12)
        return unit

    def similarities(self, pictures: NDArray[np.uint8], gallery: list[GazeSamples]) -> Float64:
        """Return cosines between sites' pictures and persons' true ones: (sites, persons)."""
        rows = np.array([self.of(mine) for mine in pictures])
        cosines: Float64 = rows @ np.array([self.of(person.patches) for person in gallery]).T
        return cosines


def fit_embedding(samples: GazeSamples, components: int = 30) -> Embedding:
    """Fit the embedding to persons outside the attack.

    It distinguishes 13 of 15 drawn persons by pictures of other sessions, as many as a linear
    discriminant analysis, and suffers less from pictures that are smoother than true ones.
    """
    return Embedding(fit_prior(_even(samples.patches), components))


def psnr(picture: NDArray[np.uint8], truth: NDArray[np.uint8]) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    error = np.mean(np.square(picture.astype(np.float64) - truth))
    return float(10 * np.log10(255**2 / max(float(error), 1e-9)))


def ssim(picture: NDArray[np.uint8], truth: NDArray[np.uint8]) -> float:
    """Return the structural similarity, at most 1 (Wang et al. 2004; Gaussian of 1.5 pixels)."""
    a, b = picture.astype(np.float64), truth.astype(np.float64)

    def smooth(values: Float64) -> Float64:
        smoothed: Float64 = gaussian_filter(values, 1.5)
        return smoothed

    mean_a, mean_b = smooth(a), smooth(b)
    variance = smooth(a * a) - mean_a**2 + smooth(b * b) - mean_b**2
    shared = smooth(a * b) - mean_a * mean_b
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    light = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    return float(np.mean(light * (2 * shared + c2) / (variance + c2)))


def nearest_public(pictures: NDArray[np.uint8], public: GazeSamples) -> NDArray[np.uint8]:
    """Return the public picture nearest to each picture (n, 36, 60)."""
    flat = pictures.reshape(len(pictures), -1).astype(np.float64)
    known = public.patches.reshape(len(public), -1).astype(np.float64)
    distance = (flat**2).sum(axis=1)[:, None] - 2 * flat @ known.T + (known**2).sum(axis=1)
    chosen: NDArray[np.uint8] = public.patches[distance.argmin(axis=1)]
    return chosen


def _even(patches: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return patches of equal mean and contrast: light and camera are not the person."""
    grey = patches.astype(np.float64)
    grey -= grey.mean(axis=(1, 2), keepdims=True)
    grey /= np.maximum(grey.std(axis=(1, 2), keepdims=True), 4.0)
    return np.clip(np.round(128 + 50 * grey), 0, 255).astype(np.uint8)
