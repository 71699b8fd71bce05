"""What eyes look like: principal components of public eye patches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.attacks.leaks import Float64
from site_agent.datasets.gaze import PATCH_SHAPE

COMPONENTS = 64


@dataclass(frozen=True, eq=False)
class EyePrior:
    """A Gaussian model of eye patches.

    Attributes
    ----------
    mean : float64, shape (2160,)
        Grey levels, 0 to 255.
    basis : float64, shape (components, 2160)
        Each component times its standard deviation, so that codes of public eyes have mean 0 and
        variance 1: the mean square of a code is its squared Mahalanobis distance.
    """

    mean: Float64
    basis: Float64

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
