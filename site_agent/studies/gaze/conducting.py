"""A whole gaze study: what is not done yet is done, and then the tables are written.

::

    STUDY/study.json       settings, persons with digests, versions
    STUDY/runs/KEY.json    the result of each run, with the digest of what it depends on
    STUDY/*.csv, *.md, *.png
    STUDY/.study/          the samples for the workers, and the lock
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from site_agent.datasets.gaze import GazeDataset
from site_agent.datasets.gaze.records import person_digest
from site_agent.errors import InvalidInputError
from site_agent.runs.jobs import (
    Job,
    JobOutcome,
    JobRecords,
    Schedule,
    do_jobs,
    hold_folder,
    write_json,
)
from site_agent.runs.progress import Progress, part_of
from site_agent.runs.workers import Task, Workers, processor_count
from site_agent.studies.gaze.one_run import (
    RunJob,
    StudySamples,
    do_run,
    draw_samples,
    is_secure,
    read_samples,
    rounds_of,
    write_samples,
)
from site_agent.studies.gaze.protocol import Run, plan_runs, plan_tuning
from site_agent.studies.gaze.report import write_report, write_tuning
from site_agent.studies.gaze.settings import GazeStudySettings
from site_agent.studies.steps import StudyFolder

SCHEMA = "poolctl-gaze-study/1"
_READING = 0.02
_ADVICE = "run the study again with fewer workers"


@dataclass(frozen=True)
class GazeOutcome:
    """What a study has left.

    Attributes
    ----------
    results : mapping of str to dict
        What `do_run` returned, by the key of the run.
    failed : mapping of str to str
        Why runs failed, by key.
    files : tuple of Path
        Tables and pictures.
    findings : tuple of str
    """

    runs: tuple[Run, ...]
    results: Mapping[str, Mapping[str, Any]]
    failed: Mapping[str, str]
    kept: int
    files: tuple[Path, ...]
    findings: tuple[str, ...]


def look_at_gaze_study(
    dataset: GazeDataset | None, settings: GazeStudySettings, *, tune: bool = False
) -> tuple[Run, ...]:
    """Return the runs of a study; nothing is written."""
    if dataset is not None:
        persons: Sequence[str] = dataset.persons
    else:
        persons = [f"p{number:02d}" for number in range(settings.drawn.drawn_persons)]
    return plan_tuning(persons, settings) if tune else plan_runs(persons, settings)


def conduct_gaze_study(
    folder: Path,
    dataset: GazeDataset | None,
    settings: GazeStudySettings,
    *,
    tune: bool = False,
    workers: int = 0,
    redo: bool = False,
    repeat: Sequence[str] = (),
    on_run: Callable[[Run, float], None] = lambda _run, _took_s: None,
    progress: Progress,
) -> GazeOutcome:
    """Do all runs of a study, and write its tables and pictures.

    Parameters
    ----------
    folder : Path
        Made where absent. A study that was interrupted goes on in it.
    dataset : GazeDataset or None
        None: eyes are drawn.
    tune : bool
        Compare the candidates for tuned settings instead.
    workers : int
        Runs at once; 0: as many as processors.
    redo : bool
        Repeat finished runs, too.
    repeat : sequence of str
        The words of the command, for whoever reads the folder.
    on_run : callable
        Called with each finished run and its duration in seconds.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun. Runs that fail raise nothing: `GazeOutcome.failed` has them.
    """
    place = StudyFolder(folder)
    runs = look_at_gaze_study(dataset, settings, tune=tune)
    with hold_folder(folder, place.hidden / "lock", what="study"):
        reading = part_of(progress, 0, _READING)
        if dataset is None:
            samples = draw_samples(settings, reading)
        else:
            samples = read_samples(dataset, settings, reading)
        digests = _digests(runs, samples, settings)
        (folder / "runs").mkdir(exist_ok=True)
        kept_samples = place.hidden / "samples.npz"
        write_samples(samples, kept_samples)
        _describe(folder, samples, settings, repeat)
        facts = {run.key: asdict(run) for run in runs}
        records = JobRecords(folder / "runs", SCHEMA, digests, facts)
        kept = {} if redo else records.read_all()
        by_key = {run.key: run for run in runs}

        def notify(outcome: JobOutcome) -> None:
            if outcome.state == "done":
                on_run(by_key[outcome.key], outcome.took_s)

        with Workers(workers or processor_count(), advice=_ADVICE) as pool:
            outcomes = do_jobs(
                Schedule([Job(run.key) for run in runs], frozenset(kept)),
                pool,
                lambda job: Task(job.key, do_run, RunJob(by_key[job.key], kept_samples, settings)),
                kept=kept,
                keep=records.keep,
                on_outcome=notify,
                noun="runs",
                progress=part_of(progress, _READING, 1),
            )
        failed = {key: each.reason for key, each in outcomes.items() if each.state == "failed"}
        results = {key: each.result for key, each in outcomes.items() if key not in failed}
        write = write_tuning if tune else write_report
        files, findings = write(folder, runs, results, repeat)
    return GazeOutcome(runs, results, failed, len(kept), tuple(files), tuple(findings))


def _digests(
    runs: Sequence[Run], samples: StudySamples, settings: GazeStudySettings
) -> dict[str, str]:
    names = (
        "architecture",
        "cohort",
        "learning_rate_decay",
        "noise_sd",
        "noise_unit",
        "hostile_sites",
    )
    shared = {"schema": SCHEMA, "versions": _versions()}
    shared |= {name: getattr(settings, name) for name in names}
    persons = {name: person_digest(own) for name, own in samples.items()}
    found = {}
    for run in runs:
        own = {**shared, "rounds": rounds_of(run, settings)}
        if is_secure(run, settings):
            own["secure"] = True
        found[run.key] = run.digest(persons, own)
    return found


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("poolctl", "torch", "numpy")}


def _describe(
    folder: Path, samples: StudySamples, settings: GazeStudySettings, repeat: Sequence[str]
) -> None:
    """Write ``study.json``; refuse a folder that holds a study of another kind."""
    file = folder / "study.json"
    if file.exists() and SCHEMA not in file.read_text(encoding="utf-8", errors="replace"):
        raise InvalidInputError(f"{folder} holds another study; choose another folder with -o")
    content = {
        "schema": SCHEMA,
        "settings": asdict(settings),
        "persons": {
            name: {"samples": len(own), "digest": person_digest(own)}
            for name, own in samples.items()
        },
        "versions": {**_versions(), "python": platform.python_version()},
        "repeat": list(repeat),
    }
    write_json(file, content)
