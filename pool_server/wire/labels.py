"""The core vocabulary of labels: keys that mean the same at every site.

Any other key is free. A pool sends its vocabulary (`GET /api/v1/vocabulary`), so that a client
judges labels by the pool's vocabulary, even if their versions differ.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire.data_use import DATA_USE_TERMS, DataUseTerm

LabelType = Literal["choice", "count", "number", "text", "doi"]

_COUNT = re.compile(r"^[0-9]{1,12}$")
_NUMBER = re.compile(r"^[0-9]{1,9}(\.[0-9]{1,9})?$")
_DOI = re.compile(r"^10\.[0-9]{4,9}/[!-~]{1,200}$")


class CoreLabel(BaseModel):
    """One key of the core vocabulary."""

    model_config = ConfigDict(frozen=True)

    key: str
    type: LabelType = Field(
        description="`choice`: one of `values`; `count`: digits; `number`: digits, perhaps with a "
        "decimal point; `doi`: a DOI without https://doi.org/; `text`: any words."
    )
    values: tuple[str, ...] = Field(default=(), description="The values of a `choice`.")
    unit: str = Field(default="", description="Unit of a `count` or `number`.")
    description: str
    example: str

    def expects(self) -> str:
        """Describe the permitted values."""
        if self.type == "choice":
            return f"one of {', '.join(self.values)}"
        kinds = {"count": "a whole number", "number": "a non-negative number", "text": "words"}
        kinds["doi"] = "a DOI without https://doi.org/"
        return f"{kinds[self.type]} of {self.unit}" if self.unit else kinds[self.type]

    def takes(self, value: str) -> bool:
        """Return whether the key may have this value."""
        if self.type == "choice":
            return value in self.values
        patterns = {"count": _COUNT, "number": _NUMBER, "doi": _DOI}
        return self.type not in patterns or bool(patterns[self.type].fullmatch(value))


_NEAR = 0.8
OWN_LABELS = frozenset({"images", "boxes", "subjects", "doi"})
"""Keys that a merged model does not take over: counts of training data, and the DOI."""

YES_NO = ("yes", "no", "mixed")

_ROWS: tuple[tuple[str, LabelType, str | tuple[str, ...], str, str], ...] = (
    (
        "population", "choice",
        ("infant", "child", "adolescent", "adult", "older-adult", "mixed", "synthetic"),
        "Population of the training faces; `synthetic` faces are drawn.", "infant",
    ),
    (
        "condition", "text", "",
        "Diagnosis or group, where the faces are of patients; `healthy` otherwise.", "healthy",
    ),
    ("age_min_months", "number", "months", "Age of the youngest person.", "4"),
    ("age_max_months", "number", "months", "Age of the oldest person.", "18"),
    (
        "dataset_type", "choice",
        ("laboratory", "clinic", "home", "field", "public", "synthetic", "mixed"),
        "Source of the images; `public` is a collection open to anyone.", "laboratory",
    ),
    ("images", "count", "images", "Images it was trained on; merges can weigh by it.", "1111"),
    ("boxes", "count", "faces", "Faces marked in those images.", "1180"),
    ("subjects", "count", "persons", "Different persons in those images.", "42"),
    ("parts", "count", "landmarks", "Landmarks of a face.", "68"),
    (
        "orientation", "choice",
        ("frontal", "left", "right", "rotated-left", "rotated-right", "up", "down", "mixed"),
        "Direction of the faces as seen by the camera.", "frontal",
    ),
    (
        "orientations", "count", "detectors",
        "Orientations for which a detector has a separate part.", "5",
    ),
    ("camera", "text", "", "Make and model of the camera, or its kind.", "Basler acA640-750um"),
    (
        "frame_rate_hz", "number", "images a second",
        "Of the videos that the images were taken from.", "250",
    ),
    (
        "lighting", "choice", ("visible", "infrared", "mixed"),
        "Light seen by the camera.", "infrared",
    ),
    ("air_puff_hose", "choice", YES_NO, "Whether the hose of an air puff is in view.", "yes"),
    ("glasses", "choice", YES_NO, "Whether the persons wear glasses.", "no"),
    ("doi", "doi", "", "DOI of this version or of its paper.", "10.5281/zenodo.1234567"),
)  # fmt: skip
"""Key, type, the values of a choice or the unit of a number, description, example."""

CORE_LABELS = tuple(
    CoreLabel(
        key=key,
        type=kind,
        values=of if isinstance(of, tuple) else (),
        unit=of if isinstance(of, str) else "",
        description=text,
        example=example,
    )
    for key, kind, of, text, example in _ROWS
)


class VocabularyResponse(BaseModel):
    """A pool's known labels and terms of use."""

    labels: list[CoreLabel] = Field(description="Keys that mean the same everywhere.")
    terms: list[DataUseTerm] = Field(description="Terms of use that a version can have.")
    keys_in_use: list[str] = Field(
        default_factory=list, description="All keys of labels that models in the pool have."
    )

    def near_key(self, key: str) -> str:
        """Return a known key that `key` may misspell; empty if there is none.

        A key already in use is compared with the core vocabulary only.
        """
        core = [label.key for label in self.labels]
        if key in core:
            return ""
        known = [*core, *([] if key in self.keys_in_use else self.keys_in_use)]
        return next(iter(get_close_matches(key, known, n=1, cutoff=_NEAR)), "")

    def near_keys(self, labels: Iterable[str]) -> dict[str, str]:
        """Return the keys that look like misspellings, each with the key that others use."""
        return {key: near for key in labels if (near := self.near_key(key))}

    def problems_of(self, labels: Mapping[str, str]) -> list[str]:
        """Return the problems of labels, one sentence each; empty if all are valid."""
        known = {label.key: label for label in self.labels}
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
    """Return the labels that all models share, without those of one model only."""
    first = inputs[0] if inputs else {}
    return {
        key: value
        for key, value in first.items()
        if key not in OWN_LABELS and all(other.get(key) == value for other in inputs)
    }


VOCABULARY = VocabularyResponse(labels=list(CORE_LABELS), terms=list(DATA_USE_TERMS))
"""The vocabulary of this version of the program."""
