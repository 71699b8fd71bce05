"""Scores of models that the pool knows: which way is better, and in what they are measured."""

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, Field

from pool_server.wire.names import Digest, ItemList


class ScoreMeaning(NamedTuple):
    """The words for a score; `unit` is empty for shares and errors without one."""

    words: str
    smaller_is_better: bool
    unit: str = ""

    @property
    def direction(self) -> str:
        return "smaller is better" if self.smaller_is_better else "larger is better"


SCORES: Mapping[str, ScoreMeaning] = {
    "mean_error": ScoreMeaning("Mean error", True),
    "median_error": ScoreMeaning("Median error", True),
    "eye_error": ScoreMeaning("Error of the eyes", True),
    "ear_error": ScoreMeaning("Error of the eye aspect ratio", True),
    "closed_ear_error": ScoreMeaning("Error of the ratio of closed eyes", True),
    "failure_rate": ScoreMeaning("Failure rate", True),
    "failure_rate_at_10": ScoreMeaning("Failure rate at 10 %", True),
    "auc": ScoreMeaning("Area under the curve", False),
    "ear_range": ScoreMeaning("Range of the eye aspect ratio", False),
    "average_precision": ScoreMeaning("Average precision", False),
    "f1": ScoreMeaning("F1", False),
    "recall": ScoreMeaning("Recall", False),
    "precision": ScoreMeaning("Precision", False),
    "mean_error_deg": ScoreMeaning("Mean angular error", True, "°"),
    "median_error_deg": ScoreMeaning("Median angular error", True, "°"),
}
"""A score that is not here has no better side that the pool could know."""

HEADLINES: Mapping[str, str] = {"ert": "mean_error", "hog-svm": "f1", "network": "mean_error_deg"}
"""The score by which models of a kind are shown in listings."""


class EvaluationSummary(BaseModel):
    """The score of one file in a listing, over all sites that measured it."""

    digest: Digest
    score: str
    median: float = Field(description="Over the newest scores of all sites and data sets.")
    sites: int = Field(ge=1, description="Sites that measured.")


EvaluationSummaryList = ItemList[EvaluationSummary]
