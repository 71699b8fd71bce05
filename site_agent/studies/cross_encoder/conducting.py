"""A whole study of cross-encoders: what is not done yet is done, and then the table is written.

::

    STUDY/study.json       settings, persons with digests, versions
    STUDY/runs/KEY.json    the errors of each run, with the digest of what they depend on
    STUDY/table.md, few_shot.csv, draws.csv, few_shot.png
    STUDY/.study/          the samples for the workers, and the lock
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.datasets.gaze import GazeDataset, GazeSamples, held_out_sessions
from site_agent.datasets.gaze.both_eyes import both_eyes, require_both_eyes
from site_agent.datasets.gaze.records import person_digest
from site_agent.errors import InvalidInputError
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
from site_agent.studies.cross_encoder.one_run import RunJob, do_run
from site_agent.studies.cross_encoder.report import write_report
from site_agent.studies.cross_encoder.settings import CrossEncoderStudySettings, Run, plan_runs
from site_agent.studies.gaze.one_run import StudySamples, draw_persons, write_samples
from site_agent.studies.steps import StudyFolder

SCHEMA = "poolctl-cross-encoder-study/1"
_READING = 0.02
_ADVICE = "run the study again with fewer workers"
# More of these change nothing of the runs that are done.
_EXTENDING = ("methods", "seeds", "first_seed", "drawn", "left_out")


@dataclass(frozen=True)
class CrossEncoderOutcome:
    """What a study has left.

    Attributes
    ----------
    results : mapping of str to dict
        What `do_run` returned, by the key of the run.
    failed : mapping of str to str
        Why runs failed, by key.
    files : tuple of Path
        The table first.
    verdict : str
    """

    runs: tuple[Run, ...]
    results: Mapping[str, Mapping[str, Any]]
    failed: Mapping[str, str]
    kept: int
    files: tuple[Path, ...]
    verdict: str


def conduct_cross_encoder_study(
    folder: Path,
    dataset: GazeDataset | None,
    settings: CrossEncoderStudySettings,
    *,
    workers: int = 0,
    redo: bool = False,
    repeat: Sequence[str] = (),
    on_run: Callable[[Run, float], None] = lambda _run, _took_s: None,
    progress: Progress,
) -> CrossEncoderOutcome:
    """Do all runs of a study, and write its table and its picture.

    Parameters
    ----------
    folder : Path
        Made where absent. A study that was interrupted goes on in it.
    dataset : GazeDataset or None
        None: eyes are drawn.
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
        Nothing can be begun. Runs that fail raise nothing: `CrossEncoderOutcome.failed` has them.
    """
    place = StudyFolder(folder)
    with hold_folder(folder, place.hidden / "lock", what="study"):
        samples = _read(dataset, settings, part_of(progress, 0, _READING))
        runs = plan_runs(sorted(samples), settings)
        _require_sessions(runs, samples, settings)
        digests = _digests(runs, samples, settings)
        _describe(folder, samples, settings, repeat)
        kept_samples = place.hidden / "samples.npz"
        write_samples(samples, kept_samples)
        (folder / "runs").mkdir(exist_ok=True)
        by_key = {run.key: run for run in runs}
        facts = {key: asdict(run) for key, run in by_key.items()}
        records = JobRecords(folder / "runs", SCHEMA, digests, facts)
        kept = {} if redo else records.read_all()

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
        files, verdict = write_report(folder, runs, results, repeat)
    return CrossEncoderOutcome(runs, results, failed, len(kept), tuple(files), verdict)


def _read(
    dataset: GazeDataset | None, settings: CrossEncoderStudySettings, progress: Progress
) -> StudySamples:
    """Return the frames of all persons that have both eyes."""
    if dataset is None:
        drawn = draw_persons(settings.drawn, settings.first_seed, progress, both_eyes=True)
        return {name: both_eyes(own) for name, own in drawn.items()}
    persons = {}
    for number, name in enumerate(dataset.persons):
        progress(number / len(dataset.persons), f"reading person {name}")
        persons[name] = require_both_eyes(dataset, [name])
    return persons


def _require_sessions(
    runs: Sequence[Run], samples: StudySamples, settings: CrossEncoderStudySettings
) -> None:
    """Refuse persons who cannot be left out."""
    least = min(settings.shots)
    for name in dict.fromkeys(name for run in runs for name in run.test):
        held = held_out_sessions(samples[name], settings.test_share)
        if not held.any() or (~held).sum() < least:
            raise InvalidInputError(
                f"person {name} is left out, and has {np.unique(samples[name].session).size} "
                f"sessions with {len(held)} samples; expected at least 2 sessions, and {least} "
                "samples outside the sessions that are tested"
            )


def _digests(
    runs: Sequence[Run], samples: StudySamples, settings: CrossEncoderStudySettings
) -> dict[str, str]:
    shared = {name: each for name, each in asdict(settings).items() if name not in _EXTENDING}
    persons = {name: person_digest(own) for name, own in samples.items()}
    return {
        run.key: digest_of(
            {
                "schema": SCHEMA,
                "versions": _versions(),
                "settings": shared,
                "run": asdict(run),
                "persons": {name: persons[name] for name in (*run.train, *run.test)},
            }
        )
        for run in runs
    }


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("poolctl", "torch", "numpy")}


def _describe(
    folder: Path,
    samples: Mapping[str, GazeSamples],
    settings: CrossEncoderStudySettings,
    repeat: Sequence[str],
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
