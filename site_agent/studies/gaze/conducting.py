"""A whole gaze study; `site_agent.studies.runs` has its folder and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from site_agent.datasets.gaze import GazeDataset
from site_agent.runs.progress import part_of
from site_agent.studies.gaze import one_run
from site_agent.studies.gaze.protocol import Run, plan_runs, plan_tuning
from site_agent.studies.gaze.report import write_report, write_tuning
from site_agent.studies.gaze.settings import GazeStudySettings
from site_agent.studies.runs import Conduct, StudyResults, describe_persons, open_study

SCHEMA = "poolctl-gaze-study/1"
_READING = 0.02
_SHARED = (
    "architecture",
    "cohort",
    "learning_rate_decay",
    "noise_sd",
    "noise_unit",
    "hostile_sites",
)
"""Settings that the results of all runs depend on."""


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
    conduct: Conduct,
    *,
    tune: bool = False,
) -> StudyResults:
    """Do all runs of a study, and write its tables and pictures.

    `folder`: made where absent. A study that was interrupted goes on in it. `dataset`: none: eyes
    are drawn. `tune`: compare the candidates for tuned settings instead.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun. Runs that fail raise nothing: `StudyResults.failed` has them.
    """
    runs = {run.key: run for run in look_at_gaze_study(dataset, settings, tune=tune)}
    with open_study(folder, SCHEMA, conduct) as study:
        reading = part_of(conduct.progress, 0, _READING)
        if dataset is None:
            samples = one_run.draw_samples(settings, reading)
        else:
            samples = one_run.read_samples(dataset, settings, reading)
        kept_samples = study.hidden / "samples.npz"
        one_run.write_samples(samples, kept_samples)
        persons = describe_persons(samples)
        study.describe(settings, {"persons": persons})
        shared = {name: getattr(settings, name) for name in _SHARED}

        def depends(run: Run) -> dict[str, Any]:
            return {
                **shared,
                "rounds": one_run.rounds_of(run, settings),
                "secure": one_run.is_secure(run, settings),
                "persons": {name: persons[name] for name in (*run.train, *run.test)},
            }

        done = study.do(
            runs,
            depends,
            one_run.do_run,
            lambda run: one_run.RunJob(run, kept_samples, settings),
            progress=part_of(conduct.progress, _READING, 1),
        )
        write = write_tuning if tune else write_report
        files, findings = write(folder, tuple(runs.values()), done.results, list(conduct.repeat))
    return replace(done, files=tuple(files), findings=tuple(findings))
