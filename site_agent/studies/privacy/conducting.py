"""A whole privacy study: seeds that are not done yet are done, and then the tables are written.

::

    STUDY/study.json           settings, persons, digest, versions
    STUDY/seeds/SEED.json      the scores of a seed, with the digest of what they depend on
    STUDY/seeds/SEED.npz       its reconstructed pictures
    STUDY/*.csv, *.md, *.png
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.gaze import GazeDataset
from site_agent.errors import InvalidInputError, TrainingFailedError
from site_agent.runs.jobs import (
    Job,
    JobOutcome,
    JobRecords,
    Schedule,
    digest_of,
    do_jobs,
    hold_folder,
    write_json,
)
from site_agent.runs.progress import Progress, part_of
from site_agent.runs.workers import Task, Workers, processor_count
from site_agent.studies.privacy.persons import (
    PrivacySettings,
    StudyPersons,
    describe_persons,
    draw_persons,
    read_persons,
)
from site_agent.studies.privacy.report import write_report
from site_agent.studies.privacy.seeds import run_seed
from site_agent.studies.steps import StudyFolder

SCHEMA = "poolctl-privacy-study/1"
_READING = 0.1


@dataclass(frozen=True)
class PrivacyOutcome:
    """What a study has left.

    Attributes
    ----------
    results : mapping of int to dict
        Scores by seed; see `run_seed`.
    kept : int
        Seeds that an earlier run had done.
    files : tuple of Path
        Tables and pictures.
    """

    results: Mapping[int, Mapping[str, Any]]
    kept: int
    files: tuple[Path, ...]


def conduct_privacy_study(
    folder: Path,
    dataset: GazeDataset | None,
    settings: PrivacySettings,
    *,
    repeat: Sequence[str],
    on_seed: Callable[[int, float], None],
    progress: Progress,
) -> PrivacyOutcome:
    """Attack all leaks with every seed, and write the tables and the pictures.

    Parameters
    ----------
    folder : Path
        Made where absent. A run that was interrupted goes on in it.
    dataset : GazeDataset or None
        None draws the persons.
    on_seed : callable
        Gets each seed that is done, and the seconds it took.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun.
    """
    with hold_folder(folder, StudyFolder(folder).hidden / "lock", what="study"):
        reading = part_of(progress, 0, _READING)
        if dataset is None:
            everyone = draw_persons(settings, reading)
        else:
            everyone = read_persons(dataset, settings, reading)
        digest = _describe(folder, everyone, settings, repeat)
        place = folder / "seeds"
        place.mkdir(exist_ok=True)
        seeds = [str(seed) for seed in range(settings.seeds)]
        records = JobRecords(place, SCHEMA, dict.fromkeys(seeds, digest))
        kept = records.read_all()

        def notify(outcome: JobOutcome) -> None:
            if outcome.state == "failed":
                raise TrainingFailedError(f"seed {outcome.key}: {outcome.reason}")
            on_seed(int(outcome.key), outcome.took_s)

        with Workers(processor_count(), advice="take fewer persons") as pool:
            outcomes = do_jobs(
                Schedule([Job(key, title=f"seed {key}") for key in seeds], frozenset(kept)),
                pool,
                lambda job: Task(job.key, attack_seed, SeedJob(everyone, settings, job.key, place)),
                kept=kept,
                keep=records.keep,
                on_outcome=notify,
                noun="seeds",
                progress=part_of(progress, _READING, 1),
            )
        results = {int(key): outcome.result for key, outcome in outcomes.items()}
        with np.load(place / "0.npz") as pictures:
            files = write_report(folder, everyone, results, dict(pictures), repeat)
    return PrivacyOutcome(results, len(kept), tuple(files))


@dataclass(frozen=True, eq=False)
class SeedJob:
    """A seed with all that it takes."""

    everyone: StudyPersons
    settings: PrivacySettings
    seed: str
    folder: Path


def attack_seed(job: SeedJob, progress: Progress) -> dict[str, Any]:
    """Write the pictures of a seed beside its results, and return its scores."""
    made = run_seed(job.everyone, job.settings, int(job.seed), progress)
    _write_pictures(job.folder / f"{job.seed}.npz", made.pictures)
    return made.scores


def _write_pictures(path: Path, pictures: Mapping[str, NDArray[np.uint8]]) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, **pictures)
    partial.replace(path)


def _describe(
    folder: Path, everyone: StudyPersons, settings: PrivacySettings, repeat: Sequence[str]
) -> str:
    """Write ``study.json``, and return the digest of what the scores depend on."""
    file = folder / "study.json"
    if file.exists() and SCHEMA not in file.read_text(encoding="utf-8", errors="replace"):
        raise InvalidInputError(f"{folder} holds another study; choose another folder with -o")
    versions = {name: metadata.version(name) for name in ("poolctl", "torch", "numpy", "scipy")}
    content: dict[str, Any] = {
        "schema": SCHEMA,
        **describe_persons(everyone, settings),
        "versions": versions,
    }
    # More seeds change nothing of those that are done.
    shared = {**content, "settings": {**asdict(settings), "seeds": 0}}
    write_json(file, {**content, "repeat": list(repeat)})
    return digest_of(shared)
