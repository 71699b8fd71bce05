"""Words that name annotated faces, of any known format."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.errors import InputMissingError

if TYPE_CHECKING:
    from site_agent.datasets import FaceDataset

_PANEL = "Reading"

FacesArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FACES", help="imglab XML, COCO keypoints JSON, or a folder with .pts files."
    ),
]
PtsOriginOption = Annotated[
    float,
    typer.Option(
        help=".pts: the upper left pixel's coordinates, 1 in 300-W; 0 for files counted from 0.",
        rich_help_panel=_PANEL,
    ),
]
BoxMarginOption = Annotated[
    float,
    typer.Option(
        min=-0.4,
        max=2.0,
        help=".pts: boxes go this part of the landmarks' extent beyond them.",
        rich_help_panel=_PANEL,
    ),
]
ImagesOption = Annotated[
    Path | None,
    typer.Option(
        "--images", metavar="FOLDER", help="COCO: where the images are.", rich_help_panel=_PANEL
    ),
]

PartsOption = Annotated[
    str,
    typer.Option(
        metavar="A,B,...",
        help="The model's landmarks, if the faces have more: eyes, mouth ..., 36-47, or names. "
        "Such a group is known without, by the model's mean shape.",
    ),
]

PTS_ORIGIN = 1.0
BOX_MARGIN = 0.1


def read_face_file(
    path: Path,
    pts_origin: float = PTS_ORIGIN,
    box_margin: float = BOX_MARGIN,
    images: Path | None = None,
) -> FaceDataset:
    """Read annotations.

    Raises
    ------
    InputMissingError
        When there is no such file or folder.
    """
    from site_agent.datasets import ReadingOptions, read_faces

    if not path.exists():
        raise InputMissingError(f"{path}: no such file; expected annotations (imglab XML)")
    if images is not None and not images.is_dir():
        raise InputMissingError(f"--images {images}: no such folder")
    return read_faces(path, ReadingOptions(pts_origin, box_margin, images))


def part_words(text: str) -> tuple[str, ...]:
    """Take the words of ``--parts`` apart."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
