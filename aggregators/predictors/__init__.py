"""Running landmark models on grey images: one cascade, or a WBA ensemble."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aggregators.errors import FaceBoxError, ImageArrayError, InconsistentModelError
from aggregators.formats.shape_predictor import find_forest_problem
from aggregators.models import Float32, Float64, ForestEnsemble, ShapePredictor, UInt8

__all__ = ["LandmarkPredictor", "to_grey"]


def to_grey(image: NDArray[Any]) -> UInt8:
    """Return a grey image, computed as in dlib: ``(red + green + blue) // 3``.

    `image`, uint8 of shape (height, width) or (height, width, 3): grey, or RGB.

    Returns
    -------
    uint8, shape (height, width)
        C-contiguous; the same array if it needs no change.
    """
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        kind = f"{image.dtype}" if isinstance(image, np.ndarray) else type(image).__name__
        raise ImageArrayError(f"an image must be an array of uint8, not {kind}")
    if image.ndim == 2:
        return np.ascontiguousarray(image)
    if image.ndim == 3 and image.shape[2] == 3:
        total = image[:, :, 0].astype(np.uint16)
        total += image[:, :, 1]
        total += image[:, :, 2]
        total //= 3
        return total.astype(np.uint8)
    raise ImageArrayError(
        f"an image must have the shape (height, width) or (height, width, 3), not {image.shape}"
    )


class LandmarkPredictor:
    """Places landmarks in images with a shape predictor or an ensemble of them.

    The arithmetic is that of dlib's ``shape_predictor``, but coordinates are not rounded.
    Several threads may use an instance at once, and run in parallel.

    Examples
    --------
    >>> from aggregators import read_model
    >>> predictor = LandmarkPredictor(read_model("site-a.dat"))
    >>> grey = np.zeros((240, 320), dtype=np.uint8)
    >>> predictor.predict(grey, [[120, 80, 219, 179]]).shape
    (1, 68, 2)
    """

    def __init__(self, model: ShapePredictor | ForestEnsemble) -> None:
        self.model = model
        if isinstance(model, ForestEnsemble):
            self._members = model.members
            self._shares = model.weights / model.weights.sum()
        else:
            self._members = (model,)
            self._shares = np.ones(1)
        for number, member in enumerate(self._members, start=1):
            # Compiled code does not check indices.
            problem = find_forest_problem(member)
            if problem is not None:
                where = f"member {number}: " if len(self._members) > 1 else ""
                raise InconsistentModelError(f"{where}{problem}")

    @property
    def part_count(self) -> int:
        """Number of landmarks."""
        return self.model.part_count

    @property
    def initial_shape(self) -> Float32:
        """The landmarks' initial positions, (parts, 2), in box coordinates."""
        return self._members[0].initial_shape

    def predict(self, grey: UInt8, boxes: ArrayLike) -> Float64:
        """Place the landmarks of every face of an image.

        Raises `ImageArrayError`: not a grey or RGB image of uint8, and `FaceBoxError` if a box is
        not finite or has no area.

        Parameters
        ----------
        grey : uint8, shape (height, width)
            RGB images (height, width, 3) are converted by `to_grey`.
        boxes : float, shape (faces, 4)
            (left, top, right, bottom) in pixels, right and bottom inclusive as in dlib; they
            may exceed the image.

        Returns
        -------
        float64, shape (faces, parts, 2)
            (x, y) in pixels, not rounded; the centre of the top left pixel is (0, 0).
        """
        image, checked = to_grey(grey), check_boxes(boxes)
        starts = np.broadcast_to(self.initial_shape, (len(checked), self.part_count, 2))
        corners = checked[:, np.newaxis, :2]
        shapes = self.move(image, checked, starts)
        return shapes * (checked[:, np.newaxis, 2:] - corners) + corners

    def move(self, grey: UInt8, boxes: Float64, starts: Float32) -> Float64:
        """Return the final shapes (faces, parts, 2), averaged over the members.

        `starts`, of that shape, are where they begin. Both are in box coordinates: (0, 0) is the
        top left corner, (1, 1) the bottom right one. `grey` and `boxes` are as `predict` checks
        them.
        """
        from aggregators.predictors.cascade_kernel import CascadeArrays, run_faces

        mean: Float64 = np.zeros(starts.shape, dtype=np.float64)
        for member, share in zip(self._members, self._shares, strict=True):
            shapes = np.array(starts, dtype=np.float32, order="C")
            arrays = (getattr(member, name) for name in CascadeArrays._fields)
            run_faces(grey, boxes, shapes, CascadeArrays(*arrays))
            mean += share * shapes
        return mean


def check_boxes(boxes: ArrayLike) -> Float64:
    """Return boxes as float64 (faces, 4), or raise `FaceBoxError`; four numbers are one box."""
    try:
        checked = np.array(boxes, dtype=np.float64, order="C", ndmin=2)
    except (TypeError, ValueError) as error:
        raise FaceBoxError(f"boxes must be numbers: {error}") from error
    if checked.size == 0:
        return checked.reshape(0, 4)
    if checked.ndim != 2 or checked.shape[1] != 4:
        raise FaceBoxError(
            f"boxes must have the shape (faces, 4): left, top, right, bottom; not {checked.shape}"
        )
    good = np.isfinite(checked).all(axis=1)
    good &= (checked[:, 2] > checked[:, 0]) & (checked[:, 3] > checked[:, 1])
    if not good.all():
        face = int(np.argmin(good))
        left, top, right, bottom = (f"{value:g}" for value in checked[face])
        raise FaceBoxError(
            f"box {face} (left {left}, top {top}, right {right}, bottom {bottom}) must be finite "
            "with left < right and top < bottom"
        )
    return checked
