"""A whole study of cross-encoders; `site_agent.studies.runs` has its folder and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from site_agent.datasets.gaze import GazeDataset, held_out_sessions
from site_agent.datasets.gaze.both_eyes import both_eyes, require_both_eyes
from site_agent.errors import InvalidInputError
from site_agent.runs.progress import Progress, part_of
from site_agent.studies.cross_encoder.one_run import RunJob, do_run
from site_agent.studies.cross_encoder.report import write_report
from site_agent.studies.cross_encoder.settings import CrossEncoderStudySettings, Run, plan_runs
from site_agent.studies.gaze.one_run import StudySamples, draw_persons, write_samples
from site_agent.studies.runs import Conduct, StudyResults, describe_persons, open_study

SCHEMA = "poolctl-cross-encoder-study/1"
_READING = 0.02
# More of these change nothing of the runs that are done.
_EXTENDING = ("methods", "seeds", "first_seed", "drawn", "left_out")


def conduct_cross_encoder_study(
    folder: Path, dataset: GazeDataset | None, settings: CrossEncoderStudySettings, conduct: Conduct
) -> StudyResults:
    """Do all runs of a study, and write its table and its picture.

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
        _require_sessions(tuple(runs.values()), samples, settings)
        persons = describe_persons(samples)
        study.describe(settings, {"persons": persons})
        kept_samples = study.hidden / "samples.npz"
        write_samples(samples, kept_samples)
        shared = {name: each for name, each in asdict(settings).items() if name not in _EXTENDING}
        done = study.do(
            runs,
            lambda run: {
                "settings": shared,
                "persons": {name: persons[name] for name in (*run.train, *run.test)},
            },
            do_run,
            lambda run: RunJob(run, kept_samples, settings),
            progress=part_of(conduct.progress, _READING, 1),
        )
        files, verdict = write_report(
            folder, tuple(runs.values()), done.results, list(conduct.repeat)
        )
    return replace(done, files=tuple(files), findings=(verdict,))


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
