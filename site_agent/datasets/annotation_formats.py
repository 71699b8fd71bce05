"""The formats in which annotated faces come: an explicit table, and one door to all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from site_agent.datasets.coco_keypoints import read_coco_keypoints
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.pts_files import DEFAULT_MARGIN, DEFAULT_ORIGIN, read_pts_folder
from site_agent.datasets.records import FaceDataset
from site_agent.errors import AnnotationFileError


@dataclass(frozen=True)
class ReadingOptions:
    """What the files themselves do not say.

    Attributes
    ----------
    pts_origin : float
        Coordinates of the centre of the upper left pixel in ``.pts`` files.
    box_margin : float
        How far boxes around the landmarks of ``.pts`` files go beyond them, in their sizes.
    images : Path or None
        Folder to which file names in COCO files are relative.
    """

    pts_origin: float = DEFAULT_ORIGIN
    box_margin: float = DEFAULT_MARGIN
    images: Path | None = None


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
            "imglab",
            "XML of dlib and imglab",
            (".xml",),
            lambda path, _: read_imglab_xml(path),
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
    """Return the format of a folder, or of a file by the ending of its name.

    Raises
    ------
    AnnotationFileError
        The ending is that of no format.
    """
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
    """Read annotated faces of any known format.

    Raises
    ------
    AnnotationFileError
        Naming the file and, where it is known, the line.
    """
    path = Path(path)
    return recognise_annotations(path).read(path, options or ReadingOptions())
