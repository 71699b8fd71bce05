"""Small gaze data for tests, in both layouts."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.datasets.gaze.records import GazeSamples


def samples_of(person: str = "a", count: int = 24, seed: int = 0) -> GazeSamples:
    """Return samples of two sessions with both eyes of each frame."""
    rng = np.random.default_rng(seed)
    number = np.arange(count)
    frame = number // 2
    gaze = np.round(rng.normal(0, 0.15, (count, 2)), 6)
    # Both eyes look at the same point; right eyes are mirrored.
    gaze[1::2] = gaze[::2] * (-1, 1)
    return GazeSamples(
        patches=rng.integers(0, 256, (count, 36, 60), dtype=np.uint8),
        gaze=gaze,
        head=np.round(rng.normal(0, 0.1, (count, 2)), 6),
        person=np.full(count, person),
        session=np.where(frame % 2, "s1", "s0"),
        frame=frame.astype(np.int64),
        eye=np.where(number % 2, "right", "left"),
    )


def folder_of(folder: Path, *parts: GazeSamples) -> Path:
    """Write samples in the generic layout, and return the table."""
    table, _ = write_samples(folder, parts or [samples_of()])
    return table


def write_day(file: Path, eyes: dict[str, dict[str, Any]], names: list[str]) -> Path:
    """Write a day of MPIIGaze as it is published; `eyes` has gaze, image and pose."""
    file.parent.mkdir(parents=True, exist_ok=True)
    cells = np.array(names, dtype=object).reshape(-1, 1)
    savemat(file, {"data": eyes, "filenames": cells}, do_compression=True)
    return file


def ramp(count: int) -> np.ndarray:
    """Return patches that are dark on the left and bright on the right."""
    return np.tile(np.arange(60, dtype=np.uint8) * 4, (count, 36, 1))
