"""The record of a training next to its model: ``<model file>.training.json``.

It describes the data (counts, a digest, parts of hashes; nothing of the images), settings, program
versions and duration. `poolctl upload` takes labels from it, and `evaluate` warns of test faces
that were trained on.
"""

import json
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest, write_model
from aggregators.models import StateDict
from aggregators.whole_file import made_apart, write_whole
from site_agent.errors import TrainingFailedError, writing_to
from site_agent.own_folders import config_folder
from site_agent.plain_json import write_json
from site_agent.work.processes import peak_memory_bytes

SCHEMA = "poolctl-training/1"


@dataclass(frozen=True)
class DataSummary:
    """A summary of the data on which a model was trained.

    Attributes
    ----------
    digest : str
        `site_agent.datasets.records.dataset_digest` of the whole data set.
    ignored_boxes : int
        Boxes marked to be ignored, in the file or because no window reaches them.
    parts : int
        Landmarks a face, 0 for detectors and networks.
    persons : int
        Networks: persons in the images.
    image_marks : tuple of str
        `site_agent.datasets.records.image_marks`, or `sample_marks` of eye patches and clips, by
        which a test on the same images is known.
    """

    digest: str
    images: int
    boxes: int = 0
    ignored_boxes: int = 0
    parts: int = 0
    persons: int = 0
    image_marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainingRecord:
    """All that is written to the metadata file.

    Attributes
    ----------
    kind : str
        ``"hog-svm"``, ``"ert"`` or ``"network"``.
    model_file, model_digest, model_bytes
        Name (without folder), SHA-256 and size of the model file.
    details : mapping
        Further results: window, doublings of the images, changes made to boxes.
    training_scores : mapping
        How the model does on its own training data; flatters it.
    """

    kind: str
    model_file: str
    model_digest: str
    model_bytes: int
    data: DataSummary
    settings: Mapping[str, Any]
    details: Mapping[str, Any]
    training_scores: Mapping[str, float]
    versions: Mapping[str, str]
    started_utc: str
    duration_s: float
    peak_memory_bytes: int
    warnings: tuple[str, ...] = ()
    schema: str = field(default=SCHEMA)

    @property
    def suggested_labels(self) -> dict[str, str]:
        """Labels for an upload, as text: counts that other sites choose and weigh models by."""
        labels = {"images": str(self.data.images)}
        if self.data.boxes:
            labels["boxes"] = str(self.data.boxes)
        if self.data.persons:
            labels["subjects"] = str(self.data.persons)
        if self.data.parts:
            labels["parts"] = str(self.data.parts)
        if "closed_eyes" in self.details:
            labels["closed_eyes"] = str(self.details["closed_eyes"])
        if despite := self.details.get("despite_findings"):
            labels["despite_findings"] = despite
        if self.details.get("drawn"):
            labels["population"] = "synthetic"
        if orientations := self.details.get("orientations"):
            labels["orientations"] = str(len(orientations))
        return labels

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {**asdict(self), "suggested_labels": self.suggested_labels}


@dataclass(frozen=True)
class TrainingResult:
    """A finished training.

    `left_out`: boxes that no window reaches and that were ignored. They name images, and so they
    are not in the metadata file.
    """

    model_path: Path
    metadata_path: Path
    record: TrainingRecord
    left_out: tuple[tuple[int, str], ...] = ()


def beside(model_path: Path | str, what: str) -> Path:
    """Return the path of a model's ``recipe``, ``training``, ``evaluation`` or ``split`` file."""
    path = Path(model_path)
    return path.with_name(f"{path.name}.{what}.json")


def metadata_path(model_path: Path | str) -> Path:
    """Where the metadata of a model file lies."""
    return beside(model_path, "training")


def read_training_metadata(model_path: Path | str) -> dict[str, Any] | None:
    """Read the metadata next to a model file.

    Returns
    -------
    dict or None
        None where there is none, where it is not of this program, or where it is about other
        bytes than the model file now has.
    """
    record = read_beside(model_path, "training")
    return record if record is not None and record.get("schema") == SCHEMA else None


def read_beside(
    model_path: Path | str, what: str, digest: str | None = None
) -> dict[str, Any] | None:
    """Read the ``training`` or ``evaluation`` file next to a model; None if it is of other bytes.

    `digest`: of the model's file, where it is known already.
    """
    try:
        record = json.loads(beside(model_path, what).read_text(encoding="utf-8"))
        digest = digest or file_digest(Path(model_path))
    except (OSError, ValueError):
        return None
    meant = isinstance(record, dict) and record.get("model_digest") == digest
    return record if meant else None


def _private_folder(name: str) -> Path:
    """Return a folder of records of this site's models, next to its profiles."""
    return config_folder() / name


