"""A site's faces as arrays, and samples drawn from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggregators.errors import FaceBoxError, ImageArrayError
from aggregators.models import Float32, Float64, Int64, UInt8
from aggregators.predictors import check_boxes

_FEWEST_FACES = 2


@dataclass(frozen=True, eq=False)
class SiteFaces:
    """The annotated faces of one site.

    Attributes
    ----------
    pixels : uint8, shape (bytes,)
        The grey images of all faces, concatenated.
    image_starts : int64, shape (faces,)
        Offset of each in `pixels`.
    image_sizes : int64, shape (faces, 2)
        Height and width in pixels.
    boxes : float64, shape (faces, 4)
        (left, top, right, bottom) in pixels of the face's image, right and bottom inclusive.
    shapes : float64, shape (faces, parts, 2)
        True landmarks in box coordinates: (0, 0) top left corner, (1, 1) bottom right corner.
    """

    pixels: UInt8
    image_starts: Int64
    image_sizes: Int64
    boxes: Float64
    shapes: Float64

    @property
    def face_count(self) -> int:
        return int(self.boxes.shape[0])

    @property
    def part_count(self) -> int:
        return int(self.shapes.shape[1])

    @classmethod
    def from_arrays(
        cls, images: Sequence[NDArray[Any]], boxes: ArrayLike, points: ArrayLike
    ) -> "SiteFaces":
        """Check and pack images, boxes and landmarks.

        Raises `ImageArrayError` if an image is not grey, not of bytes, or empty, and `FaceBoxError`
        if boxes or landmarks are not finite or of the wrong shape, or there are fewer than two
        faces.

        Parameters
        ----------
        images : sequence of uint8, shape (height, width)
            Grey, one for each face.
        boxes : float, shape (faces, 4)
            (left, top, right, bottom) in pixels, right and bottom inclusive.
        points : float, shape (faces, parts, 2)
            (x, y) of every landmark in pixels.
        """
        packed = [_require_image(image, number) for number, image in enumerate(images)]
        sizes = np.array([image.shape for image in packed], dtype=np.int64).reshape(-1, 2)
        areas = sizes[:, 0] * sizes[:, 1]
        corners, landmarks = check_boxes(boxes), _require_points(points)
        if len(corners) != len(landmarks):
            raise FaceBoxError(f"{len(corners)} boxes for the landmarks of {len(landmarks)} faces")
        if len(corners) != len(packed):
            raise FaceBoxError(f"{len(packed)} images for {len(corners)} faces, expected one each")
        if len(corners) < _FEWEST_FACES:
            raise FaceBoxError(
                f"{len(corners)} faces; at least {_FEWEST_FACES} are needed, as faces start from "
                "the landmarks of others"
            )
        sides = corners[:, np.newaxis, 2:] - corners[:, np.newaxis, :2]
        return cls(
            pixels=np.concatenate([image.reshape(-1) for image in packed]),
            image_starts=np.cumsum(areas) - areas,
            image_sizes=sizes,
            boxes=corners,
            shapes=(landmarks - corners[:, np.newaxis, :2]) / sides,
        )


@dataclass(frozen=True, eq=False)
class Samples:
    """Faces times starting shapes, face by face.

    Attributes
    ----------
    image_of_sample : int64, shape (samples,)
    boxes : float64, shape (samples, 4)
    starts, targets : float32, shape (samples, parts, 2)
        Initial and true landmarks, in coordinates of the sample's box.
    """

    image_of_sample: Int64
    boxes: Float64
    starts: Float32
    targets: Float32


def draw_samples(
    faces: SiteFaces, initial_shape: Float32, *, starts: int, jitter: float, seed: int
) -> Samples:
    """Draw `starts` starting shapes for each face as dlib's trainer does.

    A face's first start is the model's initial shape. Each other one is the mean of the true
    shapes of two random faces of the site, with random weights between 0.1 and 1.1, and its box
    is shifted at random by at most `jitter` times its width and height.
    """
    random = np.random.default_rng(np.random.SeedSequence(seed))
    count, parts = faces.face_count, faces.part_count
    weights = random.random((count, starts, 2)) + 0.1
    # Before the shifts, which are drawn only with jitter: the shapes of a seed do not depend on it.
    chosen = random.integers(0, count, (count, starts, 2))
    shifts = random.uniform(-jitter, jitter, (count, starts, 2)) if jitter else None
    drawn = np.empty((count, starts, parts, 2), dtype=np.float32)
    for face in range(count):
        pair = faces.shapes[chosen[face]] * weights[face][:, :, np.newaxis, np.newaxis]
        drawn[face] = (pair[:, 0] + pair[:, 1]) / weights[face].sum(axis=1)[:, None, None]
    # As at use: the first start of a face is the model's own, never jittered.
    drawn[:, 0] = initial_shape
    boxes = np.repeat(faces.boxes[:, np.newaxis], starts, axis=1)
    targets = np.repeat(faces.shapes[:, np.newaxis], starts, axis=1)
    if shifts is not None:
        shifts[:, 0] = 0
        sides = faces.boxes[:, np.newaxis, 2:] - faces.boxes[:, np.newaxis, :2]
        boxes += np.tile(shifts * sides, 2)
        targets -= shifts[:, :, np.newaxis]
    return Samples(
        image_of_sample=np.repeat(np.arange(faces.face_count), starts),
        boxes=boxes.reshape(-1, 4),
        starts=drawn.reshape(-1, parts, 2),
        targets=targets.reshape(-1, parts, 2).astype(np.float32),
    )


def _require_image(image: NDArray[Any], number: int) -> UInt8:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 2:
        kind = f"{image.dtype} {image.shape}" if isinstance(image, np.ndarray) else type(image)
        raise ImageArrayError(
            f"image {number} must be a grey array of uint8, (height, width), not {kind}"
        )
    if image.size == 0:
        raise ImageArrayError(f"image {number} has no pixels: its shape is {image.shape}")
    return np.ascontiguousarray(image)


def _require_points(points: ArrayLike) -> Float64:
    try:
        landmarks = np.array(points, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise FaceBoxError(f"landmarks must be numbers: {error}") from error
    if landmarks.ndim != 3 or landmarks.shape[2] != 2:
        raise FaceBoxError(
            f"landmarks must have the shape (faces, parts, 2), not {landmarks.shape}"
        )
    good = np.isfinite(landmarks).all(axis=(1, 2))
    if not good.all():
        raise FaceBoxError(
            f"face {int(np.argmin(good))} has landmarks that are missing or not finite"
        )
    return landmarks
