"""Evaluations: scores of models on the private data of the sites.

Only scores travel. There is no field for an image, a path or a value of one image, and names
of data sets are checked to be names.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, NamedTuple

from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.wire import names
from pool_server.wire.names import Digest, ItemList

DATASET_PATTERN = rf"^[^/\\{names.UNSHOWN}]*[^/\\{names.UNSHOWN} ]$"
SPLIT_PATTERN = rf"^[^/\\{names.UNSHOWN}]*$"
# A name, never a path: a site's folders are private.
DatasetName = Annotated[
    str, StringConstraints(min_length=1, max_length=128, pattern=DATASET_PATTERN)
]
ShortText = Annotated[names.Line, StringConstraints(max_length=128)]
SplitName = Annotated[str, StringConstraints(max_length=64, pattern=SPLIT_PATTERN)]
MOST_SCORES = 64


class Score(names.RequestModel):
    """A number, with its 95 % interval where one was measured."""

    value: names.FiniteFloat
    low: names.FiniteFloat | None = None
    high: names.FiniteFloat | None = None

    @model_validator(mode="after")
    def _interval_is_whole(self) -> "Score":
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval has both `low` and `high`, or neither")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"the interval begins at {self.low:g}, above its end {self.high:g}")
        return self


class EvaluationRequest(names.RequestModel):
    """Post the scores of one model on one data set."""

    model: str = Field(max_length=300, description="Address, or `sha256:DIGEST`.")
    dataset: DatasetName = Field(description="The site's name for its data, never a path.")
    dataset_digest: names.Digest = Field(
        description="Tells equal data from different ones and reveals neither "
        "(`poolctl dataset check`)."
    )
    split: SplitName = Field(default="", description="Part of the data: `test`.")
    protocol: ShortText = Field(
        default="", description="Method of measurement, for example the normaliser of errors."
    )
    images: names.Whole | None = Field(default=None, ge=0, le=2_000_000_000)
    faces: names.Whole | None = Field(default=None, ge=0, le=2_000_000_000)
    scores: dict[names.LabelKey, Score] = Field(min_length=1, max_length=MOST_SCORES)


class EvaluationResponse(BaseModel):
    """The scores that one site measured."""

    evaluation_id: int
    digest: names.Digest = Field(description="SHA-256 of the model's file.")
    site: names.Name = Field(description="The measuring site.")
    dataset: str
    dataset_digest: names.Digest
    split: str
    protocol: str
    images: int | None
    faces: int | None
    scores: dict[str, Score]
    created_at: datetime
    created_by: str


EvaluationPage = names.Page[EvaluationResponse]


class MatrixQuery(names.RequestModel):
    """The score of a matrix, and filters of its models and evaluations."""

    score: names.LabelKey = Field(description="Name of the score.")
    kind: str | None = Field(
        default=None, max_length=16, description="`hog-svm`, `ert` or `network`."
    )
    model: list[str] = Field(
        default=[],
        max_length=200,
        description="Only these, by address with the number of the version; also withdrawn ones.",
    )
    limit: int = Field(default=50, ge=1, le=200, description="Maximum number of items of the page.")
    cursor: int | None = Field(
        default=None, ge=1, lt=10**18, description="`next_cursor` of the previous page."
    )


class MatrixCell(BaseModel):
    """One score of one model, on one data set of one site."""

    site: names.Name
    dataset: str
    dataset_digest: names.Digest
    split: str
    protocol: str
    images: int | None
    value: float
    low: float | None
    high: float | None
    created_at: datetime


class MatrixRow(BaseModel):
    """All sites' scores of one version."""

    address: str
    digest: names.Digest
    kind: str
    cells: list[MatrixCell]


class EvaluationMatrix(BaseModel):
    """Models x sites for one score: a page of models, newest first."""

    score: str
    sites: list[names.Name] = Field(description="Sites that have a cell on this page, by name.")
    rows: list[MatrixRow]
    next_cursor: names.NextCursor = None


class ScoreMeaning(NamedTuple):
    """The label and direction of a score; `unit` is empty for shares and errors without one."""

    label: str
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
    "mean_error_cm": ScoreMeaning("Mean distance on the screen", True, "cm"),
    "mean_error_px": ScoreMeaning("Mean distance of the pupil", True, "px"),
}
"""Labels of known scores; for other scores the pool cannot know which side is better."""

HEADLINES: Mapping[str, str] = {"ert": "mean_error", "hog-svm": "f1", "network": "mean_error_deg"}
"""The score that listings show for each kind of model."""


class EvaluationSummary(BaseModel):
    """The score of one file in a listing, over all sites that measured it."""

    digest: Digest
    score: str
    median: float = Field(description="Over the newest scores of all sites and data sets.")
    sites: int = Field(ge=1, description="Number of sites that measured it.")


EvaluationSummaryList = ItemList[EvaluationSummary]
