"""Sites with a few random eye patches: enough to train on, too few to learn from."""

import numpy as np

from aggregators.models import StateDict
from site_agent.datasets.gaze.records import GazeSamples


def samples_at(site: int, count: int = 16) -> GazeSamples:
    """Return random patches with gaze, each site its own."""
    draw = np.random.default_rng(site)
    return GazeSamples(
        draw.integers(0, 256, (count, 36, 60)).astype(np.uint8),
        draw.normal(size=(count, 2)) * 0.1,
        draw.normal(size=(count, 2)) * 0.1,
        np.full(count, f"p{site:02}"),
        np.where(np.arange(count) < count // 2, "day01", "day02"),
        np.arange(count),
        np.full(count, "left"),
    )


def moved(network: StateDict, share: float, draw: int = 0) -> StateDict:
    """Return a network after a random step, of each entry by this share of its norm."""
    generator = np.random.default_rng(draw)
    tensors = {
        name: np.array(
            value + generator.normal(size=value.shape) * share * np.sqrt(np.mean(value**2)),
            dtype=value.dtype,
        )
        for name, value in network.tensors.items()
    }
    return StateDict(tensors, network.infos, network.metadata)


def small_sites(count: int = 3) -> dict[str, GazeSamples]:
    """Return sites of different sizes."""
    return {f"site-{number}": samples_at(number, 16 + 2 * number) for number in range(count)}
