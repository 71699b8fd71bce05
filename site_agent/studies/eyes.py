"""Studies of networks on the eyes of persons: each is a `StudyKind`, and all are held alike.

The samples of all persons are read or drawn once, and kept in a file for the workers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from aggregators.whole_file import whole_file
from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import GazeDataset, GazeSamples, join_samples
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.studies.protocol_file import StepJob
from site_agent.studies.runs import Conduct, StudyResults, describe_persons, open_study
from site_agent.work import Progress, part_of


class DrawnSettings(Settings, error=InvalidInputError):
    """The drawn persons, where no data are given."""

    drawn_persons: int = 15
    """Number of drawn persons."""
    frames: int = 1000
    """Mean over the persons."""
    amount: float = 20.0
    """Ratio of the largest to the smallest amount of data of a person."""


StudySamples = Mapping[str, GazeSamples]
"""All samples of a study, by person."""
_READING = 0.03
_FILE = "samples.npz"


@dataclass(frozen=True)
class StudyJob:
    """A run with all that it takes: for a worker.

    `samples` is the file of `write_samples`, `folder` that of the study.
    """

    run: Any
    samples: Path
    settings: Any
    folder: Path

    def read_samples(self) -> StudySamples:
        return _load_once(self.samples)


@dataclass(frozen=True)
class StudyKind:
    """A kind of study; its settings have `drawn` and `first_seed`."""

    name: str
    """Of its command."""
    plan: Callable[[Sequence[str], Any], Sequence[Any]]
    """Takes the persons and the settings; returns the runs, which have `key`, `train`, `test`."""
    prepare: Callable[[Any, GazeSamples], GazeSamples]
    """Takes the settings and the samples of a person; returns those that are used."""
    depends: Callable[[Any, Any], Mapping[str, Any]]
    """Takes a run and the settings; returns further facts on which the result depends."""
    do: Callable[[StudyJob, Progress], dict[str, Any]]
    """The work of a worker."""
    report: Callable[
        [Path, Sequence[Any], Mapping[str, Any], Sequence[str]], tuple[list[Path], list[str]]
    ]
    """Takes the folder, the runs, the results and the words that repeat the study; writes the
    tables, and returns their files and the findings, the verdict first."""
    columns: tuple[str, ...]
    """Attributes of a run that a plan shows."""
    both_eyes: bool = False
    """True if both eyes of a frame are drawn."""
    check: Callable[[Sequence[Any], StudySamples, Any], None] = lambda *_: None
    """Takes runs, samples and settings; refuses studies that cannot begin."""

    def runs(self, dataset: GazeDataset | None, settings: Any) -> Sequence[Any]:
        """Return the runs of a study; nothing is written."""
        drawn = range(settings.drawn.drawn_persons)
        names = [f"p{number:02d}" for number in drawn] if dataset is None else dataset.persons
        return self.plan(sorted(names), settings)


def conduct_study(
    kind: StudyKind, folder: Path, dataset: GazeDataset | None, settings: Any, conduct: Conduct
) -> StudyResults:
    """Do all runs that are missing, and write tables and pictures.

    `folder`: Made where absent. A study that was interrupted goes on in it. `dataset`: None: eyes
    are drawn.

    Raises `InvalidInputError`, `BusyError`, `AnnotationFileError`: nothing can be begun. Runs that
    fail raise nothing: `StudyResults.failed` has them.
    """
    runs = {run.key: run for run in kind.runs(dataset, settings)}
    with open_study(folder, f"poolctl-{kind.name}-study/3", conduct) as study:
        reading = part_of(conduct.progress, 0, _READING)
        if dataset is None:
            read = draw_persons(
                settings.drawn, settings.first_seed, reading, both_eyes=kind.both_eyes
            )
        else:
            read = read_persons(dataset, reading)
        samples = {
            name: kind.prepare(settings, samples_read) for name, samples_read in read.items()
        }
        kind.check(tuple(runs.values()), samples, settings)
        persons = describe_persons(samples)
        study.describe(settings, {"persons": persons})
        file = study.hidden / "samples.npz"
        write_samples(samples, file)

        def depends(run: Any) -> Mapping[str, Any]:
            involved = {name: persons[name] for name in (*run.train, *run.test)}
            return {**kind.depends(run, settings), "persons": involved}

        results = study.do(
            runs, depends, kind.do, lambda run: StudyJob(run, file, settings, folder),
            progress=part_of(conduct.progress, _READING, 1),
        )  # fmt: skip
        files, findings = kind.report(folder, [*runs.values()], results.results, conduct.repeat)
    return replace(results, files=tuple(files), findings=tuple(findings))


def open_data(path: Path) -> GazeDataset:
    """Open the gaze data that a user named."""
    dataset: GazeDataset = open_gaze(path)
    return dataset


def list_names(dataset: GazeDataset | None, settings: Any) -> dict[str, list[str]]:
    """Return the persons of the data, or of the drawn data."""
    drawn = range(settings.drawn.drawn_persons)
    names = [f"p{number:02d}" for number in drawn] if dataset is None else dataset.persons
    return {"persons": sorted(names)}


def prepare(
    dataset: GazeDataset | None, settings: Any, folder: Path, progress: Progress
) -> dict[str, Any]:
    """Write the samples of all persons for the workers; return the facts about them."""
    if dataset is None:
        persons = draw_persons(settings.drawn, settings.first_seed, progress)
    else:
        persons = read_persons(dataset, progress)
    used = {
        name: spread_over_sessions(samples, settings.most_frames)
        for name, samples in persons.items()
    }
    return keep_samples(used, folder)


def keep_samples(samples: StudySamples, folder: Path) -> dict[str, Any]:
    """Write samples for `read_samples`; return the facts about them."""
    write_samples(samples, folder / _FILE)
    return {"persons": describe_persons(samples)}


def read_samples(job: StepJob) -> StudySamples:
    """Return the samples of all persons in the order of their names, in a worker."""
    samples = _load_once(job.data / _FILE)
    return {name: samples[name] for name in sorted(samples)}


def read_persons(dataset: GazeDataset, progress: Progress) -> StudySamples:
    """Read the samples of all persons."""
    persons = {}
    for number, name in enumerate(dataset.persons):
        progress(number / len(dataset.persons), f"reading person {name}")
        persons[name] = dataset.read_person(name)
    return persons


def draw_persons(
    drawn: DrawnSettings, seed: int, progress: Progress, *, both_eyes: bool = False
) -> StudySamples:
    """Draw persons and their eyes: one eye of each frame, or both."""
    rendering = RenderSettings(
        persons=drawn.drawn_persons,
        frames_per_person=drawn.frames,
        both_eyes=both_eyes,
        seed=seed,
        skews=Skews(amount=drawn.amount),
    )
    persons = {}
    for number in rendering.numbers:
        progress(number / drawn.drawn_persons, f"drawing person {number}")
        samples = render_person(rendering, number)
        persons[str(samples.person[0])] = samples
    return persons


def spread_over_sessions(samples: GazeSamples, most: int) -> GazeSamples:
    """Return at most `most` samples of a person at equal distances, so of all sessions; 0: all."""
    if not most or len(samples) <= most:
        return samples
    order = np.argsort(samples.session, kind="stable")
    picks = np.linspace(0, len(order) - 1, most).round().astype(int)
    return samples[np.sort(order[picks])]


def write_samples(samples: StudySamples, path: Path) -> None:
    """Write samples for `load_samples`."""
    with whole_file(path) as file:
        np.savez(file, **vars(join_samples(list(samples.values()))))


def load_samples(path: Path) -> StudySamples:
    """Return the samples that `write_samples` wrote."""
    with np.load(path) as content:
        everything = GazeSamples(**{name: content[name] for name in content.files})
    names = dict.fromkeys(everything.person.tolist())
    return {name: everything[everything.person == name] for name in names}


@lru_cache(maxsize=1)
def _load_once(path: Path) -> StudySamples:
    return load_samples(path)
