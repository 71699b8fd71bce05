"""Faces of a site and of held-out persons, as face models see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from aggregators.predictors import to_grey
from site_agent.attacks.leaks import Float64
from site_agent.datasets import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    find_model_parts,
    part_names,
    parts_array,
)
from site_agent.errors import InvalidInputError
from site_agent.pictures.images import read_image

GroupOf = Callable[[AnnotatedImage], str]


@dataclass(frozen=True, eq=False)
class KnownFaces:
    """Faces whose persons are known.

    Attributes
    ----------
    dataset : FaceDataset
        Without boxes to ignore, and without images that have no other.
    persons : str, shape (faces,)
        In the order of ``dataset.boxes()``.
    """

    dataset: FaceDataset
    persons: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.persons)

    def complete(self, names: Sequence[str]) -> KnownFaces:
        """Return the faces that have all of these landmarks."""
        keep = [all(name in box.parts for name in names) for _, box in self.dataset.boxes()]
        return self._chosen(np.array(keep, dtype=bool))

    def first(self, most: int) -> KnownFaces:
        """Return at most this many faces, spread evenly."""
        keep = np.zeros(len(self), dtype=bool)
        keep[np.linspace(0, len(self) - 1, min(most, len(self))).astype(int)] = True
        return self._chosen(keep)

    def images(self) -> Iterator[tuple[NDArray[np.uint8], tuple[FaceBox, ...]]]:
        """Yield each image in grey with its faces."""
        for image in self.dataset.images:
            yield to_grey(read_image(image.path, apply_orientation=False)), image.boxes

    def shapes(self, names: Sequence[str]) -> Float64:
        """Return the landmarks in box coordinates, shape (faces, parts, 2)."""
        return np.array(
            [in_box(parts_array(box, names), box) for _, box in self.dataset.boxes()]
        ).reshape(-1, len(names), 2)

    def _chosen(self, keep: NDArray[np.bool_]) -> KnownFaces:
        flags = iter(keep)
        images = []
        for image in self.dataset.images:
            boxes = tuple(box for box in image.boxes if next(flags))
            if boxes:
                images.append(replace(image, boxes=boxes))
        return KnownFaces(replace(self.dataset, images=tuple(images)), self.persons[keep])


@dataclass(frozen=True, eq=False)
class FaceSides:
    """Faces of persons whose pictures trained, and of others."""

    own: KnownFaces
    others: KnownFaces

    def complete(self, initial_shape: NDArray[np.floating]) -> tuple[FaceSides, tuple[str, ...]]:
        """Return the faces that have the landmarks of a model, and the landmarks' names.

        Raises
        ------
        InvalidInputError
            Either side has fewer than 2 such faces.
        """
        names, _ = find_model_parts(part_names(self.own.dataset), initial_shape)
        if len(names) != len(initial_shape):
            raise InvalidInputError(
                f"the model places {len(initial_shape)} landmarks, which the faces do not have"
            )
        sides = FaceSides(self.own.complete(names), self.others.complete(names))
        if min(len(sides.own), len(sides.others)) < 2:
            raise InvalidInputError("expected at least 2 faces with all landmarks on either side")
        return sides, names


def know_faces(dataset: FaceDataset, person_of: GroupOf) -> KnownFaces:
    """Return the faces of a data set with their persons."""
    images, persons = [], []
    for image in dataset.images:
        boxes = tuple(box for box in image.boxes if not box.ignore)
        if boxes:
            images.append(replace(image, boxes=boxes))
            persons += [person_of(image)] * len(boxes)
    if not persons:
        raise InvalidInputError(f"{dataset.path}: has no faces")
    return KnownFaces(replace(dataset, images=tuple(images)), np.array(persons))


def in_box(points: Float64, box: FaceBox) -> Float64:
    """Return points in box coordinates: (0, 0) top left corner, (1, 1) bottom right corner."""
    left, top, right, bottom = box.corners
    placed: Float64 = (points - (left, top)) / (right - left, bottom - top)
    return placed
