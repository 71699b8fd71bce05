"""The data of a site on the command line: annotated faces of any format, and gaze data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from aggregators.methods.round_options import Protection
from cli.frame.errors import InputMissingError, UsageError
from cli.frame.options import Argument, Option
from site_agent.datasets.conversion import ReadingOptions, join_datasets, read_faces
from site_agent.datasets.gaze.check import is_gaze_data
from site_agent.datasets.network_data import is_network_data
from site_agent.datasets.pts_files import find_pts
from site_agent.datasets.recognition import describe_unknown
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.split import GroupOf, by_folder, by_pattern, by_table
from site_agent.errors import AnnotationFileError

FacesArgument = Annotated[
    list[Path],
    Argument("imglab XML, COCO JSON, or a folder of .pts files; several are joined.", "FACES..."),
]
ImagesOption = Annotated[Path | None, Option("Folder with the images of a COCO file.", "FOLDER")]

PartsOption = Annotated[
    str,
    Option(
        "The model's landmarks if the faces have more: eyes, mouth ..., 36-47, or "
        "names. Default: recognised by the model's mean shape.",
        "A,B,...",
    ),
]


@dataclass(frozen=True)
class PersonOptions:
    """The person on each image: by its name, or by a table."""

    person_pattern: Annotated[
        str | None,
        Option("The first group of this pattern, applied to file names, is the person.", "REGEX"),
    ] = None
    persons: Annotated[
        Path | None, Option("Table with the columns 'file' and 'person'.", "CSV")
    ] = None

    @property
    def given(self) -> bool:
        return self.person_pattern is not None or self.persons is not None

    def person_of(self, faces: FaceDataset, needed_by: str) -> GroupOf:
        """Return the person of each image; `needed_by` names the user of the answer."""
        if self.person_pattern is not None and self.persons is None:
            return by_pattern(faces, self.person_pattern)
        if self.persons is None or self.person_pattern is not None:
            raise UsageError(f"{needed_by}: give --person-pattern or --persons")
        if not self.persons.is_file():
            raise InputMissingError(f"--persons {self.persons}: no such file; expected a CSV table")
        return by_table(faces, self.persons)


@dataclass(frozen=True)
class GroupingOptions(PersonOptions):
    """The options that keep images together when a data set is split."""

    together: Annotated[
        Literal["image", "person", "folder"],
        Option("What must stay in one part: the images of a folder, or of a person."),
    ] = "image"

    def group_of(self, faces: FaceDataset) -> GroupOf | None:
        """Return the group of each image; None where images stand alone."""
        if self.together == "person":
            return self.person_of(faces, "--together person")
        if self.given:
            raise UsageError("--person-pattern and --persons: need --together person")
        return by_folder if self.together == "folder" else None


def reading_from(images: Path | None) -> ReadingOptions:
    """Return how annotations are read."""
    if images is not None and not images.is_dir():
        raise InputMissingError(f"--images {images}: no such folder")
    return ReadingOptions(images=images)


def read_face_file(path: Path, reading: ReadingOptions | None = None) -> FaceDataset:
    """Read annotations of any known format."""
    if not path.exists():
        raise InputMissingError(
            f"{path}: no such file or folder; expected annotations, or a folder of data"
        )
    if is_network_data(path):
        raise UsageError(f"{path}: is gaze data, or clips; expected annotated faces")
    faces_inside = path.is_dir() and any(find_pts(path))
    if not faces_inside and (path.is_dir() or path.suffix.lower() in {".csv", ".txt", ".tsv"}):
        raise AnnotationFileError(path, 0, describe_unknown(path))
    return read_faces(path, reading)


def read_joined_faces(
    paths: Sequence[Path], reading: ReadingOptions | None = None, *, same_parts: bool = False
) -> FaceDataset:
    """Read annotations, several of them as one data set (see `site_agent.datasets`)."""
    return join_datasets([read_face_file(path, reading) for path in paths], same_parts=same_parts)


def words_of(paths: Sequence[Path]) -> str:
    """Return how messages and tables name the data."""
    return " + ".join(map(str, paths))


def part_words(text: str) -> tuple[str, ...]:
    """Split words separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def holds_gaze(paths: list[Path]) -> bool:
    """Return whether the data sets, which must be of one kind, are of gaze."""
    gaze_paths = [path for path in paths if is_gaze_data(path)]
    if gaze_paths and len(gaze_paths) < len(paths):
        raise UsageError(
            f"{gaze_paths[0]} is gaze data, and other data are not: give them one by one"
        )
    return bool(gaze_paths)


RoundCountOption = Annotated[int, Option("Number of rounds.", min=1, max=100_000)]
CohortOption = Annotated[
    float, Option("Share of the sites that train in a round.", min=0.001, max=1.0)
]

LeastOthersOption = Annotated[
    int,
    Option(
        "Contribute only with at least N others: all of them together know yours.", min=1, max=199
    ),
]
MostEpsilonOption = Annotated[
    float | None,
    Option("Budget: what your pictures may spend of differential privacy, anywhere.", min=1e-6),
]
ProtectionOption = Annotated[
    Protection | None,
    Option(
        "Of rounds of networks: private (differential privacy), verified (a secure sum) or open "
        "(the pool reads contributions). Default: verified with a secure sum, else private."
    ),
]
MaxHoursOption = Annotated[
    float, Option("Refuse to train a network for longer than this many hours.", min=0.0)
]
