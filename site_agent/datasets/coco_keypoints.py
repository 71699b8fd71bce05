"""Landmarks in the JSON of COCO: images, annotations, categories.

::

    {"images": [{"id": 7, "file_name": "one.jpg", "width": 640, "height": 480}],
     "annotations": [{"id": 1, "image_id": 7, "category_id": 1, "bbox": [x, y, width, height],
                      "keypoints": [x1, y1, v1, x2, y2, v2, ...]}],
     "categories": [{"id": 1, "name": "face", "keypoints": ["left_eye", ...]}]}

Keypoints are indices of pixels counted from 0, as everywhere here; v is 0 where one is not marked,
1 where it is hidden, 2 where it is seen. The edges of a ``bbox`` lie between pixels; they are
rounded; where there is no ``bbox``, it goes around the landmarks as for ``.pts`` files. ``iscrowd``
boxes are marked as ignored, empty ones are left out. Where annotations have ``face_box`` and
``face_kpts`` (COCO-WholeBody), the face is taken from these. dlib orders landmarks by their names,
which may be another order than that of the category.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.datasets.pts_files import DEFAULT_MARGIN, box_around
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.errors import AnnotationFileError, TableFileError
from site_agent.named_files import find_named
from site_agent.text_tables import read_text

_LARGEST_COORDINATE_PX = 1_000_000


def read_coco_keypoints(path: Path | str, *, images: Path | str | None = None) -> FaceDataset:
    """Read a COCO keypoints file.

    File names are relative to `images`, by default the folder of `path`. Names of categories
    become labels where there are several; landmarks of categories that do not name them are
    called '00', '01', ...

    Raises `AnnotationFileError`: naming the file and the entry.
    """
    path = Path(path)
    lists = _read_lists(path)
    categories = {_key(path, entry, "id"): entry for entry in lists["categories"]}
    folder = path.parent if images is None else Path(images)
    by_id = {_key(path, entry, "id"): _image(path, folder, entry) for entry in lists["images"]}
    if len(by_id) < len(lists["images"]):
        raise AnnotationFileError(path, 0, "has two images with the same id")
    faces: dict[int | str, list[FaceBox]] = {identifier: [] for identifier in by_id}
    for entry in lists["annotations"]:
        image_id = _key(path, entry, "image_id")
        if image_id not in faces:
            raise _fault(path, entry, f"is of image {image_id!r}, which is not listed")
        face = _Annotation(path, entry, categories).face()
        if face is not None:
            faces[image_id].append(face)
    annotated = (replace(image, boxes=tuple(faces[key])) for key, image in by_id.items())
    return FaceDataset(path, path.stem, "", tuple(annotated))


def _read_lists(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        content = json.loads(read_text(path)[0])
    except json.JSONDecodeError as error:
        raise AnnotationFileError(
            path, error.lineno, f"expected the JSON of COCO: {error.msg}"
        ) from error
    except RecursionError as error:
        raise AnnotationFileError(path, 0, f"expected the JSON of COCO: {error}") from error
    except TableFileError as error:
        raise AnnotationFileError(path, 0, f"cannot be read: {error.problems[0][1]}") from error
    if not isinstance(content, dict):
        raise AnnotationFileError(path, 0, "is not an object of JSON; expected COCO keypoints")
    content.setdefault("categories", [])
    lists = {}
    for name in ("images", "annotations", "categories"):
        entries = content.get(name)
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise AnnotationFileError(
                path, 0, f"has no list {name!r} of objects; expected COCO keypoints"
            )
        lists[name] = entries
    return lists


def _fault(path: Path, entry: Mapping[str, Any], problem: str) -> AnnotationFileError:
    kind = "annotation" if "image_id" in entry else "entry"
    return AnnotationFileError(path, 0, f"the {kind} with the id {entry.get('id')!r} {problem}")


def _key(path: Path, entry: Mapping[str, Any], name: str) -> int | str:
    value = entry.get(name)
    if not isinstance(value, int | str):
        raise _fault(path, entry, f"has {value!r} for {name!r}")
    return value


def _image(path: Path, folder: Path, entry: Mapping[str, Any]) -> AnnotatedImage:
    name, width, height = (entry.get(key) for key in ("file_name", "width", "height"))
    if not isinstance(name, str) or not name:
        raise _fault(path, entry, f"has {name!r} for 'file_name'")
    place = find_named(folder, name)
    if width is None or height is None:
        return AnnotatedImage(place)
    for side in (width, height):
        if not isinstance(side, int | float) or not 0 < side <= _LARGEST_COORDINATE_PX:
            raise _fault(path, entry, f"has the size {width!r} x {height!r}")
    return AnnotatedImage(place, (), int(width), int(height))


@dataclass(frozen=True)
class _Annotation:
    """One entry of ``annotations``."""

    path: Path
    entry: Mapping[str, Any]
    categories: Mapping[int | str, Mapping[str, Any]]

    def face(self) -> FaceBox | None:
        """Return the face; None for an annotation without one, or an empty ignored box."""
        whole_body = "face_kpts" in self.entry
        if whole_body and not self.entry.get("face_valid", True):
            return None
        parts, hidden = self._parts("face_kpts" if whole_body else "keypoints")
        box = self._box("face_box" if whole_body else "bbox", parts)
        ignore = bool(self.entry.get("iscrowd", 0))
        if box.width <= 0 or box.height <= 0:
            if ignore:
                return None
            raise self._fault(f"has a box of {box.width} x {box.height} pixels")
        label = self._category.get("name") if len(self.categories) > 1 else None
        return replace(
            box,
            parts=parts,
            ignore=ignore,
            occluded=hidden and not whole_body,
            label=str(label) if label else None,
        )

    @property
    def _category(self) -> Mapping[str, Any]:
        identifier = self.entry.get("category_id")
        return self.categories.get(identifier, {}) if isinstance(identifier, int | str) else {}

    def _fault(self, problem: str) -> AnnotationFileError:
        return _fault(self.path, self.entry, problem)

    def _box(self, key: str, parts: Mapping[str, Sequence[float]]) -> FaceBox:
        """Return the box in whole pixels, or one around the landmarks if it is missing."""
        bbox = self._numbers(key)
        if not bbox and parts:
            return box_around(np.array(list(parts.values()), dtype=np.float64), DEFAULT_MARGIN)
        if not bbox and self.entry.get("iscrowd"):
            return FaceBox(0, 0, 0, 0)
        if len(bbox) != 4:
            raise self._fault(f"has {len(bbox)} numbers in {key!r}, expected 4")
        x, y, width, height = bbox
        left, top = math.floor(x + 0.5), math.floor(y + 0.5)
        right, bottom = math.floor(x + width + 0.5), math.floor(y + height + 0.5)
        return FaceBox(left, top, right - left, bottom - top)

    def _parts(self, key: str) -> tuple[dict[str, tuple[float, float]], bool]:
        """Return the landmarks that are marked, and whether one of them is hidden."""
        values = self._numbers(key)
        if len(values) % 3:
            raise self._fault(f"has {len(values)} numbers in {key!r}, expected x, y, v of each")
        names = self._names(len(values) // 3, key)
        marks = list(zip(names, values[::3], values[1::3], values[2::3], strict=True))
        # COCO-WholeBody has a confidence in place of v.
        parts = {name: (x, y) for name, x, y, visibility in marks if visibility > 0}
        return parts, any(visibility == 1 for *_, visibility in marks)

    def _names(self, count: int, key: str) -> list[str]:
        keypoints = self._category.get("keypoints") if key == "keypoints" else None
        if not keypoints or not count:
            digits = max(2, len(str(count - 1)))
            return [f"{i:0{digits}d}" for i in range(count)]
        names = [str(name) for name in keypoints] if isinstance(keypoints, list) else []
        if len(set(names)) != count:
            raise self._fault(f"has {count} keypoints, while its category names {keypoints!r}")
        return names

    def _numbers(self, key: str) -> list[float]:
        values = self.entry.get(key) or []
        if not isinstance(values, list):
            raise self._fault(f"has {values!r} for {key!r}")
        for value in values:
            if not isinstance(value, int | float) or not abs(value) <= _LARGEST_COORDINATE_PX:
                raise self._fault(f"has {value!r} in {key!r}")
        return [float(value) for value in values]
