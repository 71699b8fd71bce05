"""Finding test pictures on which a model was trained: they flatter its scores."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.formats import file_digest
from aggregators.methods import recipe_path
from site_agent.datasets.gaze.records import GazeSamples, sample_marks
from site_agent.datasets.records import FaceDataset, image_marks
from site_agent.training_record import read_training_metadata, recall_learned, remember_learned

_DEEPEST = 8


@dataclass(frozen=True)
class TrainingOverlap:
    """Pictures of a test that a model, or one that it was merged from, has learned."""

    images: int
    of: int
    learned_by: tuple[str, ...]
    """Names of the model files that were trained on them."""

    @property
    def words(self) -> str:
        """Describe the overlap in a sentence without its subject."""
        how_many = "all" if self.images == self.of else f"{self.images} of the"
        return (
            f"{how_many} {self.of} images are those that {', '.join(self.learned_by)} was trained "
            "on: the scores say nothing about other faces"
        )


def training_overlap(
    model_file: Path,
    dataset: FaceDataset,
    digest: str,
    marks: tuple[str, ...] | None = None,
    lineage: Collection[str] = (),
) -> TrainingOverlap | None:
    """Compare a test with the training records next to a model.

    Of a merged model the records of its inputs are read where they lie in the same folder. None
    where no record speaks of these pictures: a model without records may have learned them, too.
    """
    test_marks = image_marks(dataset) if marks is None else marks
    learned: set[int] = set()
    names = []
    for name, record in all_records(model_file, lineage):
        data = record.get("data")
        if not isinstance(data, dict):
            continue
        trained = set(data.get("image_marks") or ())
        same = data.get("digest") == digest
        overlapping = {number for number, mark in enumerate(test_marks) if same or mark in trained}
        if overlapping:
            learned |= overlapping
            names.append(name)
    return TrainingOverlap(len(learned), len(test_marks), tuple(names)) if learned else None


def all_records(model_file: Path, lineage: Collection[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the records of training of a model and of all that it was made from, by name.

    They are those next to the files, and those that this site kept (`remember_learned`) of the
    model and of `lineage`, the digests of its inputs.
    """
    records = training_records(model_file)
    known = {str(record.get("model_digest")) for _, record in records}
    for digest in sorted({file_digest(model_file), *lineage} - known):
        if (record := recall_learned(digest)) is not None:
            records.append((str(record.get("name", digest[:12])), record))
    return records


def training_records(model_file: Path, depth: int = _DEEPEST) -> list[tuple[str, dict[str, Any]]]:
    """Return the training records of a model, or of those that it was merged from, by file name.

    Of a merged model the records of its inputs are read where they lie in the same folder, down to
    `depth` merges.
    """
    if (record := read_training_metadata(model_file)) is not None:
        return [(model_file.name, record)]
    try:
        recipe = json.loads(recipe_path(model_file).read_text(encoding="utf-8"))
        entries = {entry["digest"]: entry["file_name"] for entry in recipe["inputs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    records = []
    for digest, name in entries.items():
        path = model_file.with_name(Path(str(name)).name) if name and depth else None
        if path is not None and path.is_file() and file_digest(path) == digest:
            records += training_records(path, depth - 1)
        elif (known := recall_learned(digest)) is not None:
            records.append((str(known.get("name", digest[:12])), known))
    return records


def remember_learned_of(source: Path, digest: str) -> None:
    """Keep for a model made of another one that it has learned the pictures of that one."""
    marks, persons, digests, names = set[str](), set[str](), set[str](), list[str]()
    for name, record in all_records(source, ()):
        data, details = record.get("data"), record.get("details")
        if isinstance(data, dict) and isinstance(details, dict):
            names.append(name)
            digests.add(str(data.get("digest")))
            marks |= set(data.get("image_marks") or ())
            persons |= set(details.get("person_digests") or ())
    if names:
        data = {"digest": digests.pop() if len(digests) == 1 else "", "image_marks": sorted(marks)}
        details = {"person_digests": sorted(persons)}
        remember_learned(digest, {"name": ", ".join(names), "data": data, "details": details})


@dataclass(frozen=True)
class GazeOverlap:
    """Samples of a test that a network was trained on, and persons with others in training."""

    samples: int
    of: int
    persons: tuple[str, ...]
    learned_by: tuple[str, ...]

    @property
    def words(self) -> str:
        """Describe the overlap in a sentence."""
        names = ", ".join(self.learned_by)
        if self.samples:
            return (
                f"{self.samples} of the {self.of} samples are those that {names} was trained on: "
                "the scores say nothing about other pictures"
            )
        return (
            f"{names} was trained on other sessions of {', '.join(self.persons)}: errors for other "
            "persons are larger"
        )


def gaze_overlap(
    model_file: Path,
    samples: GazeSamples,
    digests: Mapping[str, str],
    lineage: Collection[str] = (),
) -> GazeOverlap | None:
    """Compare a test with the training records next to a network.

    `digests`: digest of all samples of each person, tested or not.
    """
    marks = sample_marks(samples)
    learned = np.zeros(len(samples), dtype=np.bool_)
    persons: set[str] = set()
    names = []
    for name, record in all_records(model_file, lineage):
        data, details = record.get("data"), record.get("details")
        if not isinstance(data, dict) or not isinstance(details, dict):
            continue
        trained = set(data.get("image_marks") or ())
        trained_on = np.array([mark in trained for mark in marks], dtype=np.bool_)
        digests_trained = set(details.get("person_digests") or ())
        known = {person for person, digest in digests.items() if digest in digests_trained}
        known &= set(samples.person.tolist())
        if trained_on.any() or known:
            learned |= trained_on
            persons |= known
            names.append(name)
    if not names:
        return None
    return GazeOverlap(int(learned.sum()), len(samples), tuple(sorted(persons)), tuple(names))
