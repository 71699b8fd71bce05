"""Finding test pictures on which a model was trained: they flatter its scores."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from aggregators.methods import recipe_path
from site_agent.datasets.gaze.records import GazeSamples, sample_marks
from site_agent.training_record import (
    beside,
    read_training_metadata,
    recall_learned,
    remember_learned,
)

_DEEPEST = 8


@dataclass(frozen=True)
class TrainingOverlap:
    """Pictures of a test that a model, or one that it was merged from, has learned."""

    images: int
    of: int
    learned_by: tuple[str, ...]
    """Names of the model files that were trained on them, or on others of `persons`."""
    persons: tuple[str, ...] = ()
    """Persons in the training of a network, perhaps in other pictures."""

    @property
    def words(self) -> str:
        """Describe the overlap in a sentence."""
        names = ", ".join(self.learned_by)
        if not self.images:
            return (
                f"{names} was trained on other sessions of {', '.join(self.persons)}: errors for "
                "other persons are larger"
            )
        how_many = "all" if self.images == self.of else f"{self.images} of the"
        return (
            f"{how_many} {self.of} images are those that {names} was trained on: the scores say "
            "nothing about others"
        )


def training_overlap(
    model_file: Path,
    marks: Sequence[str],
    digest: str,
    lineage: Collection[str] = (),
    person_digests: Mapping[str, str] | None = None,
) -> TrainingOverlap | None:
    """Compare a test with the training records next to a model.

    Of a merged model the records of its inputs are read where they lie in the same folder. None
    where no record speaks of these pictures: a model without records may have learned them, too.

    `marks`: Of each picture. `digest`: Of the data set; empty where it is tested in part.
    `person_digests`: Digest of all samples of each person, tested or not, of networks.
    """
    learned: set[int] = set()
    persons: set[str] = set()
    names = []
    for name, record in all_records(model_file, lineage):
        data, details = record.get("data"), record.get("details")
        if not isinstance(data, dict):
            continue
        trained = set(data.get("image_marks") or ())
        same = bool(digest) and data.get("digest") == digest
        overlapping = {number for number, mark in enumerate(marks) if same or mark in trained}
        trained_on = set(details.get("person_digests") or ()) if isinstance(details, dict) else ()
        known = {name for name, theirs in (person_digests or {}).items() if theirs in trained_on}
        if overlapping or known:
            learned |= overlapping
            persons |= known
            names.append(name)
    if not names:
        return None
    learned_by = tuple(dict.fromkeys(names))
    return TrainingOverlap(len(learned), len(marks), learned_by, tuple(sorted(persons)))


def gaze_overlap(
    model_file: Path,
    samples: GazeSamples,
    digests: Mapping[str, str],
    lineage: Collection[str] = (),
) -> TrainingOverlap | None:
    """Compare the samples of a test with the training records next to a network.

    `digests`: Digest of all samples of each person, tested or not.
    """
    tested = {name: digests[name] for name in set(samples.person.tolist()) & set(digests)}
    return training_overlap(model_file, sample_marks(samples.patches), "", lineage, tested)


def all_records(model_file: Path, lineage: Collection[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the records of training of a model and of all that it was made from, by name.

    They are those next to the files, and those that this site kept (`remember_learned`) of the
    model and of `lineage`, the digests of its inputs.
    """
    records, own_digest = training_records(model_file), file_digest(model_file)
    known = {str(record.get("model_digest")) for _, record in records}
    first_parts = _first_parts(model_file, own_digest)
    for digest in sorted({own_digest, *lineage, *first_parts} - known):
        if (record := recall_learned(digest)) is not None:
            records.append((str(record.get("name", digest[:12])), record))
    return records


def _first_parts(network: Path, digest: str) -> list[str]:
    """Return the first client part, by which a site keeps its record of a split training."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        statement = json.loads(beside(network, "split").read_text(encoding="utf-8"))
        if statement["network"] == digest:
            return [str(statement["first_parts"]["client"])]
    return []


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


def remember_learned_of(source: Path, digest: str, lineage: Collection[str]) -> None:
    """Keep for a model made of another one that it has learned the pictures of that one.

    `lineage`: Digests of all that `source` was made from.
    """
    marks, persons, digests, names = set[str](), set[str](), set[str](), list[str]()
    for name, record in all_records(source, lineage):
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
