"""Words that name annotated faces, of any known format."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.frame.errors import InputMissingError

if TYPE_CHECKING:
    from site_agent.datasets import FaceDataset, ReadingOptions

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

READING_OPTIONS: tuple[inspect.Parameter, ...] = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
    for name, annotation, default in (
        ("pts_origin", PtsOriginOption, 1.0),
        ("box_margin", BoxMarginOption, 0.1),
        ("images", ImagesOption, None),
    )
)
"""What every command that reads annotated faces takes, as ``parameters`` of `options.command`;
the command hands its ``**settings`` to `take_reading`."""


def take_reading(settings: dict[str, Any]) -> ReadingOptions:
    """Take the values of `READING_OPTIONS` out of a command's settings.

    Raises
    ------
    InputMissingError
        When there is no such folder of images.
    """
    from site_agent.datasets import ReadingOptions

    reading = ReadingOptions(
        **{option.name: settings.pop(option.name) for option in READING_OPTIONS}
    )
    if reading.images is not None and not reading.images.is_dir():
        raise InputMissingError(f"--images {reading.images}: no such folder")
    return reading


def reading_words(reading: ReadingOptions) -> list[str]:
    """Return the words of a command line that gives these options; paths absolute."""
    words = []
    for option in READING_OPTIONS:
        value = getattr(reading, option.name)
        if value != option.default:
            given = value.absolute() if isinstance(value, Path) else value
            words += [f"--{option.name.replace('_', '-')}", str(given)]
    return words


def read_face_file(path: Path, reading: ReadingOptions | None = None) -> FaceDataset:
    """Read annotations of any known format.

    Raises
    ------
    InputMissingError
        When there is no such file or folder.
    """
    from site_agent.datasets import read_faces

    if not path.exists():
        raise InputMissingError(
            f"{path}: no such file; expected annotations: imglab XML, COCO JSON, or a folder with "
            ".pts files"
        )
    return read_faces(path, reading)


def part_words(text: str) -> tuple[str, ...]:
    """Take the words of ``--parts`` apart."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
