"""What rounds ask of a site's side of a method; `site_agent.rounds.methods` has the table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from site_agent.runs.progress import Progress

if TYPE_CHECKING:
    from pool_server.wire.rounds import RoundResponse
    from site_agent.datasets import FaceDataset
    from site_agent.datasets.gaze import GazeDataset
    from site_agent.pool.client import PoolClient
    from site_agent.rounds.rules import ContributionRules

    SiteData = FaceDataset | GazeDataset | Path
    """A data set, or where it is."""

DataKind = Literal["faces", "gaze"]


@dataclass(frozen=True)
class DataChoice:
    """Which of a site's data are used, and how.

    Attributes
    ----------
    parts : tuple of str
        Of faces: the model's landmarks, where the faces have more: names, ranges (36-47) and
        groups (eyes). A group is known by the model's mean shape, too.
    persons : tuple of str
        Of gaze data; all where empty.
    seed : int
        Of the starting shapes of leaf refinement; each round of a series adds its number; level
        by level, each time through all levels.
    threads : int
        Of leaf refinement. 0: as many as the machine has processors.
    """

    parts: tuple[str, ...] = ()
    persons: tuple[str, ...] = ()
    seed: int = 0
    threads: int = 0


@dataclass(frozen=True)
class Made:
    """What is told of a contribution file.

    Attributes
    ----------
    words : str
        One line for the person who sends it.
    leaves, leaves_sent, fewest_samples : int
        Of leaf refinement: leaves of the base, those of which a change is sent, and the fewest
        samples that one rests on.
    samples : int
        Of networks: training samples.
    """

    words: str
    leaves: int = 0
    leaves_sent: int = 0
    fewest_samples: int = 0
    samples: int = 0


class SitePart(ABC):
    """A site's part in one round.

    Attributes
    ----------
    data : str
        What it is computed from.
    shows_origin : bool
        Whether `same_origin` can tell. If so, the result of a round is accounted for as its base
        is; otherwise the pool is believed in what it combined within a series.
    """

    data: ClassVar[DataKind]
    shows_origin: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def prepare(
        cls, pool: PoolClient, found: RoundResponse, site: str, data: SiteData, choice: DataChoice
    ) -> SitePart:
        """Read the data and the options of the round.

        Raises
        ------
        SiteAgentError, AggregatorError
            The data cannot be used, or this program does not know the options.
        """

    @staticmethod
    def same_origin(base: Path, result: Path) -> bool:
        """Return whether a file can be the result of a round with this base."""
        raise NotImplementedError

    @abstractmethod
    def inputs(self, rules: ContributionRules) -> list[Any]:
        """Return what the contribution depends on beside the base, as JSON values."""

    def objections(self, _rules: ContributionRules) -> list[str]:
        """Return what speaks against the round's options."""
        return []

    @abstractmethod
    def compute(
        self, base: Path, output: Path, rules: ContributionRules, progress: Progress
    ) -> tuple[tuple[int, str], ...]:
        """Write the contribution to a base; return faces that were left out, as (line, text).

        Raises
        ------
        ContributionWithheldError
            The rules speak against what was computed; nothing was written.
        """

    @abstractmethod
    def describe(self, path: Path) -> Made:
        """Return what is told of a contribution that was written."""
