"""Drawn faces for tests."""

from pathlib import Path
from typing import Any

from site_agent.datasets.synthetic.settings import FaceDrawing
from site_agent.datasets.synthetic.sites import write_face_dataset


def draw_faces(
    folder: Path, images: int, persons: int = 50, seed: int = 0, **settings: Any
) -> Path:
    """Draw faces, of 160 x 160 pixels where `settings` name no size; return their XML file."""
    chosen = {"size": (160, 160), **settings}
    drawing = FaceDrawing(images=images, persons=persons, seed=seed, **chosen)
    return write_face_dataset(folder, drawing).path
