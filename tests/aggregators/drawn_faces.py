"""Drawn ellipses with eyes and mouth, and tiny dlib models trained on them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aggregators.models import Float64, UInt8

PARTS = 17
SIZE_PX = 160


@dataclass(frozen=True)
class DrawnFace:
    """An image with one face.

    Attributes
    ----------
    image : uint8, shape (160, 160)
    box : tuple of int
        Left, top, right, bottom in pixels, inclusive.
    parts : float64, shape (17, 2)
        12 points of the outline, eyes, nose, corners of the mouth; (x, y) in pixels.
    """

    image: UInt8
    box: tuple[int, int, int, int]
    parts: Float64


def draw_faces(seed: int, count: int) -> list[DrawnFace]:
    """Draw faces of different sizes, proportions, places and tilts."""
    random = np.random.default_rng(seed)
    return [_draw_face(random) for _ in range(count)]


def _draw_face(random: np.random.Generator) -> DrawnFace:
    image = random.integers(0, 60, (SIZE_PX, SIZE_PX)).astype(np.uint8)
    centre = SIZE_PX / 2 + random.normal(0, 4, 2)
    radii = np.array([random.uniform(35, 50), random.uniform(40, 55)])
    tilt = random.normal(0, 0.15)
    rotation = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
    rows, columns = np.mgrid[:SIZE_PX, :SIZE_PX]
    upright = (np.stack([columns, rows], axis=-1) - centre) @ rotation
    image[((upright / radii) ** 2).sum(axis=-1) < 1] = 150 + random.integers(0, 40)
    angles = 2 * np.pi * np.arange(12) / 12
    outline = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    features = np.array([[-0.4, -0.3], [0.4, -0.3], [0, 0.1], [-0.3, 0.5], [0.3, 0.5]])
    for feature in features * radii:
        image[((upright - feature) ** 2).sum(axis=-1) < 30] = 30
    parts = np.concatenate([outline, features]) * radii @ rotation.T + centre
    left, top, right, bottom = (
        int(value)
        for value in (
            *(centre - 55 + random.normal(0, 2, 2)),
            *(centre + 55 + random.normal(0, 2, 2)),
        )
    )
    return DrawnFace(image, (left, top, right, bottom), parts)


def train_landmark_model(path: Path, seed: int, *, faces: int = 30, depth: int = 3) -> None:
    """Train a small dlib shape predictor: 5 levels of 40 trees."""
    import dlib

    images, detections = [], []
    for face in draw_faces(seed, faces):
        points = [dlib.point(int(x), int(y)) for x, y in np.rint(face.parts)]
        images.append(face.image)
        detections.append([dlib.full_object_detection(dlib.rectangle(*face.box), points)])
    options = dlib.shape_predictor_training_options()
    options.cascade_depth = 5
    options.num_trees_per_cascade_level = 40
    options.tree_depth = depth
    options.oversampling_amount = 10
    options.feature_pool_size = 150
    options.num_threads = 1
    options.random_seed = str(seed)
    dlib.train_shape_predictor(images, detections, options).save(str(path))


def train_detector(path: Path, seed: int, *, faces: int = 8) -> None:
    """Train a small dlib detector, saved by Python (with its upsampling amount)."""
    import dlib

    drawn = draw_faces(seed, faces)
    options = dlib.simple_object_detector_training_options()
    options.C = 5
    options.detection_window_size = 80 * 80
    options.num_threads = 1
    # Squares all of one size: dlib takes the window's proportions from the boxes.
    boxes = [
        [dlib.rectangle(face.box[0], face.box[1], face.box[0] + 110, face.box[1] + 110)]
        for face in drawn
    ]
    detector = dlib.train_simple_object_detector([face.image for face in drawn], boxes, options)
    detector.save(str(path))
