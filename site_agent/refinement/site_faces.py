"""A site's annotated faces as the arrays that refinement works on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aggregators.methods.refitting import SiteFaces
from aggregators.predictors import to_grey
from site_agent.datasets import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    dataset_digest,
    find_model_parts,
    part_names,
    parts_array,
)
from site_agent.errors import TrainingDataError
from site_agent.faces.image_workers import in_threads
from site_agent.pictures.images import read_image
from site_agent.runs.progress import Progress

UInt8 = NDArray[np.uint8]
Float64 = NDArray[np.float64]
# As in landmark training: farther from the box than this, in box sizes, everything is black.
CROP_MARGIN = 1.0
_FEWEST_FACES = 2
_MOST_THREADS = 8


@dataclass(frozen=True, eq=False)
class LoadedSite:
    """A site's faces, and what may be said of them."""

    faces: SiteFaces
    dataset_digest: str
    left_out: tuple[tuple[int, str], ...]


def load_site(
    dataset: FaceDataset,
    part_count: int,
    *,
    parts: Sequence[str] = (),
    initial_shape: NDArray[np.floating] | None = None,
    margin: float = CROP_MARGIN,
    progress: Progress | None = None,
) -> LoadedSite:
    """Read the grey crops around all faces that have every landmark.

    Parameters
    ----------
    dataset : FaceDataset
        Boxes marked `ignore` are left out.
    parts : sequence of str
        The model's landmarks, as `site_agent.datasets.expand_parts` takes them. Where empty: all
        of the data set's, or those that the model's mean shape shows.
    margin : float
        How far beyond its box a face's image is kept, in box sizes.

    Raises
    ------
    TrainingDataError
        Another number of landmarks than the model has, fewer than two complete faces, or boxes
        outside their image.
    ImageFileError
        An image that cannot be read.
    """
    shape = np.zeros((part_count, 2)) if initial_shape is None else initial_shape
    names = _model_parts(dataset, shape, parts)
    complete: list[tuple[AnnotatedImage, list[FaceBox]]] = []
    left_out: list[tuple[int, str]] = []
    for image in dataset.images:
        boxes = []
        for box in image.boxes:
            missing = [name for name in names if name not in box.parts]
            if missing and not box.ignore:
                text = f"a face of {image.path.name} lacks {len(missing)} of {len(names)} landmarks"
                left_out.append((box.line, text))
            elif not box.ignore:
                boxes.append(box)
        if boxes:
            complete.append((image, boxes))
    count = sum(len(boxes) for _, boxes in complete)
    if count < _FEWEST_FACES:
        found = f"has {count} faces with all {len(names)} landmarks, {_FEWEST_FACES} are needed"
        raise TrainingDataError(dataset.path, [(0, found), *left_out])
    crops: list[tuple[UInt8, Float64, Float64]] = []
    threads = min(_MOST_THREADS, os.cpu_count() or 1)
    loaded = in_threads(lambda item: _crops(dataset, *item, names, margin), complete, threads)
    for number, found_crops in enumerate(loaded, start=1):
        crops.extend(found_crops)
        if progress:
            progress(number / len(complete), f"image {number} of {len(complete)}")
    faces = SiteFaces.from_arrays(
        [pixels for pixels, _, _ in crops],
        np.stack([corners for _, corners, _ in crops]),
        np.stack([points for _, _, points in crops]),
    )
    return LoadedSite(faces, dataset_digest(dataset), tuple(left_out))


def _model_parts(
    dataset: FaceDataset, initial_shape: NDArray[np.floating], words: Sequence[str]
) -> tuple[str, ...]:
    known = part_names(dataset)
    names, unknown = find_model_parts(known, initial_shape, words)
    if unknown:
        raise TrainingDataError(
            dataset.path, [(0, f"has no landmarks named {', '.join(unknown[:6])}")]
        )
    if len(names) != len(initial_shape):
        found = f"has {len(names) or len(known)} landmarks, the model {len(initial_shape)}"
        raise TrainingDataError(
            dataset.path,
            [(0, found)],
            hint="refine with faces of the model's scheme, or name the model's landmarks "
            "(parts, for example eyes or 36-47)",
        )
    return names


def _crops(
    dataset: FaceDataset,
    image: AnnotatedImage,
    boxes: Sequence[FaceBox],
    names: Sequence[str],
    margin: float,
) -> list[tuple[UInt8, Float64, Float64]]:
    """Return each face's crop with its box and landmarks in the crop's pixels."""
    grey = to_grey(read_image(image.path, apply_orientation=False))
    rows, columns = grey.shape
    crops = []
    for box in boxes:
        wide, high = margin * box.width, margin * box.height
        left, top = max(0, int(box.left - wide)), max(0, int(box.top - high))
        right = min(columns, int(np.ceil(box.right + 1 + wide)))
        bottom = min(rows, int(np.ceil(box.bottom + 1 + high)))
        if right <= left or bottom <= top:
            text = f"a box of {image.path.name} lies outside the image ({columns} x {rows} px)"
            raise TrainingDataError(dataset.path, [(box.line, text)])
        if box.width < 2 or box.height < 2:
            text = f"a box of {image.path.name} is {box.width} x {box.height} px, too small"
            raise TrainingDataError(dataset.path, [(box.line, text)])
        offset = np.array([left, top], dtype=np.float64)
        crops.append(
            (
                np.ascontiguousarray(grey[top:bottom, left:right]),
                np.array(box.corners, dtype=np.float64) - np.tile(offset, 2),
                parts_array(box, names) - offset,
            )
        )
    return crops
