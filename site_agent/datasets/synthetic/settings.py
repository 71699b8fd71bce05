"""Settings of drawn faces, videos and clips, and the data sets drawn by them."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from site_agent.errors import InvalidInputError
from site_agent.settings import Settings


@dataclass(frozen=True)
class Drawing:
    """A drawn data set."""

    path: Path
    """The file or folder that other commands read."""
    counts: dict[str, float]
    files: dict[str, Path] = field(default_factory=dict)
    """Further files, by their role."""


_Side = Annotated[int, Field(ge=64, le=8192)]
_EvenSide = Annotated[int, Field(ge=64, le=8192, multiple_of=2)]


class FaceDrawing(Settings, error=InvalidInputError):
    """The settings of a data set of drawn faces."""

    images: int = Field(default=100, ge=1)
    """Number of images."""
    persons: int = Field(default=50, ge=1)
    """Number of persons; they take turns."""
    first_person: int = Field(default=0, ge=0)
    """Number of the first person; disjoint ranges share no person."""
    size: tuple[_Side, _Side] = (320, 320)
    """Width and height of the images in pixels."""
    style: str = "mixed"
    """Style of the images: mixed, adult-lab, infant-lab, ..."""
    glasses: float = Field(default=0.0, ge=0, le=1)
    """Share of the persons with glasses."""
    name: str = "faces"
    """Name of the files."""
    seed: int = Field(default=0, ge=0)


class VideoDrawing(Settings, error=InvalidInputError):
    """The settings of a drawn video of a blinking person."""

    seconds: float | None = Field(default=None, ge=0.1, le=86400)
    """Length; none: 20 seconds, or as long as the trials take."""
    trials: int | None = Field(default=None, ge=1, le=9600)
    """Draw a session of eyeblink conditioning with this number of trials (6 to 9 s each)."""
    frame_rate_hz: float = Field(default=30.0, ge=1, le=1000)
    size: tuple[_EvenSide, _EvenSide] = (640, 480)
    """Width and height in pixels, even numbers."""
    variable_frame_rate: bool = False
    """Vary the intervals between frames."""
    lost_frames: float = Field(default=0.0, ge=0, le=0.5)
    """Share of frames that the camera drops."""
    seed: int = Field(default=0, ge=0)
    """Seed of the person, the blinks and the noise."""

    def __post_init__(self) -> None:
        if self.seconds is not None and self.trials is not None:
            raise self.refused("seconds", self.seconds, "none, as trials take their own time")


class TrialsDrawing(Settings, error=InvalidInputError):
    """The settings of a drawn table of the trials of learning animals."""

    animals: int = Field(default=6, ge=1)
    """Number of animals, which take turns in the groups."""
    sessions: int = Field(default=8, ge=1)
    """Sessions of each animal."""
    trials: int = Field(default=12, ge=1)
    """Trials of a session."""
    groups: tuple[str, ...] = ("",)
    """Groups of animals; all but the first learn more slowly."""
    seed: int = Field(default=0, ge=0)
    """Seed of the animals and their responses; it is in their names."""


class ClipSettings(Settings, error=InvalidInputError):
    """The settings of drawn clips of head-mounted cameras."""

    persons: int = Field(default=8, ge=1)
    """Number of persons."""
    videos: int = Field(default=20, ge=1)
    """Videos of each person; the last ones are for tests, those before them for validation."""
    seconds: float = Field(default=4.0, ge=0.5, le=600)
    """Length of a video."""
    heterogeneity: float = Field(default=1.0, ge=0, le=2)
    """Differences between persons in their preferences; 0: none."""
    scene: Literal["camera", "still", "blobs"] = "camera"
    """still: the camera does not move, and sees no hands. blobs: nor are there things but a white
    and a black disc; at a heterogeneity of 1 every second person looks at the black one."""
    held_out: float = Field(default=0.2, ge=0, le=0.5)
    """Share of the videos for tests, and the same for validation, from three videos on."""
    seed: int = Field(default=0, ge=0)
