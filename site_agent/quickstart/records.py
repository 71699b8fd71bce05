"""What a quickstart is told to do, and what it comes to."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol

from site_agent.errors import InvalidInputError

_FEWEST_SITES, _MOST_SITES = 2, 8


class Reporter(Protocol):
    """Tells the user what happens: a title for each step, progress within it, a line after it."""

    def step(self, number: int, count: int, title: str) -> None:
        """A step begins."""

    def progress(self, fraction: float | None, text: str) -> None:
        """Part of the step is done; called from several threads."""

    def done(self, text: str) -> None:
        """The step is done."""


@dataclass(frozen=True)
class QuickstartSettings:
    """How much is drawn and trained; the defaults take a few minutes on two cores.

    One more site downloads and merges. Every person is drawn `pictures_per_person` times; nobody
    is in two sets. Landmark models are smaller than the paper's, so that they train in seconds.
    """

    sites: int = 3
    persons_per_site: int = 60
    test_persons: int = 60
    pictures_per_person: int = 3
    detector_pictures_per_person: int = 2
    ert_levels: int = 10
    ert_trees: int = 100
    ert_oversampling: int = 20
    seed: int = 1

    def __post_init__(self) -> None:
        if not _FEWEST_SITES <= self.sites <= _MOST_SITES:
            raise InvalidInputError(
                f"{self.sites} sites: expected a number from {_FEWEST_SITES} to {_MOST_SITES}"
            )

    @property
    def detector_pictures(self) -> int:
        return self.persons_per_site * self.detector_pictures_per_person


@dataclass(frozen=True)
class ScoredModel:
    """One line of the table at the end.

    `made_by` is ``trained``, ``refined`` or the method that merged it. `score` and `detail` are
    recall and precision of a detector, mean error and EAR range of a landmark model.
    """

    name: str
    made_by: str
    score: float
    detail: float
    file: str


@dataclass(frozen=True)
class BlinkResult:
    """Blinks of the drawn video: how many were drawn, found, and found rightly."""

    true: int
    found: int
    matched: int


@dataclass(frozen=True)
class QuickstartResult:
    """What the journey came to; written as ``summary.json``."""

    folder: str
    detectors: tuple[ScoredModel, ...]
    landmarks: tuple[ScoredModel, ...]
    blinks: BlinkResult
    video: str
    blink_folder: str
    merged_detector: str
    merged_landmarks: str
    refined_landmarks: str
    test_dataset: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)
