"""Descriptions of a model: its sidecar files, and the fields of an upload.

``<model>.recipe.json`` (a merge), ``<model>.training.json`` (a training) and
``<model>.evaluation.json`` (a saved evaluation) are written by this program, and name the digest of
their model, so that a replaced file does not inherit the description of another.
``<model>.terms`` has the terms of use, one a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from aggregators.errors import first_problem
from aggregators.whole_file import write_whole
from pool_server.wire.cards import PrivacyReceipt
from pool_server.wire.data_use import Term
from pool_server.wire.labels import VocabularyResponse, shared_labels
from site_agent.errors import InvalidInputError
from site_agent.pool.rebuilding import RecipeSources
from site_agent.pool.restrictions import read_terms_file
from site_agent.training_record import beside, read_beside

if TYPE_CHECKING:
    from site_agent.pool.client import PoolClient

T = TypeVar("T")

EVALUATION_SCHEMA = "poolctl-evaluation/1"


@dataclass(frozen=True)
class Sidecars:
    """The content of the files next to a model, as far as they are about these bytes."""

    model: Path
    recipe: dict[str, Any] | None
    labels: dict[str, str]
    """Labels that the training suggests."""
    metrics: dict[str, float]
    """Scores of the last saved evaluation."""
    training_images: int
    """Images of that evaluation that the model was trained on."""

    @classmethod
    def read(cls, model: Path, digest: str) -> Sidecars:
        """Read the sidecar files of a model with this digest."""
        recipe = _read_json(beside(model, "recipe"))
        output = recipe.get("output")
        is_own = isinstance(output, dict) and output.get("digest") == digest
        training = read_beside(model, "training", digest) or {}
        evaluation = read_beside(model, "evaluation", digest) or {}
        labels = _entry(training, "suggested_labels", dict[str, Any]())
        metrics = _entry(evaluation, "metrics", dict[str, Any]())
        return cls(
            model,
            recipe=recipe if is_own else None,
            labels={str(key): str(value) for key, value in labels.items()},
            metrics={
                str(key): float(value)
                for key, value in metrics.items()
                if isinstance(value, int | float)
            },
            training_images=_entry(evaluation, "training_images", 0),
        )

    @property
    def recipe_file(self) -> Path:
        """The path of the recipe."""
        return beside(self.model, "recipe")


def find_terms_file(model: Path) -> Path | None:
    """Return the file of terms next to a model, if there is one."""
    path = model.with_name(f"{model.name}.terms")
    return path if path.is_file() else None


def save_evaluation(
    model: Path,
    digest: str,
    metrics: Mapping[str, float],
    dataset: str,
    training_images: int = 0,
    *,
    despite_findings: Sequence[str] = (),
) -> Path:
    """Write the scores of an evaluation next to the model, and return the file's path.

    `training_images` is the number of its images that the model was trained on, `despite_findings`
    the faults of the images that the test went on despite.
    """
    record = {
        "schema": EVALUATION_SCHEMA,
        "model_file": model.name,
        "model_digest": digest,
        "dataset_digest": dataset,
        "training_images": training_images,
        "despite_findings": list(despite_findings),
        "metrics": dict(metrics),
    }
    path = beside(model, "evaluation")
    write_whole(path, json.dumps(record, indent=2, sort_keys=True) + "\n")
    return path


@dataclass
class ModelDescription:
    """The description of an upload: given fields first, then sidecars, then the inputs' labels."""

    labels: dict[str, str]
    metrics: dict[str, float]
    terms: list[Term]
    card: str = ""
    recipe: dict[str, Any] | None = None
    receipt: PrivacyReceipt | None = None
    notes: list[str] = field(default_factory=list)
    """Sources of the fields that were not given, for people."""

    def add_sidecars(self, pool: PoolClient, file: Path, digest: str) -> None:
        """Add the content of the sidecar files, then the labels that all inputs of a merge share.

        Given fields take precedence.
        """
        sidecars = Sidecars.read(file, digest)
        if sidecars.recipe is not None:
            self.recipe = sidecars.recipe
            self.notes.append(f"taken from {sidecars.recipe_file}: the recipe")
        if text := _fill(self.labels, sidecars.labels):
            self.notes.append(f"taken from {beside(file, 'training')}: {text}")
        if not self.terms and (terms_file := find_terms_file(file)) is not None:
            self.terms = list(dict.fromkeys(read_terms_file(terms_file)))
            self.notes.append(f"taken from {terms_file}: {len(self.terms)} terms")
        if count := sidecars.training_images:
            self.notes.append(
                f"left out {beside(file, 'evaluation')}: the model was trained on {count} of "
                "its images, which flatters it; to send scores nevertheless, give --metric"
            )
        elif text := _fill(self.metrics, sidecars.metrics, ".6g"):
            self.notes.append(f"taken from {beside(file, 'evaluation')}: {text}")
        self._add_shared_labels(pool, file.parent)

    def add_receipt(self, path: Path, digest: str) -> None:
        """Add a receipt that 'poolctl privacy probe' wrote of the model or one of its inputs.

        Contributions have receipts, too.
        """
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; expected a privacy receipt (JSON)")
        try:
            receipt = PrivacyReceipt.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise InvalidInputError(f"{path}: {first_problem(error)}") from error
        inputs = [] if self.recipe is None else self.recipe["inputs"]
        if receipt.artifact_digest not in {digest, *(entry["digest"] for entry in inputs)}:
            raise InvalidInputError(
                f"{path}: is the receipt of a file with sha256 {receipt.artifact_digest[:12]}..., "
                f"and this one has {digest[:12]}...",
                hint="probe the file that you upload: poolctl privacy probe",
            )
        self.receipt = receipt

    def _add_shared_labels(self, pool: PoolClient, folder: Path) -> None:
        sources = RecipeSources((), pool.models)
        labels_of_inputs, unknown = [], []
        for entry in self.recipe["inputs"] if self.recipe is not None else ():
            name, digest = Path(entry["file_name"] or "").name, entry["digest"]
            if name.endswith(".contribution") or sources.round_file(digest):
                continue
            labels = Sidecars.read(folder / name, digest).labels if name else {}
            addresses = [] if labels else sources.addresses_of(digest)
            if labels or addresses:
                labels_of_inputs.append(labels or pool.version(addresses[0]).labels)
            else:
                unknown.append(name or f"sha256:{digest[:12]}...")
        if unknown:
            self.notes.append(
                f"the labels of {', '.join(unknown)} are unknown, so the merged model gets no "
                "labels from its inputs"
            )
        elif text := _fill(self.labels, shared_labels(labels_of_inputs)):
            self.notes.append(f"labels that all inputs share: {text}")

    def require_vocabulary(self, vocabulary: VocabularyResponse) -> None:
        """Refuse labels and terms outside the pool's vocabulary before anything is sent."""
        if problems := vocabulary.problems_of(self.labels):
            raise InvalidInputError("; ".join(problems))
        known = {term.code for term in vocabulary.terms}
        for term in self.terms:
            if term.code not in known:
                raise InvalidInputError(f"term {term.code}: unknown to this pool")


def _fill(values: dict[str, T], further: Mapping[str, T], form: str = "") -> str:
    """Add missing entries, and return them as text."""
    new = {key: value for key, value in further.items() if key not in values}
    values |= new
    return " ".join(f"{key}={format(value, form)}" for key, value in new.items())


def _entry(record: Mapping[str, Any], key: str, default: T) -> T:
    """Return an entry of a record, or the default if it is missing or has another type."""
    value = record.get(key)
    return value if isinstance(value, type(default)) else default


def _read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, or ``{}`` for a missing file or other content."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
