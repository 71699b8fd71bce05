"""The formats of annotated faces, in one table, and conversions between and within them."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from pydantic import Field

from aggregators.whole_file import whole_file
from site_agent.datasets.coco_keypoints import read_coco_keypoints
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import without_prefix
from site_agent.datasets.pts_files import DEFAULT_MARGIN, DEFAULT_ORIGIN, read_pts_folder
from site_agent.datasets.records import (
    AnnotatedImage,
    FaceBox,
    FaceDataset,
    part_names,
    parts_array,
)
from site_agent.datasets.split import free_names
from site_agent.errors import AnnotationFileError, InvalidInputError
from site_agent.pictures.images import exif_orientation
from site_agent.settings import Settings
from site_agent.work import Progress, no_progress


class ReadingOptions(Settings, error=InvalidInputError):
    """The options of reading files that do not say these things themselves."""

    pts_origin: float = DEFAULT_ORIGIN
    """Coordinates of the centre of the upper left pixel in ``.pts`` files."""
    box_margin: float = Field(default=DEFAULT_MARGIN, ge=-0.4, le=2.0)
    """How far boxes around the landmarks of ``.pts`` files go beyond them, in their sizes."""
    images: Path | None = None
    """Folder to which file names in COCO files are relative."""


@dataclass(frozen=True)
class AnnotationFormat:
    name: str
    summary: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, ReadingOptions], FaceDataset]


ANNOTATION_FORMATS: dict[str, AnnotationFormat] = {
    entry.name: entry
    for entry in (
        AnnotationFormat(
            "imglab", "XML of dlib and imglab", (".xml",), lambda path, _: read_imglab_xml(path)
        ),
        AnnotationFormat(
            "coco",
            "JSON of COCO keypoints",
            (".json",),
            lambda path, options: read_coco_keypoints(path, images=options.images),
        ),
        AnnotationFormat(
            "pts",
            "folder of images with .pts files, or one such file",
            (".pts",),
            lambda path, options: read_pts_folder(
                path, origin=options.pts_origin, margin=options.box_margin
            ),
        ),
    )
}


def recognise_annotations(path: Path | str) -> AnnotationFormat:
    """Return the format of a folder, or of a file by the ending of its name."""
    path = Path(path)
    if path.is_dir():
        return ANNOTATION_FORMATS["pts"]
    for entry in ANNOTATION_FORMATS.values():
        if path.suffix.lower() in entry.suffixes:
            return entry
    if not path.exists():
        raise AnnotationFileError(path, 0, "no such file or folder")
    known = "; ".join(
        f"{' '.join(entry.suffixes)} ({entry.summary})" for entry in ANNOTATION_FORMATS.values()
    )
    raise AnnotationFileError(path, 0, f"is not a file of annotations; expected one of: {known}")


def read_faces(path: Path | str, options: ReadingOptions | None = None) -> FaceDataset:
    """Read annotated faces of any known format."""
    path = Path(path)
    return recognise_annotations(path).read(path, options or ReadingOptions())


Float64 = NDArray[np.float64]
FindFaces = Callable[[Path], Sequence[Sequence[float]]]
"""From an image file to boxes (left, top, right, bottom) in pixels, edges inside, best first."""

# A found box belongs to the landmarks when this part of them lies in it ...
_COVERED = 0.6
# ... and when it is not that many times wider than they are.
_WIDEST = 3.0


def join_datasets(datasets: Sequence[FaceDataset], *, same_parts: bool = False) -> FaceDataset:
    """Return the images of several data sets as one.

    Raises `InvalidInputError`: two of them have the same image file or, with `same_parts`, other
    names of landmarks.
    """
    first, *others = datasets
    if not others:
        return first
    owners: dict[Path, FaceDataset] = {}
    for dataset in datasets:
        for path in {image.path.resolve() for image in dataset.images}:
            owner = owners.setdefault(path, dataset)
            if owner is not dataset:
                raise InvalidInputError(
                    f"{owner.path} and {dataset.path} both have the image {path}; data sets that "
                    "are used as one must not share images"
                )
    with_parts = [(dataset, names) for dataset in datasets if (names := part_names(dataset))]
    if same_parts and len({names for _, names in with_parts}) > 1:
        schemes = ", ".join(
            f"{dataset.path} has {len(names)} ({names[0]} to {names[-1]})"
            for dataset, names in with_parts
        )
        raise InvalidInputError(
            f"the landmarks have other names or numbers: {schemes}; data sets that are used as one "
            "need the same (poolctl dataset convert --parts)"
        )
    images = [replace(image, line=0) for dataset in datasets for image in dataset.images]
    return FaceDataset(None, first.name, images=tuple(images))


def copy_places(dataset: FaceDataset, folder: Path) -> dict[Path, Path]:
    """Return where `copy_images` puts the copy of each image."""
    unique = list(dict.fromkeys(image.path for image in dataset.images))
    names = free_names(unique)
    return {path: folder / name for path, name in zip(unique, names, strict=True)}


def copy_images(dataset: FaceDataset, folder: Path, *, upright: bool = False) -> FaceDataset:
    """Copy the images of a data set into a folder, and return the data set with the copies.

    Names are kept; of several files of the same name the later ones get a number. Existing files
    of these names (`copy_places`) are replaced.

    `upright`: Turn the copies as the EXIF data of the images say; the annotations stay, so they
    must have been drawn on the turned images.
    """
    places = copy_places(dataset, folder)
    copied: dict[Path, Path] = {}
    images = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for image in dataset.images:
            target = places[image.path]
            if image.path not in copied:
                if upright and exif_orientation(image.path) != 1:
                    _copy_upright(image.path, target)
                elif not (target.exists() and target.samefile(image.path)):
                    shutil.copyfile(image.path, target)
                copied[image.path] = target
            images.append(replace(image, path=target))
    except OSError as error:
        line = dataset.images[len(images)].line if len(images) < len(dataset.images) else 0
        problem = f"an image cannot be copied: {error.filename}: {error.strerror}"
        raise AnnotationFileError(dataset.path or folder, line, problem) from error
    return replace(dataset, images=tuple(images))


def _copy_upright(source: Path, target: Path) -> None:
    with Image.open(source) as picture:
        kind = picture.format
        turned = ImageOps.exif_transpose(picture)
    with whole_file(target) as file:
        turned.save(file, format=kind, quality=_QUALITY)


# Of turned JPEG files; other formats lose nothing.
_QUALITY = 95


def choose_parts(dataset: FaceDataset, parts: Sequence[str]) -> FaceDataset:
    """Return the data set with these landmarks only."""
    kept = set(parts)
    return dataset.with_boxes(
        lambda box: replace(box, parts={k: at for k, at in box.parts.items() if k in kept})
    )


def renumber_parts(dataset: FaceDataset) -> FaceDataset:
    """Give numbered landmarks names of the same length, so that dlib keeps their order.

    Where `site_agent.datasets.part_order.unsorted_names` says that it does not.

    '1', '2', ... '10' become '01', '02', ... '10', and so do 'p1', 'p2', ... 'p10'; the numbers
    themselves stay.
    """
    names = part_names(dataset)
    bare = dict(zip(names, without_prefix(names), strict=True))
    digits = max(len(str(int(number))) for number in bare.values())
    new = {name: f"{int(number):0{max(2, digits)}d}" for name, number in bare.items()}
    if len(set(new.values())) != len(new):
        raise InvalidInputError(
            f"{dataset.path or 'the data set'} has two parts of the same number: {', '.join(names)}"
        )

    def renamed(box: FaceBox) -> FaceBox:
        parts = {new.get(name, name): at for name, at in box.parts.items()}
        return replace(box, parts=dict(sorted(parts.items())))

    return dataset.with_boxes(renamed)


@dataclass(frozen=True)
class Reboxed:
    """A data set with other boxes."""

    dataset: FaceDataset
    detected: int
    """Number of boxes from the detector."""
    estimated: tuple[tuple[AnnotatedImage, FaceBox], ...]
    """Faces that it missed; their boxes lie to the landmarks as those of the others do."""


def rebox_dataset(
    dataset: FaceDataset, find: FindFaces, progress: Progress = no_progress
) -> Reboxed:
    """Replace the boxes of faces with landmarks by those of a detector.

    Landmark models start from the box, so they should be trained on boxes as they will get them.
    Faces that the detector does not find get the median offset and size of those it finds.
    Boxes marked `ignore` and boxes without landmarks stay as they are.
    """
    names = part_names(dataset)
    detected: list[list[Sequence[float] | None]] = []
    relations: list[Float64] = []
    for position, image in enumerate(dataset.images):
        progress(position / len(dataset.images), f"finding faces in {image.path.name}")
        faces = [None if box.ignore else _extent(box, names) for box in image.boxes]
        candidates = list(find(image.path)) if any(face is not None for face in faces) else []
        boxes: list[Sequence[float] | None] = []
        for box, extent in zip(image.boxes, faces, strict=True):
            match = (
                None if extent is None else _matching(candidates, parts_array(box, names), extent)
            )
            boxes.append(match)
            if match is not None and extent is not None:
                candidates.remove(match)
                relations.append(_relation(np.asarray(match, dtype=np.float64), extent))
        detected.append(boxes)
    if not relations:
        raise InvalidInputError(
            f"{dataset.path or 'the data set'}: the detector found none of the faces that have "
            "landmarks; try --upsample, or boxes around the landmarks"
        )
    typical = np.median(np.stack(relations), axis=0)
    estimated: list[tuple[AnnotatedImage, FaceBox]] = []

    def with_box(image_index: int, box_index: int, box: FaceBox) -> FaceBox:
        extent = None if box.ignore else _extent(box, names)
        if extent is None:
            return box
        match = detected[image_index][box_index]
        if match is None:
            estimated.append((dataset.images[image_index], box))
            corners = _from_relation(typical, extent)
        else:
            corners = np.asarray(match, dtype=np.float64)
        left, top, right, bottom = (round(value) for value in corners)
        size = {"width": max(1, right - left + 1), "height": max(1, bottom - top + 1)}
        return replace(box, left=left, top=top, **size)

    images = tuple(
        replace(
            image, boxes=tuple(with_box(i, number, box) for number, box in enumerate(image.boxes))
        )
        for i, image in enumerate(dataset.images)
    )
    return Reboxed(replace(dataset, images=images), len(relations), tuple(estimated))


def _extent(box: FaceBox, names: Sequence[str]) -> Float64 | None:
    points = parts_array(box, names)
    marked = points[np.isfinite(points).all(axis=1)]
    if len(marked) < 2:
        return None
    return np.concatenate([marked.min(axis=0), marked.max(axis=0)])


def _matching(
    candidates: Sequence[Sequence[float]], points: Float64, extent: Float64
) -> Sequence[float] | None:
    """Return the box that covers most of the landmarks and is about their size."""
    marked = points[np.isfinite(points).all(axis=1)]
    width = max(1.0, float(np.max(extent[2:] - extent[:2])))
    best, best_covered = None, _COVERED
    for box in candidates:
        left, top, right, bottom = box
        inside = (marked >= (left, top)).all(axis=1) & (marked <= (right, bottom)).all(axis=1)
        covered = float(inside.mean())
        if covered > best_covered and right - left + 1 <= _WIDEST * width:
            best, best_covered = box, covered
    return best


def _relation(box: Float64, extent: Float64) -> Float64:
    size = np.sqrt(np.prod(np.maximum(extent[2:] - extent[:2], 1.0)))
    centre = (box[:2] + box[2:] - extent[:2] - extent[2:]) / 2.0
    return np.concatenate([centre / size, (box[2:] - box[:2] + 1.0) / size])


def _from_relation(relation: Float64, extent: Float64) -> Float64:
    size = np.sqrt(np.prod(np.maximum(extent[2:] - extent[:2], 1.0)))
    centre = (extent[:2] + extent[2:]) / 2.0 + relation[:2] * size
    half = (relation[2:] * size - 1.0) / 2.0
    return np.concatenate([centre - half, centre + half])
