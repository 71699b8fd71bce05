"""The table of a study, in the paper's form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from site_agent.studies.protocol import Row, StudyKind
from site_agent.studies.stored_scores import Scores

HEADLINE: Mapping[StudyKind, tuple[str, ...]] = {
    "landmarks": ("mean_error",),
    "detectors": ("recall", "precision"),
}
"""What the paper's tables show."""


@dataclass(frozen=True)
class TableLine:
    """One line of the table.

    Attributes
    ----------
    model : str
        The model's file, relative to the study's folder; empty where there is none.
    reason : str
        Why there is no model, or why it has no scores.
    """

    row: Row
    scores: Scores | None
    model: str = ""
    digest: str = ""
    size_bytes: int = 0
    took_s: float = 0.0
    reason: str = ""
    warnings: tuple[str, ...] = ()

    def value(self, metric: str) -> float:
        """Return a score, NaN where there is none."""
        return math.nan if self.scores is None else self.scores.metrics.get(metric, math.nan)


@dataclass(frozen=True)
class StudyTable:
    """The table of a study.

    Attributes
    ----------
    remarks : tuple of str
        What the numbers say, and what to keep in mind about them.
    """

    kind: StudyKind
    name: str
    lines: tuple[TableLine, ...]
    remarks: tuple[str, ...]

    @property
    def headline(self) -> tuple[str, ...]:
        return HEADLINE[self.kind]

    def best_alone(self) -> TableLine | None:
        """Return the best model of one part, None where none was scored."""
        metric = self.headline[0]
        alone = [line for line in self.lines if line.row.group == "alone" and line.scores]
        choose = min if self.kind == "landmarks" else max
        return choose(alone, key=lambda line: line.value(metric), default=None)

    def find(self, group: str, *, last: bool = True, thinned: bool = False) -> TableLine | None:
        """Return the last (or first) scored line of a group, thinned models apart."""
        found = [
            line
            for line in self.lines
            if line.row.group == group and line.scores and ("thinned" in line.row.name) is thinned
        ]
        return None if not found else found[-1 if last else 0]

    def against(self, line: TableLine, other: TableLine | None) -> float:
        """Return how much larger the first score of a line is than another's, in per cent."""
        metric = self.headline[0]
        base = math.nan if other is None else other.value(metric)
        return 100 * (line.value(metric) / base - 1) if base > 0 else math.nan
