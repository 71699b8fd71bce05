"""Landmarks in the JSON of COCO: images, annotations, categories.

::

    {"images": [{"id": 7, "file_name": "one.jpg", "width": 640, "height": 480}],
     "annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [x, y, width, height],
                      "keypoints": [x1, y1, v1, x2, y2, v2, ...]}],
     "categories": [{"id": 1, "name": "face", "keypoints": ["left_eye", ...]}]}

Keypoints are indices of pixels counted from 0, as everywhere here; v is 0 where one is not
marked, 1 where it is hidden, 2 where it is seen. The edges of a ``bbox`` lie between pixels; they
are rounded; where there is no ``bbox``, it goes around the landmarks as for ``.pts`` files.
``iscrowd`` boxes are to be ignored, empty ones are left out. Where annotations have ``face_box``
and ``face_kpts`` (COCO-WholeBody), the face is taken from these. dlib orders landmarks by their
names, which may be another order than that of the category.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.whole_file import write_whole
from site_agent.datasets.json_positions import PlacedEntry, read_lists
from site_agent.datasets.problems import Problems
from site_agent.datasets.pts_files import DEFAULT_MARGIN, box_around
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, part_names
from site_agent.errors import AnnotationFileError
from site_agent.pictures.images import stored_size

_LARGEST_COORDINATE_PX = 1_000_000


def read_coco_keypoints(path: Path | str, *, images: Path | str | None = None) -> FaceDataset:
    """Read a COCO keypoints file.

    Parameters
    ----------
    path : Path or str
    images : Path or str, optional
        Folder to which file names are relative; by default that of `path`, its subfolder
        ``images``, or those beside it, whichever has the first image.

    Returns
    -------
    FaceDataset
        Names of categories become labels where there are several; landmarks of categories that
        do not name them are called '00', '01', ...

    Raises
    ------
    AnnotationFileError
        Naming the file and the lines at which the entries at fault begin.
    """
    path = Path(path)
    reader = _Reader(path, _lists(path))
    return FaceDataset(path, path.stem, "", reader.images(None if images is None else Path(images)))


def write_coco_keypoints(dataset: FaceDataset, path: Path | str) -> None:
    """Write a COCO keypoints file, file names relative to its folder.

    One category for each label; landmarks are named in each, in dlib's order. Boxes marked
    `ignore` become ``iscrowd``.

    Raises
    ------
    AnnotationFileError
        When an image's size is not known and it cannot be read, or the file cannot be written.
    """
    path = Path(path)
    names = part_names(dataset)
    labels = sorted({box.label or "face" for _, box in dataset.boxes(ignored=True)}) or ["face"]
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for image_id, image in enumerate(dataset.images, 1):
        width, height = _size(dataset, image)
        file_name = Path(os.path.relpath(image.path, path.parent)).as_posix()
        images.append({"id": image_id, "file_name": file_name, "width": width, "height": height})
        for box in image.boxes:
            number = len(annotations) + 1
            category = labels.index(box.label or "face") + 1
            annotations.append(_annotation(box, number, image_id, category, names))
    categories = [
        {"id": i, "name": label, "supercategory": "face", "keypoints": names, "skeleton": []}
        for i, label in enumerate(labels, 1)
    ]
    lists = {"images": images, "annotations": annotations, "categories": categories}
    # One entry a line, so that messages can name a line.
    blocks = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(entry) for entry in entries) + "\n]"
        for name, entries in lists.items()
    ]
    try:
        write_whole(path, "{" + ",\n".join(blocks) + "}\n")
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be written: {error.strerror}") from error


def _annotation(
    box: FaceBox, number: int, image_id: int, category: int, names: Sequence[str]
) -> dict[str, Any]:
    keypoints: list[float] = []
    for name in names:
        at = box.parts.get(name)
        keypoints += (0, 0, 0) if at is None else (*at, 2)
    return {
        "id": number,
        "image_id": image_id,
        "category_id": category,
        "bbox": [box.left, box.top, box.width, box.height],
        "area": box.width * box.height,
        "iscrowd": int(box.ignore),
        "num_keypoints": len(box.parts),
        "keypoints": keypoints,
    }


def _size(dataset: FaceDataset, image: AnnotatedImage) -> tuple[int, int]:
    if image.width_px is not None and image.height_px is not None:
        return image.width_px, image.height_px
    from PIL import Image

    try:
        with Image.open(image.path) as header:
            return stored_size(header)
    except (OSError, ValueError, SyntaxError) as error:
        place = dataset.path or image.path
        problem = f"the size of {image.path} is not declared and cannot be read: {error}"
        raise AnnotationFileError(place, image.line, problem) from error


def _lists(path: Path) -> dict[str, list[PlacedEntry]]:
    try:
        lists = read_lists(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        problem = f"is not well-formed JSON with an object at its top: {error.msg}"
        raise AnnotationFileError(path, error.lineno, problem) from error
    except (UnicodeDecodeError, RecursionError) as error:
        raise AnnotationFileError(path, 0, f"cannot be decoded: {error}") from error
    except OSError as error:
        raise AnnotationFileError(path, 0, f"cannot be read: {error.strerror}") from error
    absent = [name for name in ("images", "annotations") if name not in lists]
    if absent:
        problem = f"has no list {' and '.join(map(repr, absent))}; expected COCO keypoints"
        raise AnnotationFileError(path, 0, problem)
    for name in ("images", "annotations", "categories"):
        for entry in lists.get(name, ()):
            if not isinstance(entry.value, dict):
                raise AnnotationFileError(
                    path, entry.line, f"has an entry of {name} that is no object"
                )
    return lists


class _Reader:
    """Puts images and annotations together."""

    def __init__(self, path: Path, lists: Mapping[str, list[PlacedEntry]]) -> None:
        self._path = path
        self._lists = lists
        self._problems = Problems()
        self._categories: dict[Any, Mapping[str, Any]] = {}
        for entry in lists.get("categories", ()):
            with self._problems.gathered():
                self._categories[self._category_id(entry, "id", "a category")] = entry.value

    def images(self, folder: Path | None) -> tuple[AnnotatedImage, ...]:
        faces: dict[Any, list[FaceBox]] = {}
        for entry in self._lists["images"]:
            with self._problems.gathered():
                identifier = self._required(entry, "id", "image")
                if identifier in faces:
                    raise self._fail(entry, f"has the image id {identifier!r} a second time")
                faces[identifier] = []
                self._file_name(entry)
                self._declared_size(entry)
        for entry in self._lists["annotations"]:
            with self._problems.gathered():
                identifier = self._required(entry, "image_id", "annotation")
                if identifier not in faces:
                    problem = f"has an annotation of image {identifier!r}, not listed"
                    raise self._fail(entry, problem)
                if (face := self._face(entry)) is not None:
                    faces[identifier].append(face)
        self._problems.raise_all()
        root = folder or self._image_folder()
        return tuple(
            AnnotatedImage(
                root / self._file_name(entry),
                tuple(faces[entry.value["id"]]),
                *self._declared_size(entry),
                line=entry.line,
            )
            for entry in self._lists["images"]
        )

    def _fail(self, entry: PlacedEntry, problem: str) -> AnnotationFileError:
        return AnnotationFileError(self._path, entry.line, problem)

    def _required(self, entry: PlacedEntry, key: str, what: str) -> Any:
        value = entry.value.get(key)
        if not isinstance(value, int | str):
            raise self._fail(entry, f"has an {what} whose {key!r} is {value!r}")
        return value

    def _file_name(self, entry: PlacedEntry) -> str:
        name = entry.value.get("file_name")
        if not isinstance(name, str) or not name.strip() or "\0" in name:
            raise self._fail(entry, f"has an image whose 'file_name' is {name!r}")
        return name

    def _image_folder(self) -> Path:
        here = self._path.parent
        candidates = [here, here / "images", here.parent, here.parent / "images"]
        first = next((self._file_name(entry) for entry in self._lists["images"]), "")
        return next((folder for folder in candidates if (folder / first).is_file()), here)

    def _declared_size(self, entry: PlacedEntry) -> tuple[int | None, int | None]:
        width, height = entry.value.get("width"), entry.value.get("height")
        if width is None or height is None:
            return None, None
        for side in (width, height):
            # Some tools write 640.0; that is still a whole number.
            if not isinstance(side, int | float) or side <= 0 or not float(side).is_integer():
                raise self._fail(entry, f"has an image of {width!r} x {height!r} pixels")
        return int(width), int(height)

    def _face(self, entry: PlacedEntry) -> FaceBox | None:
        annotation = entry.value
        whole_body = "face_kpts" in annotation
        if whole_body and not annotation.get("face_valid", True):
            return None
        parts, hidden = self._parts(entry, "face_kpts" if whole_body else "keypoints")
        ignore = bool(annotation.get("iscrowd", 0))
        box = self._box(entry, "face_box" if whole_body else "bbox", parts)
        if box.width <= 0 or box.height <= 0:
            if ignore:
                return None
            raise self._fail(entry, f"has a box of {box.width} x {box.height} pixels")
        category = self._category(entry)
        label = category.get("name") if len(self._categories) > 1 else None
        return replace(
            box,
            parts=parts,
            ignore=ignore,
            occluded=hidden,
            label=str(label) if label else None,
            line=entry.line,
        )

    def _box(self, entry: PlacedEntry, key: str, parts: Mapping[str, Sequence[float]]) -> FaceBox:
        """Return the box in whole pixels, or one around the landmarks where there is none."""
        bbox = self._numbers(entry, key)
        if not bbox and parts:
            return box_around(np.array(list(parts.values()), dtype=np.float64), DEFAULT_MARGIN)
        if not bbox and entry.value.get("iscrowd"):
            return FaceBox(0, 0, 0, 0)
        if len(bbox) != 4:
            if not bbox:
                raise self._fail(entry, f"has an annotation with neither {key!r} nor a landmark")
            raise self._fail(entry, f"has an annotation with a box of {len(bbox)} numbers, not 4")
        x, y, width, height = bbox
        left, top = math.floor(x + 0.5), math.floor(y + 0.5)
        right, bottom = math.floor(x + width + 0.5), math.floor(y + height + 0.5)
        return FaceBox(left, top, right - left, bottom - top)

    def _category_id(self, entry: PlacedEntry, key: str, what: str) -> Any:
        value = entry.value.get(key)
        if isinstance(value, list | dict):
            raise self._fail(entry, f"has {what} whose {key!r} is {value!r}, no number")
        return value

    def _category(self, entry: PlacedEntry) -> Mapping[str, Any]:
        identifier = self._category_id(entry, "category_id", "an annotation")
        return self._categories.get(identifier, {})

    def _parts(self, entry: PlacedEntry, key: str) -> tuple[dict[str, tuple[float, float]], bool]:
        """Return the landmarks that are marked, and whether one of them is hidden."""
        values = self._numbers(entry, key)
        if len(values) % 3:
            problem = f"has {key!r} of {len(values)} numbers, expected three a landmark (x, y, v)"
            raise self._fail(entry, problem)
        count = len(values) // 3
        names = self._names(entry, count, key)
        parts, hidden = {}, False
        for name, x, y, visibility in zip(
            names, values[::3], values[1::3], values[2::3], strict=True
        ):
            # COCO-WholeBody has a confidence in place of v.
            if visibility > 0:
                parts[name] = (x, y)
                hidden = hidden or (key == "keypoints" and visibility == 1)
        return parts, hidden

    def _names(self, entry: PlacedEntry, count: int, key: str) -> list[str]:
        category = self._category(entry)
        given = category.get("keypoints") if key == "keypoints" else None
        if not given:
            digits = max(2, len(str(count - 1)))
            return [f"{i:0{digits}d}" for i in range(count)]
        if not isinstance(given, list):
            raise self._fail(entry, f"has a category whose 'keypoints' are {given!r}, no list")
        names = [str(name) for name in given]
        if count not in (0, len(names)):
            problem = f"has {count} keypoints, but its category {category.get('name')!r} names "
            raise self._fail(entry, problem + str(len(names)))
        if len(set(names)) != len(names):
            raise self._fail(entry, f"has a category that names a keypoint twice: {names}")
        return names[:count]

    def _numbers(self, entry: PlacedEntry, key: str) -> list[float]:
        values = entry.value.get(key)
        if values is None:
            return []
        if not isinstance(values, list):
            raise self._fail(entry, f"has an annotation whose {key!r} is {values!r}")
        for value in values:
            if not isinstance(value, int | float) or not abs(value) <= _LARGEST_COORDINATE_PX:
                raise self._fail(entry, f"has an annotation with {value!r} in {key!r}")
        return [float(value) for value in values]
