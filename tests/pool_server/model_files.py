"""Small genuine model files, each with bytes of its own."""

import hashlib
import itertools

import numpy as np
from safetensors.numpy import save

from aggregators.formats import encode_model
from aggregators.models import FhogDetector

# Far from the seeds that tests choose themselves.
_counter = itertools.count(1_000_000)


def network_bytes(entries: int = 4, *, seed: int | None = None) -> bytes:
    """Return a safetensors file with one tensor; without `seed`, one never made before."""
    random = np.random.default_rng(next(_counter) if seed is None else seed)
    return save({"weight": random.standard_normal(entries).astype(np.float32)})


def detector_bytes(window_width_px: int = 80) -> bytes:
    """Return a dlib detector file."""
    random = np.random.default_rng(next(_counter))
    cells_wide, cells_high = round(window_width_px / 8) + 2, 12
    weights = random.standard_normal((1, 31 * cells_wide * cells_high))
    return encode_model(
        FhogDetector(
            window_width_px=window_width_px,
            window_height_px=80,
            cell_size_px=8,
            padding_cells=1,
            max_pyramid_levels=1000,
            min_layer_width_px=64,
            min_layer_height_px=64,
            nuclear_norm_strength=0.0,
            overlap_iou=0.5,
            overlap_covered=1.0,
            weights=weights,
            thresholds=np.array([0.5]),
            upsampling=0,
        )
    )


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