def remember_learned(digest: str, record: Mapping[str, Any]) -> None:
    """Keep the data record of a model or contribution of this site, by the digest of its file.

    The record next to a model stays behind when the model goes to the pool and comes back, and a
    contribution to a round has none; a test on the same faces is recognised by this one. It holds
    parts of hashes, and nothing of the pictures. It is a help: where it cannot be written, the
    training is as good.
    """
    with suppress(OSError):
        folder = _private_folder("learned")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{digest}.json", record)


def recall_learned(digest: str) -> dict[str, Any] | None:
    """Return the record of a file that `remember_learned` kept."""
    try:
        record = json.loads(
            (_private_folder("learned") / f"{digest}.json").read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def remember_place(digest: str, path: Path) -> None:
    """Keep the place of a local model; results name only its file and digest.

    Paths often hold names of persons, so they stay out of files that are passed on.
    """
    with suppress(OSError):
        folder = _private_folder("places")
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{digest}.txt", f"{path.absolute()}\n")


def recall_place(digest: str) -> Path | None:
    """Return the place at which a model with this digest was used last; it may have moved."""
    try:
        text = (_private_folder("places") / f"{digest}.txt").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return Path(text.removesuffix("\n"))


@dataclass(frozen=True)
class BegunTraining:
    """A training that has begun, and the place of its file; `begin_training` makes it.

    `temporary`: where the model is written until it is complete. `faults`: those of the data that
    the training goes on despite, for the record.
    """

    output: Path
    temporary: Path
    utc: str
    began_s: float
    faults: Mapping[str, str]

    def publish_network(
        self,
        network: StateDict,
        data: DataSummary,
        settings: Mapping[str, Any],
        details: Mapping[str, Any],
        *,
        warnings: tuple[str, ...] = (),
    ) -> TrainingResult:
        """Write a network and its record."""
        facts = {"torch": metadata.version("torch"), "peak_memory_bytes": peak_memory_bytes()}
        with self.writing() as temporary:
            write_model(network, temporary)
            return self.publish("network", data, settings, details, facts, warnings=warnings)

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """Yield the temporary file, which is removed at the end; a full disk names the model."""
        try:
            with made_apart(self.output):
                yield self.temporary
        finally:
            self.temporary.unlink(missing_ok=True)

    def publish(
        self,
        kind: str,
        data: DataSummary,
        settings: Mapping[str, Any],
        details: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        warnings: tuple[str, ...] = (),
    ) -> TrainingResult:
        """Put a finished model and its record in their places, the model last.

        `facts`: ``peak_memory_bytes``, the version of ``dlib`` or ``torch``, and perhaps
        ``training_scores``.

        Raises
        ------
        TrainingFailedError
            The output cannot be written.
        """
        libraries = {name: facts[name] for name in ("dlib", "torch") if name in facts}
        digest = file_digest(self.temporary)
        record = TrainingRecord(
            kind=kind,
            model_file=self.output.name,
            model_digest=digest,
            model_bytes=self.temporary.stat().st_size,
            data=data,
            settings=dict(settings),
            details={**details, **self.faults},
            training_scores=facts.get("training_scores", {}),
            versions=program_versions(**libraries),
            started_utc=self.utc,
            duration_s=round(time.monotonic() - self.began_s, 3),
            peak_memory_bytes=facts["peak_memory_bytes"],
            warnings=warnings,
        )
        sidecar, plain = metadata_path(self.output), record.to_dict()
        with writing_to(self.output, TrainingFailedError):
            write_json(sidecar, plain)
            self.temporary.replace(self.output)
        learned = {key: plain["data"][key] for key in ("digest", "image_marks")}
        persons = {"person_digests": details.get("person_digests") or []}
        remember_learned(digest, {"name": self.output.name, "data": learned, "details": persons})
        return TrainingResult(self.output, sidecar, record)


def begin_training(output: Path, faults: Mapping[str, str]) -> BegunTraining:
    """Return a training that begins now; refuse an output that cannot be written."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return BegunTraining(output, temporary_beside(output), now, time.monotonic(), faults)


def temporary_beside(output: Path) -> Path:
    """Name an unfinished model file in the folder of the finished one."""
    folder = output.parent
    if output.is_dir():
        raise TrainingFailedError(f"{output} is a folder; name the model file to write")
    if not folder.is_dir():
        raise TrainingFailedError(f"the folder {folder} does not exist; create it first")
    if not os.access(folder, os.W_OK):
        raise TrainingFailedError(f"the folder {folder} cannot be written to")
    return folder / f".{output.name}.{os.getpid()}.partial"


def program_versions(**libraries: str) -> dict[str, str]:
    """Return the versions of the programs and libraries of a training."""
    return {
        "poolctl": installed_version("poolctl"),
        **libraries,
        "numpy": installed_version("numpy"),
        "python": platform.python_version(),
    }


def installed_version(distribution: str) -> str:
    """Return the version of an installed distribution, or ``unknown``."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "unknown"
