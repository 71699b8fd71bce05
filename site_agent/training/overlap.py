"""Whether a model is scored on the pictures that it was trained on, which flatters it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from aggregators.formats import file_digest
from aggregators.methods import recipe_path
from site_agent.datasets import FaceDataset, image_marks
from site_agent.training.metadata import read_training_metadata

_DEEPEST = 8


@dataclass(frozen=True)
class TrainingOverlap:
    """Pictures of a test that a model, or one that it was merged from, has learned.

    Attributes
    ----------
    learned_by : tuple of str
        Names of the model files that were trained on them.
    """

    images: int
    of: int
    learned_by: tuple[str, ...]

    @property
    def words(self) -> str:
        """Say it in a sentence without its subject."""
        how_many = "all" if self.images == self.of else f"{self.images} of the"
        return (
            f"{how_many} {self.of} images are those that {', '.join(self.learned_by)} was trained "
            "on: the scores say nothing about other faces"
        )


def training_overlap(
    model_file: Path, dataset: FaceDataset, digest: str, marks: tuple[str, ...] | None = None
) -> TrainingOverlap | None:
    """Compare a test with what the records beside a model say of its training.

    Of a merged model the records of its inputs are read where they lie in the same folder. None
    where no record speaks of these pictures: a model without records may have learned them, too.
    """
    own = image_marks(dataset) if marks is None else marks
    learned: set[int] = set()
    names = []
    for name, record in _records(model_file, _DEEPEST):
        data = record.get("data")
        if not isinstance(data, dict):
            continue
        trained = set(data.get("image_marks") or ())
        same = data.get("digest") == digest
        found = {number for number, mark in enumerate(own) if same or mark in trained}
        if found:
            learned |= found
            names.append(name)
    return TrainingOverlap(len(learned), len(own), tuple(names)) if learned else None


def _records(model_file: Path, depth: int) -> list[tuple[str, dict[str, object]]]:
    """Return the training records of a model, or of those that it was merged from, by file name."""
    if (record := read_training_metadata(model_file)) is not None:
        return [(model_file.name, record)]
    try:
        recipe = json.loads(recipe_path(model_file).read_text(encoding="utf-8"))
        entries = {entry["digest"]: entry["file_name"] for entry in recipe["inputs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return []
    found = []
    for digest, name in entries.items():
        path = model_file.with_name(Path(str(name)).name) if name and depth else None
        if path is not None and path.is_file() and file_digest(path) == digest:
            found += _records(path, depth - 1)
    return found
