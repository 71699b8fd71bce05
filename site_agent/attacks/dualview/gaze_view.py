"""View 2: where the persons of a site looked, from how its training changed the losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from site_agent.attacks.leaks import Float64

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
        centres: Float64 = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        return centres

    def density(self, gaze: Float64) -> Float64:
        """Return the kernel density of gaze (n, 2) at the centres by Scott's rule; its sum is 1."""
        from scipy.stats import gaussian_kde

        density = gaussian_kde(gaze.T)(self.centres.T) + _LEAST
        shares: Float64 = density / density.sum()
        return shares

    def changes(self, gains: Float64, gaze: Float64) -> Float64:
        """Return the mean change of loss in each cell, standardised over the cells of a site.

        Parameters
        ----------
        gains : float64, shape (sites, n)
            `LeakLosses.gains` on public samples.
        gaze : float64, shape (n, 2)
            Of those samples.

        Returns
        -------
        float64, shape (sites, 81)
        """
        distance = np.square(gaze[:, None] - self.centres[None]).sum(axis=2)
        cell = distance.argmin(axis=1)
        counts = np.bincount(cell, minlength=CELLS**2)
        sums = np.array([np.bincount(cell, own, CELLS**2) for own in gains])
        overall = gains.mean(axis=1, keepdims=True)
        # A cell without public samples says as much as the mean.
        means = (sums + overall) / (counts + 1)
        scaled: Float64 = (means - overall) / (means.std(axis=1, keepdims=True) + 1e-12)
        return scaled


def infer_densities(
    changes: Float64, shadow_changes: Float64, shadow_densities: Float64, seed: int = 0
) -> Float64:
    """Infer the distribution of gaze of each site by an autoencoder that shadow sites have taught.

    Parameters
    ----------
    changes : float64, shape (sites, 81)
        See `GazeGrid.changes`.
    shadow_changes, shadow_densities : float64, shape (shadow sites, 81)

    Returns
    -------
    float64, shape (sites, 81)
    """
    import torch
    from torch import nn

    from site_agent.training.gaze.loop import repeatable

    mean = np.log(shadow_densities.mean(axis=0))
    with repeatable(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [nn.Linear(CELLS**2, 32), nn.ReLU(), nn.Linear(32, 4), nn.Linear(4, 32), nn.ReLU()]
        network = nn.Sequential(*layers, nn.Linear(32, CELLS**2))
        known = torch.tensor(shadow_changes, dtype=torch.float32)
        target = torch.tensor(shadow_densities, dtype=torch.float32)
        prior = torch.tensor(mean, dtype=torch.float32)
        optimiser = torch.optim.Adam(network.parameters(), lr=3e-3, weight_decay=1e-3)
        for _ in range(200):
            optimiser.zero_grad()
            noisy = known + 0.3 * torch.randn_like(known)
            found = torch.log_softmax(prior + network(noisy), dim=1)
            loss = -(target * found).sum(dim=1).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        with torch.inference_mode():
            seen = torch.tensor(changes, dtype=torch.float32)
            inferred = torch.softmax(prior + network(seen), dim=1).numpy()
    densities: Float64 = inferred.astype(np.float64)
    return densities


def kl_divergence(truth: Float64, inferred: Float64) -> float:
    """Return KL(truth | inferred) of two densities of shape (81,), in nats."""
    inferred = np.maximum(inferred, _LEAST / CELLS**2)
    return float(np.sum(truth * np.log(np.maximum(truth, _LEAST / CELLS**2) / inferred)))
