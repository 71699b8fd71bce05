"""Words that name annotated faces, of any known format."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.frame.errors import InputMissingError

if TYPE_CHECKING:
    from site_agent.datasets import FaceDataset, ReadingOptions

FacesArgument = Annotated[
    list[Path],
    typer.Argument(
        metavar="FACES...",
        help="imglab XML, COCO keypoints JSON, or a folder with .pts files; several are used as "
        "one data set.",
    ),
]
PtsOriginOption = Annotated[
    float,
    typer.Option(
        help="Coordinates of the upper left pixel in .pts files: 1 as in 300-W, or 0.",
    ),
]
BoxMarginOption = Annotated[
    float,
    typer.Option(
        min=-0.4,
        max=2.0,
        help="Margin of the boxes around the landmarks of .pts files, as a share of their extent.",
    ),
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Folder with the images of a COCO file."),
]

PartsOption = Annotated[
    str,
    typer.Option(
        metavar="A,B,...",
        help="The model's landmarks if the faces have more: eyes, mouth ..., 36-47, or "
        "names. Default: recognised by the model's mean shape.",
    ),
]


def reading_from(
    images: Path | None, *, pts_origin: float = 1.0, box_margin: float = 0.1
) -> ReadingOptions:
    """Return how annotations are read."""
    from site_agent.datasets import ReadingOptions

    if images is not None and not images.is_dir():
        raise InputMissingError(f"--images {images}: no such folder")
    return ReadingOptions(pts_origin=pts_origin, box_margin=box_margin, images=images)


def read_face_file(path: Path, reading: ReadingOptions | None = None) -> FaceDataset:
    """Read annotations of any known format."""
    from site_agent.datasets import read_faces

    if not path.exists():
        raise InputMissingError(
            f"{path}: no such file; expected annotations: imglab XML, COCO JSON, or a folder with "
            ".pts files"
        )
    return read_faces(path, reading)


def read_joined_faces(
    paths: Sequence[Path], reading: ReadingOptions | None = None, *, same_parts: bool = False
) -> FaceDataset:
    """Read annotations, several of them as one data set (see `site_agent.datasets`)."""
    from site_agent.datasets import join_datasets

    return join_datasets([read_face_file(path, reading) for path in paths], same_parts=same_parts)


def words_of(paths: Sequence[Path]) -> str:
    """Return how messages and tables name the data."""
    return " + ".join(map(str, paths))


def part_words(text: str) -> tuple[str, ...]:
    """Take the words of ``--parts`` apart."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
