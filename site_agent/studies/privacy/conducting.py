"""A whole privacy study: each probe of each way of sharing with each seed, and then the tables.

Its folder and its runs, the probes, are those of `site_agent.studies.runs`; ``runs/SEED.WAY.npz``
are reconstructed pictures. A worker holds the rounds of a seed once for all probes of it.
"""

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregators.whole_file import whole_file
from site_agent.attacks.leaks import LEAKS
from site_agent.datasets.gaze.records import GazeDataset
from site_agent.studies.privacy.persons import (
    PrivacySettings,
    describe_persons,
    draw_persons,
    read_persons,
)
from site_agent.studies.privacy.probes import PROBES, SUM, Federation
from site_agent.studies.privacy.report import write_report
from site_agent.studies.runs import Conduct, StudyResults, open_study
from site_agent.work import Progress, part_of

SCHEMA = "poolctl-privacy-study/3"
_READING = 0.1


@dataclass(frozen=True)
class Attack:
    """One probe of one way of sharing with one seed."""

    probe: str
    way: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.seed}.{self.way}.{self.probe}"


@dataclass(frozen=True)
class AttackJob:
    """An attack for a worker; `persons` is the file of the persons, `folder` that of the runs."""

    attack: Attack
    persons: Path
    settings: PrivacySettings
    folder: Path


def conduct_privacy_study(
    folder: Path, dataset: GazeDataset | None, settings: PrivacySettings, conduct: Conduct
) -> StudyResults:
    """Attack all leaks with every seed, and write the tables and the pictures.

    `folder`: Made where absent. A study that was interrupted goes on in it. `dataset`: None draws
    the persons.

    Raises `InvalidInputError`, `BusyError`, `AnnotationFileError`: nothing can be begun.
    `TrainingFailedError`: a probe failed.
    """
    with open_study(folder, SCHEMA, conduct) as study:
        reading = part_of(conduct.progress, 0, _READING)
        if dataset is None:
            everyone = draw_persons(settings, reading)
        else:
            everyone = read_persons(dataset, settings, reading)
        persons = describe_persons(everyone)
        study.describe(settings, persons)
        persons_folder, place = study.hidden / "persons", folder / "runs"
        persons_folder.write_bytes(pickle.dumps(everyone))
        attacks = {
            attack.key: attack
            for seed in range(settings.seeds)
            for way, probe in _list_probes(settings)
            for attack in [Attack(probe, way, seed)]
        }
        # More seeds change nothing of those that are done.
        shared = {**persons, "settings": {**asdict(settings), "seeds": 0}}
        outcome = study.do(
            attacks,
            lambda _attack: shared,
            run_attack,
            lambda attack: AttackJob(attack, persons_folder, settings, place),
            progress=part_of(conduct.progress, _READING, 1),
        )
        outcome.require_complete()
        pictures: dict[str, NDArray[np.uint8]] = {}
        for way in LEAKS:
            with np.load(place / f"0.{way}.npz") as made:
                pictures[way] = made["pictures"]
        results = results_by_seed(attacks, outcome.results)
        files = write_report(folder, everyone, results, pictures, list(conduct.repeat))
    return replace(outcome, files=tuple(files))


def results_by_seed(
    attacks: Mapping[str, Attack], run_results: Mapping[str, Mapping[str, Any]]
) -> dict[int, dict[str, Any]]:
    """Return the scores by seed.

    Under ``leaks`` by way of sharing and probe, under ``sweep`` by number of sites in a sum, and
    ``controls``.
    """
    results: dict[int, dict[str, Any]] = {}
    for key, attack in attacks.items():
        of_seed = results.setdefault(attack.seed, {"leaks": {}, "sweep": {}, "controls": {}})
        if attack.way in LEAKS:
            scores = of_seed["leaks"].setdefault(attack.way, {})
        elif attack.way.startswith(SUM):
            scores = of_seed["sweep"].setdefault(attack.way.removeprefix(SUM), {})
        else:
            scores = of_seed["controls"]
        scores.update(run_results[key])
    return results


def _list_probes(settings: PrivacySettings) -> Iterator[tuple[str, str]]:
    """Yield each way of sharing with each probe that attacks it."""
    for way in LEAKS:
        for probe in ("updates", "samples", "persons", "attributes", "dualview"):
            yield way, probe
    for count in settings.sweep:
        yield f"{SUM}{count}", "updates"
        yield f"{SUM}{count}", "samples"
    yield "controls", "controls"


def run_attack(job: AttackJob, progress: Progress) -> dict[str, Any]:
    """Write the pictures of an attack, if it makes any, next to its results; return its scores."""
    progress(0.0, "holding rounds, and attacking")
    attack = job.attack
    held = _federation(job.persons, job.settings, attack.seed)
    scores = dict(PROBES[attack.probe](held, attack.way))
    if "pictures" in scores:
        with whole_file(job.folder / f"{attack.seed}.{attack.way}.npz") as file:
            np.savez_compressed(file, pictures=scores.pop("pictures"))
    return scores


@lru_cache(maxsize=1)
def _federation(persons: Path, settings: PrivacySettings, seed: int) -> Federation:
    """Return the rounds of a seed; the jobs of a worker that come one after another share them."""
    return Federation(pickle.loads(persons.read_bytes()), settings, seed)
