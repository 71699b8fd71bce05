"""Whether reconstructed pictures show the victim: an embedding of persons, PSNR and SSIM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.attacks.dualview.prior import EyePrior, fit_prior
from site_agent.attacks.leaks import Float64
from site_agent.datasets.gaze import GazeSamples


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
        rows = np.array([self.of(own) for own in pictures])
        found: Float64 = rows @ np.array([self.of(person.patches) for person in gallery]).T
        return found


def fit_embedding(samples: GazeSamples, components: int = 30) -> Embedding:
    """Fit the embedding to persons who are nobody's victims.

    It tells apart 13 of 15 drawn persons by pictures of other sessions, as many as a linear
    discriminant analysis, and suffers less from pictures that are smoother than true ones.
    """
    return Embedding(fit_prior(_even(samples.patches), components))


def psnr(picture: NDArray[np.uint8], truth: NDArray[np.uint8]) -> float:
    """Return the peak signal-to-noise ratio in dB."""
    error = np.mean(np.square(picture.astype(np.float64) - truth))
    return float(10 * np.log10(255**2 / max(float(error), 1e-9)))


def ssim(picture: NDArray[np.uint8], truth: NDArray[np.uint8]) -> float:
    """Return the structural similarity, at most 1 (Wang et al. 2004; Gaussian of 1.5 pixels)."""
    from scipy.ndimage import gaussian_filter

    a, b = picture.astype(np.float64), truth.astype(np.float64)

    def smooth(values: Float64) -> Float64:
        found: Float64 = gaussian_filter(values, 1.5)
        return found

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
    even: NDArray[np.uint8] = np.clip(np.round(128 + 50 * grey), 0, 255).astype(np.uint8)
    return even
