"""The steps that a study consists of, and what a step's result depends on.

A step's digest is made of its settings, of the digests of the steps and data sets that it takes,
and of program versions. Equal digests mean equal results, so that a study which goes on after an
interruption, or after a setting was changed, repeats no more than it must.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from aggregators.methods.refitting import RefitSettings
from site_agent.evaluation import EvaluationSettings
from site_agent.training import ErtSettings, HogSvmSettings

_SCHEMA = "poolctl-study-step/1"


@dataclass(frozen=True)
class Train:
    """Train a model on the union of some parts.

    Attributes
    ----------
    key : str
        What the result is called: the name of its file, without the ending.
    """

    verb: ClassVar[str] = "train"
    key: str
    parts: tuple[str, ...]
    settings: ErtSettings | HogSvmSettings

    @property
    def inputs(self) -> tuple[str, ...]:
        return ()

    @property
    def suffix(self) -> str:
        return ".dat" if isinstance(self.settings, ErtSettings) else ".svm"

    def facts(self) -> dict[str, Any]:
        plain = asdict(self.settings)
        # The result of detector training does not depend on it.
        plain.pop("threads", None)
        return plain


@dataclass(frozen=True)
class Merge:
    """Merge the results of other steps.

    Attributes
    ----------
    inputs : tuple of str
        Keys of steps, in the order in which they are merged; one may stand there twice.
    weights : tuple of float
        Equal where empty.
    """

    verb: ClassVar[str] = "merge"
    key: str
    method: str
    inputs: tuple[str, ...]
    suffix: str
    weights: tuple[float, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return ()

    def facts(self) -> dict[str, Any]:
        return {"method": self.method, "weights": self.weights, "options": dict(self.options)}


@dataclass(frozen=True)
class Contribute:
    """Fit the leaves of a merged model to the faces of one part, as a site does in a round.

    Attributes
    ----------
    base : str
        Key of the step that makes the model.
    """

    verb: ClassVar[str] = "refit"
    suffix: ClassVar[str] = ".contribution"
    key: str
    base: str
    part: str
    settings: RefitSettings
    landmarks: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.base,)

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.part,)

    def facts(self) -> dict[str, Any]:
        return {**self.settings.model_dump(mode="json"), "landmarks": self.landmarks}


@dataclass(frozen=True)
class Score:
    """Score the result of another step on the test data.

    Attributes
    ----------
    landmarks : tuple of str
        Names of the model's landmarks; empty for detectors.
    """

    verb: ClassVar[str] = "score"
    suffix: ClassVar[str] = ".json"
    key: str
    model: str
    settings: EvaluationSettings
    landmarks: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def parts(self) -> tuple[str, ...]:
        return (TEST_PART,)

    def facts(self) -> dict[str, Any]:
        return {**asdict(self.settings), "landmarks": self.landmarks}


Step = Train | Merge | Contribute | Score

TEST_PART = "test"
"""How the test data are called among the parts."""

SCORE_PREFIX = "score "
"""Keys of scores begin with this, so that a model and its scores differ in them."""


def title(step: Step) -> str:
    """Return what a step does, for people ("train P1+P2")."""
    return f"{step.verb} {step.key.removeprefix(SCORE_PREFIX)}"


def step_digests(
    steps: Sequence[Step], part_digests: Mapping[str, str], versions: Mapping[str, str]
) -> dict[str, str]:
    """Return what tells whether a step's earlier result may be used, by its key.

    Parameters
    ----------
    steps : sequence of Step
        Every step after those whose results it takes.
    part_digests : mapping of str to str
        `site_agent.datasets.dataset_digest` of each part, and of the test data.
    versions : mapping of str to str
        Of the programs whose results may differ.
    """
    digests: dict[str, str] = {}
    for step in steps:
        content = {
            "schema": _SCHEMA,
            "step": step.verb,
            "facts": step.facts(),
            "inputs": [digests[key] for key in step.inputs],
            "parts": [part_digests[part] for part in step.parts],
            "versions": dict(versions),
        }
        text = json.dumps(content, sort_keys=True, ensure_ascii=True)
        digests[step.key] = hashlib.sha256(text.encode("ascii")).hexdigest()
    return digests
