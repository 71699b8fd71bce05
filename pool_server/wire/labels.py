"""The core vocabulary of labels: keys that mean the same at every site.

Any other key is free. A pool sends its vocabulary (`GET /api/v1/vocabulary`), so that a client
judges labels as that pool does, whatever version it is of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire.data_use import DATA_USE_TERMS, DataUseTerm

LabelType = Literal["choice", "count", "number", "text"]

_COUNT = re.compile(r"^[0-9]{1,12}$")
_NUMBER = re.compile(r"^[0-9]{1,9}(\.[0-9]{1,9})?$")


class CoreLabel(BaseModel):
    """One key of the core vocabulary."""

    model_config = ConfigDict(frozen=True)

    key: str
    type: LabelType = Field(
        description="`choice`: one of `values`; `count`: digits; `number`: digits, perhaps with a "
        "decimal point; `text`: any words."
    )
    values: tuple[str, ...] = Field(default=(), description="All that a `choice` can be.")
    unit: str = Field(default="", description="What a `count` or `number` counts or measures.")
    description: str
    example: str

    def expects(self) -> str:
        """Return in words what a value must be."""
        if self.type == "choice":
            return f"one of {', '.join(self.values)}"
        kinds = {"count": "a whole number", "number": "a non-negative number", "text": "words"}
        return f"{kinds[self.type]} of {self.unit}" if self.unit else kinds[self.type]

    def takes(self, value: str) -> bool:
        """Return whether the key can have this value."""
        if self.type == "choice":
            return value in self.values
        patterns = {"count": _COUNT, "number": _NUMBER}
        return self.type not in patterns or bool(patterns[self.type].fullmatch(value))


_NEAR = 0.8
DATA_COUNTS = frozenset({"images", "boxes", "subjects"})
"""Keys that count a model's own training data: a merged model has other numbers."""

YES_NO = ("yes", "no", "mixed")

CORE_LABELS: tuple[CoreLabel, ...] = (
    CoreLabel(
        key="population",
        type="choice",
        values=("infant", "child", "adolescent", "adult", "older-adult", "mixed", "synthetic"),
        description="Whose faces the model was trained on; `synthetic` faces are drawn.",
        example="infant",
    ),
    CoreLabel(
        key="condition",
        type="text",
        description="Diagnosis or group, where the faces are of patients; `healthy` otherwise.",
        example="healthy",
    ),
    CoreLabel(
        key="age_min_months",
        type="number",
        unit="months",
        description="Age of the youngest person.",
        example="4",
    ),
    CoreLabel(
        key="age_max_months",
        type="number",
        unit="months",
        description="Age of the oldest person.",
        example="18",
    ),
    CoreLabel(
        key="dataset_type",
        type="choice",
        values=("laboratory", "clinic", "home", "field", "public", "synthetic", "mixed"),
        description="Where the images come from; `public` is a collection that anyone may get.",
        example="laboratory",
    ),
    CoreLabel(
        key="images",
        type="count",
        unit="images",
        description="Images the model was trained on; merges can weigh by it.",
        example="1111",
    ),
    CoreLabel(
        key="boxes",
        type="count",
        unit="faces",
        description="Faces marked in those images.",
        example="1180",
    ),
    CoreLabel(
        key="subjects",
        type="count",
        unit="persons",
        description="Different persons in those images.",
        example="42",
    ),
    CoreLabel(
        key="parts",
        type="count",
        unit="landmarks",
        description="Landmarks of a face.",
        example="68",
    ),
    CoreLabel(
        key="orientation",
        type="choice",
        values=("frontal", "left", "right", "rotated-left", "rotated-right", "up", "down", "mixed"),
        description="Where the faces look, as the camera sees it.",
        example="frontal",
    ),
    CoreLabel(
        key="orientations",
        type="count",
        unit="detectors",
        description="Orientations that a detector has one part of its own for.",
        example="5",
    ),
    CoreLabel(
        key="camera",
        type="text",
        description="Make and model of the camera, or its kind.",
        example="Basler acA640-750um",
    ),
    CoreLabel(
        key="frame_rate_hz",
        type="number",
        unit="images a second",
        description="Of the videos that the images were taken from.",
        example="250",
    ),
    CoreLabel(
        key="lighting",
        type="choice",
        values=("visible", "infrared", "mixed"),
        description="What light the camera sees.",
        example="infrared",
    ),
    CoreLabel(
        key="air_puff_hose",
        type="choice",
        values=YES_NO,
        description="Whether the hose of an air puff is in view.",
        example="yes",
    ),
    CoreLabel(
        key="glasses",
        type="choice",
        values=YES_NO,
        description="Whether the persons wear glasses.",
        example="no",
    ),
)


class VocabularyResponse(BaseModel):
    """The labels and terms of use that a pool knows."""

    labels: list[CoreLabel] = Field(description="Keys that mean the same everywhere.")
    terms: list[DataUseTerm] = Field(description="Terms of use that a version can have.")
    keys_in_use: list[str] = Field(
        default_factory=list, description="All keys of labels that models in the pool have."
    )

    def near_key(self, key: str) -> str:
        """Return a known key that `key` may be a misspelling of; empty for none.

        A key that the pool uses already is only held against the core vocabulary.
        """
        core = [each.key for each in self.labels]
        if key in core:
            return ""
        known = [*core, *([] if key in self.keys_in_use else self.keys_in_use)]
        return next(iter(get_close_matches(key, known, n=1, cutoff=_NEAR)), "")

    def problems_of(self, labels: Mapping[str, str]) -> list[str]:
        """Return what is wrong with labels, one sentence a problem; empty where all is well."""
        known = {each.key: each for each in self.labels}
        problems = [
            f"label {key}={value!r}; expected {known[key].expects()}, for example "
            f"{key}={known[key].example}"
            for key, value in labels.items()
            if key in known and not known[key].takes(value)
        ]
        low, high = labels.get("age_min_months", ""), labels.get("age_max_months", "")
        if _NUMBER.fullmatch(low) and _NUMBER.fullmatch(high) and float(low) > float(high):
            problems.append(
                f"label age_min_months={low} is above age_max_months={high}; expected the age of "
                "the youngest and of the oldest"
            )
        return problems


def shared_labels(inputs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the labels that all models have in common, without counts of training data."""
    first = inputs[0] if inputs else {}
    return {
        key: value
        for key, value in first.items()
        if key not in DATA_COUNTS and all(other.get(key) == value for other in inputs)
    }


VOCABULARY = VocabularyResponse(labels=list(CORE_LABELS), terms=list(DATA_USE_TERMS))
"""The vocabulary of this version of the program."""
