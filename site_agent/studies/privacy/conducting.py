"""A whole privacy study: each probe of each way of sharing with each seed, and then the tables.

The jobs run on the engine of resumable work (`site_agent.runs.jobs`): those that an earlier run has
left are kept. A worker holds the rounds of a seed once for all jobs that it takes of it.

::

    STUDY/study.json                    settings, persons, digest, versions
    STUDY/probes/SEED.WAY.PROBE.json    the scores, with the digest of what they depend on
    STUDY/probes/SEED.WAY.npz           reconstructed pictures
    STUDY/*.csv, *.md, *.png
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.whole_file import whole_file
from site_agent.attacks import LEAKS
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
from site_agent.studies.privacy.probes import PROBES, SUM, Federation
from site_agent.studies.privacy.report import write_report
from site_agent.studies.steps import StudyFolder

SCHEMA = "poolctl-privacy-study/2"
_READING = 0.1


@dataclass(frozen=True)
class PrivacyOutcome:
    """What a study has left.

    Attributes
    ----------
    results : mapping of int to dict
        Scores by seed: under ``leaks`` by way of sharing and probe, under ``sweep`` by number of
        sites in a sum, and ``controls``.
    kept, probes : int
        Probes that an earlier run had done, and all.
    files : tuple of Path
        Tables and pictures.
    """

    results: Mapping[int, Mapping[str, Any]]
    kept: int
    probes: int
    files: tuple[Path, ...]


def conduct_privacy_study(
    folder: Path,
    dataset: GazeDataset | None,
    settings: PrivacySettings,
    *,
    repeat: Sequence[str],
    on_probe: Callable[[str, float], None],
    progress: Progress,
) -> PrivacyOutcome:
    """Attack all leaks with every seed, and write the tables and the pictures.

    Parameters
    ----------
    folder : Path
        Made where absent. A run that was interrupted goes on in it.
    dataset : GazeDataset or None
        None draws the persons.
    on_probe : callable
        Gets the name of each probe that is done, and the seconds it took.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun.
    """
    with (
        hold_folder(folder, StudyFolder(folder).hidden / "lock", what="study"),
        tempfile.TemporaryDirectory(prefix="poolctl-study-") as scratch,
    ):
        reading = part_of(progress, 0, _READING)
        if dataset is None:
            everyone = draw_persons(settings, reading)
        else:
            everyone = read_persons(dataset, settings, reading)
        digest = _describe(folder, everyone, settings, repeat)
        given = Path(scratch) / "persons"
        given.write_bytes(pickle.dumps(everyone))
        place = folder / "probes"
        place.mkdir(exist_ok=True)
        attacks = {
            f"{seed}.{way}.{probe}": Attack(probe, way, seed, given, settings, place)
            for seed in range(settings.seeds)
            for way, probe in _list_probes(settings)
        }
        records = JobRecords(place, SCHEMA, dict.fromkeys(attacks, digest))
        kept = records.read_all()

        def notify(outcome: JobOutcome) -> None:
            if outcome.state == "failed":
                raise TrainingFailedError(f"{outcome.key}: {outcome.reason}")
            on_probe(outcome.key, outcome.took_s)

        with Workers(processor_count(), advice="take fewer persons") as pool:
            outcomes = do_jobs(
                Schedule([Job(key) for key in attacks], frozenset(kept)),
                pool,
                lambda job: Task(job.key, run_attack, attacks[job.key]),
                kept=kept,
                keep=records.keep,
                on_outcome=notify,
                noun="probes",
                progress=part_of(progress, _READING, 1),
            )
        results: dict[int, dict[str, Any]] = {}
        for key, attack in attacks.items():
            own = results.setdefault(attack.seed, {"leaks": {}, "sweep": {}, "controls": {}})
            if attack.way in LEAKS:
                found = own["leaks"].setdefault(attack.way, {})
            elif attack.way.startswith(SUM):
                found = own["sweep"].setdefault(attack.way.removeprefix(SUM), {})
            else:
                found = own["controls"]
            found.update(outcomes[key].result)
        pictures: dict[str, NDArray[np.uint8]] = {}
        for way in LEAKS:
            with np.load(place / f"0.{way}.npz") as made:
                pictures[way] = made["pictures"]
        files = write_report(folder, everyone, results, pictures, repeat)
    return PrivacyOutcome(results, len(kept), len(attacks), tuple(files))


def _list_probes(settings: PrivacySettings) -> Iterator[tuple[str, str]]:
    """Yield each way of sharing with each probe that attacks it."""
    for way in LEAKS:
        for probe in ("updates", "samples", "persons", "attributes", "dualview"):
            yield way, probe
    for count in settings.sweep:
        yield f"{SUM}{count}", "updates"
        yield f"{SUM}{count}", "samples"
    yield "controls", "controls"


@dataclass(frozen=True)
class Attack:
    """One probe of one way of sharing with one seed; `persons` is the file of the persons."""

    probe: str
    way: str
    seed: int
    persons: Path
    settings: PrivacySettings
    folder: Path


def run_attack(attack: Attack, progress: Progress) -> dict[str, Any]:
    """Write the pictures of an attack, if it makes any, beside its results; return its scores."""
    progress(0.0, "holding rounds, and attacking")
    held = _federation(attack.persons, attack.settings, attack.seed)
    found = dict(PROBES[attack.probe](held, attack.way))
    if "pictures" in found:
        with whole_file(attack.folder / f"{attack.seed}.{attack.way}.npz") as file:
            np.savez_compressed(file, pictures=found.pop("pictures"))
    return found


@lru_cache(maxsize=1)
def _federation(persons: Path, settings: PrivacySettings, seed: int) -> Federation:
    """Return the rounds of a seed; the jobs of a worker that come one after another share them."""
    return Federation(pickle.loads(persons.read_bytes()), settings, seed)


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
