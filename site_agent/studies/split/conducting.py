"""A whole study of split training; `site_agent.studies.runs` has its folder and its runs.

``STUDY/sheets/*.png`` show eyes, what the attackers made of them, and the mean eye.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from site_agent.datasets.gaze import GazeDataset
from site_agent.runs.progress import Progress, part_of
from site_agent.studies.gaze.one_run import (
    StudySamples,
    draw_persons,
    spread_over_sessions,
    write_samples,
)
from site_agent.studies.runs import Conduct, StudyResults, describe_persons, open_study
from site_agent.studies.split.one_run import SplitJob, do_run
from site_agent.studies.split.report import write_report
from site_agent.studies.split.settings import INVERSION, SplitRun, SplitStudySettings, plan_runs

SCHEMA = "poolctl-split-study/2"
_READING = 0.05
# More of these change nothing of the runs that are done.
_EXTENDING = ("methods", "seeds", "first_seed", "folds", "drawn")


def conduct_split_study(
    folder: Path, dataset: GazeDataset | None, settings: SplitStudySettings, conduct: Conduct
) -> StudyResults:
    """Do all runs that are missing, and write the tables.

    Parameters
    ----------
    folder : Path
        Made where absent. A study that was interrupted goes on in it.
    dataset : GazeDataset or None
        None: eyes are drawn.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun. Runs that fail raise nothing: `StudyResults.failed` has them.
    """
    with open_study(folder, SCHEMA, conduct) as study:
        samples = _read(dataset, settings, part_of(conduct.progress, 0, _READING))
        runs = {run.key: run for run in plan_runs(sorted(samples), settings)}
        persons = describe_persons(samples)
        study.describe(settings, {"persons": persons})
        given, sheets = study.hidden / "samples.npz", folder / "sheets"
        write_samples(samples, given)
        sheets.mkdir(exist_ok=True)
        shared = {name: each for name, each in asdict(settings).items() if name not in _EXTENDING}

        def depends(run: SplitRun) -> Mapping[str, Any]:
            unused = {} if run.method == INVERSION else {"levels": (), "passes": 0}
            own = {name: persons[name] for name in (*run.train, *run.test)}
            return {"settings": {**shared, **unused}, "persons": own}

        done = study.do(
            runs,
            depends,
            do_run,
            lambda run: SplitJob(run, given, settings, sheets),
            progress=part_of(conduct.progress, _READING, 1),
        )
        files, findings = write_report(folder, [*runs.values()], done.results, conduct.repeat)
    return replace(done, files=(*files, *sorted(sheets.glob("*.png"))), findings=findings)


def _read(
    dataset: GazeDataset | None, settings: SplitStudySettings, progress: Progress
) -> StudySamples:
    """Return the samples of each person, thinned out."""
    if dataset is None:
        people = draw_persons(settings.drawn, settings.first_seed, progress)
    else:
        people = {}
        for number, name in enumerate(dataset.persons):
            progress(number / len(dataset.persons), f"reading person {name}")
            people[name] = dataset.read_person(name)
    return {name: spread_over_sessions(own, settings.images) for name, own in people.items()}
