"""Evaluations: scores of models on the private data of the sites.

Only scores travel. There is no field for an image, a path or a value of one image, and names
of data sets are checked to be names.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.wire.names import (
    UNSHOWN,
    Digest,
    FiniteFloat,
    LabelKey,
    Line,
    Name,
    NextCursor,
    request_config,
    response_config,
)

_DIGEST_EXAMPLE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_SCORE_EXAMPLE: dict[str, Any] = {"value": 0.0727, "low": 0.0701, "high": 0.0755}
_EVALUATION_EXAMPLE: dict[str, Any] = {
    "evaluation_id": 17,
    "digest": _DIGEST_EXAMPLE,
    "site": "site-b",
    "dataset": "ward-2026",
    "dataset_digest": "60ab" * 16,
    "split": "test",
    "protocol": "inter-ocular",
    "images": 201,
    "faces": 201,
    "note": "",
    "scores": {"mean_error": _SCORE_EXAMPLE},
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-b/laptop",
}

DATASET_PATTERN = rf"^[^/\\{UNSHOWN}]*[^/\\{UNSHOWN} ]$"
SPLIT_PATTERN = rf"^[^/\\{UNSHOWN}]*$"
# A name, never a path: what lies where at a site is nobody else's business.
DatasetName = Annotated[
    str, StringConstraints(min_length=1, max_length=128, pattern=DATASET_PATTERN)
]
ShortText = Annotated[Line, StringConstraints(max_length=128)]
SplitName = Annotated[str, StringConstraints(max_length=64, pattern=SPLIT_PATTERN)]
MOST_SCORES = 64


class Score(BaseModel):
    """A number, with its 95 % interval where one was measured."""

    model_config = request_config(_SCORE_EXAMPLE)

    value: FiniteFloat
    low: FiniteFloat | None = None
    high: FiniteFloat | None = None

    @model_validator(mode="after")
    def _interval_is_whole(self) -> Score:
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval has both `low` and `high`, or neither")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"the interval begins at {self.low:g}, above its end {self.high:g}")
        return self


class EvaluationRequest(BaseModel):
    """Post how one model did on one data set."""

    model_config = request_config(
        {
            "model": "pool://site-a/face-68@2",
            "dataset": "ward-2026",
            "dataset_digest": "60ab" * 16,
            "split": "test",
            "protocol": "inter-ocular",
            "images": 201,
            "faces": 201,
            "scores": {"mean_error": _SCORE_EXAMPLE},
        }
    )

    model: str = Field(max_length=300, description="Address, or `sha256:DIGEST`.")
    site: Name | None = Field(
        default=None, description="Who measured; one's own site when left out."
    )
    dataset: DatasetName = Field(description="What the site calls its data: a name, never a path.")
    dataset_digest: Digest = Field(
        description="Tells equal data from different ones and reveals neither "
        "(`poolctl dataset stats`)."
    )
    split: SplitName = Field(default="", description="Part of the data: `test`.")
    protocol: ShortText = Field(
        default="", description="How it was measured, for example the normaliser of errors."
    )
    images: int | None = Field(default=None, ge=0, le=2_000_000_000)
    faces: int | None = Field(default=None, ge=0, le=2_000_000_000)
    note: ShortText = ""
    scores: dict[LabelKey, Score] = Field(min_length=1, max_length=MOST_SCORES)


class EvaluationResponse(BaseModel):
    """The scores that one site measured."""

    model_config = response_config(_EVALUATION_EXAMPLE)

    evaluation_id: int
    digest: Digest = Field(description="SHA-256 of the model's file.")
    site: Name = Field(description="Who measured.")
    dataset: str
    dataset_digest: Digest
    split: str
    protocol: str
    images: int | None
    faces: int | None
    note: str
    scores: dict[str, Score]
    created_at: datetime
    created_by: str


class EvaluationPage(BaseModel):
    """One page of the evaluations of a version, newest first."""

    model_config = response_config(
        {"items": [_EVALUATION_EXAMPLE], "next_cursor": "djE6YmVmb3JlPTQy"}
    )

    items: list[EvaluationResponse]
    next_cursor: NextCursor = None


_CELL_EXAMPLE: dict[str, Any] = {
    "site": "site-b",
    "dataset": "ward-2026",
    "dataset_digest": "60ab" * 16,
    "split": "test",
    "protocol": "inter-ocular",
    "images": 201,
    "value": 0.0727,
    "low": 0.0701,
    "high": 0.0755,
    "created_at": "2026-03-01T12:00:00Z",
}


class MatrixCell(BaseModel):
    """One score of one model, on one data set of one site."""

    site: Name
    dataset: str
    dataset_digest: Digest
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
    digest: Digest
    kind: str
    own_site: Name = Field(description="The site that the model is of.")
    cells: list[MatrixCell]


class EvaluationMatrix(BaseModel):
    """Models x sites for one score: a page of models, newest first."""

    model_config = response_config(
        {
            "score": "mean_error",
            "sites": ["site-b"],
            "rows": [
                {
                    "address": "pool://site-a/face-68@2",
                    "digest": _DIGEST_EXAMPLE,
                    "kind": "ert",
                    "own_site": "site-a",
                    "cells": [_CELL_EXAMPLE],
                }
            ],
            "next_cursor": "djE6YmVmb3JlPTQy",
        }
    )

    score: str
    sites: list[Name] = Field(description="Sites that have a cell on this page, by name.")
    rows: list[MatrixRow]
    next_cursor: NextCursor = None
