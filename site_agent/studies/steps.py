"""The steps of a study, and the dependencies of a step's result.

A step's digest is made of its settings, of the digests of the steps and data sets that it takes,
and of program versions. Equal digests mean equal results, so that a study which goes on after an
interruption, or after a setting was changed, repeats no more than it must. The folder of a study::

    STUDY/models/KEY.dat          models with their recipes and training records
    STUDY/scores/KEY.json         scores
    STUDY/.study/steps/KEY.json   the record of a finished step, written after its files
    STUDY/.study/contributions/   contributions of parts to refinement, until combined
    STUDY/.study/work/            steps under way; emptied at every start
    STUDY/.study/lock
"""

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import TypeAdapter

from aggregators.formats import file_digest
from aggregators.methods.refitting import RefitSettings
from site_agent.errors import writing_to
from site_agent.evaluation.model_runs import EvaluationSettings
from site_agent.plain_json import write_json
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings
from site_agent.work.files import FileState, file_state

SCHEMA = "poolctl-study-step/2"


@dataclass(frozen=True)
class Train:
    """Train a model on the union of some parts."""

    verb: ClassVar[str] = "train"
    key: str
    """The name of the result's file, without the ending."""
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
    """Merge the results of other steps."""

    verb: ClassVar[str] = "merge"
    key: str
    method: str
    inputs: tuple[str, ...]
    """Keys of steps, in the order in which they are merged; one may stand there twice."""
    suffix: str
    weights: tuple[float, ...] = ()
    """Equal where empty."""
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return ()

    def facts(self) -> dict[str, Any]:
        return {"method": self.method, "weights": self.weights, "options": dict(self.options)}


@dataclass(frozen=True)
class Contribute:
    """Fit the leaves of a merged model to the faces of one part, as a site does in a round."""

    verb: ClassVar[str] = "refit"
    suffix: ClassVar[str] = ".contribution"
    key: str
    base: str
    """Key of the step that makes the model."""
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
    """Score the result of another step on the test data."""

    verb: ClassVar[str] = "score"
    suffix: ClassVar[str] = ".json"
    key: str
    model: str
    settings: EvaluationSettings
    landmarks: tuple[str, ...] = ()
    """Names of the model's landmarks; empty for detectors."""

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
    """Return a step's title, for people ("train P1+P2")."""
    return f"{step.verb} {step.key.removeprefix(SCORE_PREFIX)}"


def step_digests(
    steps: Sequence[Step], part_digests: Mapping[str, str], versions: Mapping[str, str]
) -> dict[str, str]:
    """Return a digest of each step's dependencies, by key: an equal one allows an earlier result.

    `steps`: every step after those that it builds on. `part_digests`:
    `site_agent.datasets.records.dataset_digest` of each part, and of the test data. `versions`: of
    the programs that affect results.
    """
    digests: dict[str, str] = {}
    for step in steps:
        content = {
            "schema": SCHEMA,
            "step": step.verb,
            "facts": step.facts(),
            "inputs": [digests[key] for key in step.inputs],
            "parts": [part_digests[part] for part in step.parts],
            "versions": dict(versions),
        }
        text = json.dumps(content, sort_keys=True, ensure_ascii=True)
        digests[step.key] = hashlib.sha256(text.encode("ascii")).hexdigest()
    return digests


@dataclass(frozen=True)
class StepRecord:
    """A finished step."""

    key: str
    digest: str
    """`site_agent.studies.steps.step_digests`."""
    files: tuple[FileState, ...]
    """Its result first, then the files next to it."""
    took_s: float
    warnings: tuple[str, ...] = ()
    schema: str = field(default=SCHEMA)

    @property
    def result(self) -> FileState:
        return self.files[0]


_RECORD = TypeAdapter(StepRecord)


class StudyFolder:
    """The folder of a study."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hidden = path / ".study"
        self.parts = path / "parts"
        self.work = self.hidden / "work"

    def prepare(self) -> None:
        """Make the folders, and remove the unfinished files of an interrupted run."""
        with writing_to(self.path):
            shutil.rmtree(self.work, ignore_errors=True)
            for name in ("models", "scores", "parts"):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            for name in ("steps", "contributions", "work"):
                (self.hidden / name).mkdir(parents=True, exist_ok=True)

    def place_of(self, step: Step) -> Path:
        """Return the folder in which a step's files end."""
        if isinstance(step, Score):
            return self.path / "scores"
        if isinstance(step, Contribute):
            return self.hidden / "contributions"
        return self.path / "models"

    def result_of(self, step: Step) -> Path:
        """Return where the result of a step is, or will be."""
        return self.place_of(step) / result_name(step)

    def finished(self, step: Step, digest: str) -> StepRecord | None:
        """Return the record of a step with an up-to-date result; None without one."""
        record = self._read(self._record_file(step.key))
        if record is None or record.digest != digest:
            return None
        still = all(file.is_unchanged(self.path / file.name) for file in record.files)
        return record if still else None

    def adopt(
        self, step: Step, digest: str, made: Path, took_s: float, warnings: Sequence[str]
    ) -> StepRecord:
        """Move a step's files into the study, and then write its record.

        `made`: folder with the step's files; is gone afterwards.

        Raises `OSError`: something cannot be written.
        """
        place, name = self.place_of(step), result_name(step)
        # If killed from here on, only this step is lost.
        self._record_file(step.key).unlink(missing_ok=True)
        names = sorted((path.name for path in made.iterdir()), key=lambda other: other != name)
        for other in names:
            (made / other).replace(place / other)
        made.rmdir()
        files = [_state_in(self.path, place / other) for other in names]
        record = StepRecord(step.key, digest, tuple(files), round(took_s, 3), tuple(warnings))
        write_json(self._record_file(step.key), asdict(record))
        return record

    def forget(self, step: Step) -> None:
        """Remove a step's record and then its files."""
        record = self._read(self._record_file(step.key))
        self._record_file(step.key).unlink(missing_ok=True)
        self.result_of(step).unlink(missing_ok=True)
        for file in record.files if record else ():
            (self.path / file.name).unlink(missing_ok=True)

    def leftovers(self, steps: Sequence[Step]) -> list[str]:
        """Return the files of earlier runs' steps that belong to none of these steps."""
        keys = {step.key for step in steps}
        files = []
        for file in sorted((self.hidden / "steps").glob("*.json")):
            record = self._read(file)
            if record is not None and record.key not in keys:
                files.append(record.result.name)
        return files

    def _record_file(self, key: str) -> Path:
        return self.hidden / "steps" / f"{key.replace(' ', '-')}.json"

    def _read(self, path: Path) -> StepRecord | None:
        with suppress(OSError, ValueError):
            record = _RECORD.validate_json(path.read_bytes())
            return record if record.schema == SCHEMA else None
        return None


def result_name(step: Step) -> str:
    """Return the name of the file that a step is done for."""
    if isinstance(step, Score):
        return f"{step.model}{step.suffix}"
    return f"{step.key}{step.suffix}"


def _state_in(study: Path, path: Path) -> FileState:
    name = path.relative_to(study).as_posix()
    return replace(file_state(path), name=name, sha256=file_digest(path))
