"""Small data sets for tests: random pictures, faces of the mean shape."""

from pathlib import Path

import numpy as np
from PIL import Image

from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.landmark_schemes import ibug_mean_face
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, numbered_parts


def picture(path: Path, seed: int = 0) -> Path:
    """Write a picture of noise, 64 x 48 pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (48, 64, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return path


def face_points(seed: int = 0, *, degrees: float = 0.0, scale: float = 0.2) -> np.ndarray:
    """Return 68 landmarks that differ a little from the mean face, shape (68, 2)."""
    angle = np.deg2rad(degrees)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    noise = np.random.default_rng(seed).normal(0, 2, (68, 2))
    return scale * (ibug_mean_face() + noise) @ turn + (32, 24)


def face_box(points: np.ndarray) -> FaceBox:
    return FaceBox(8, 1, 46, 46, numbered_parts(points))


def dataset_of(folder: Path, *images: AnnotatedImage) -> FaceDataset:
    """Write a data set and read it back."""
    path = folder / "faces.xml"
    write_imglab_xml(FaceDataset(None, images=images), path)
    return read_imglab_xml(path)


def faces_in(folder: Path, count: int) -> FaceDataset:
    """Write `count` pictures with one face each."""
    return dataset_of(
        folder,
        *(
            AnnotatedImage(
                picture(folder / f"person-{i // 2:02d}_{i:02d}.png", i),
                (face_box(face_points(i, degrees=10 * i)),),
                64,
                48,
            )
            for i in range(count)
        ),
    )
