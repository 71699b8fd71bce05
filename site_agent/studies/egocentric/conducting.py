"""The study of personalised rounds: eight methods on clips, and the same on eyes.

Each person is a site. In a *world* of drawn persons the heterogeneity says how much they differ in
what they look at: 0 for persons who choose alike, 1 for persons of their own; ``eyes`` has gaze
networks of drawn persons in place of clips. Every method is given the learning rate that is best
for it on validation clips of other persons and another start, of equally many candidates, and is
tested on clips (or sessions) that nobody trained with. Each seed draws other persons, so that an
interval over persons and seeds covers both. The sweeps change one option of FedCPF at a time.

::

    STUDY/study.json       settings, versions, how to repeat it
    STUDY/runs/KEY.json    the result of each run, with the digest of what it depends on
    STUDY/*.csv, table.md, *.png
    STUDY/.study/          the samples for the workers, and the lock

Source: the FedCPF paper, tables of methods and curves over rho and acc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from site_agent.datasets.egocentric import ClipSamples, EgocentricDataset
from site_agent.datasets.gaze import GazeSamples
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
from site_agent.studies.egocentric.one_run import RunJob, do_run, draw_world, write_samples
from site_agent.studies.egocentric.protocol import (
    DATA,
    EYES,
    METHODS,
    EgocentricStudySettings,
    Run,
    choose_rates,
    first_rates,
    plan_runs,
    plan_tuning,
    worlds_of,
)
from site_agent.studies.egocentric.report import write_report
from site_agent.studies.steps import StudyFolder

SCHEMA = "poolctl-egocentric-study/1"
_READING = 0.02
_ADVICE = "run the study again with fewer workers"


@dataclass(frozen=True)
class EgocentricOutcome:
    """What a study has left; as `site_agent.studies.gaze.GazeOutcome`."""

    runs: tuple[Run, ...]
    results: Mapping[str, Mapping[str, Any]]
    failed: Mapping[str, str]
    kept: int
    files: tuple[Path, ...]
    findings: tuple[str, ...]


def conduct_egocentric_study(
    folder: Path,
    dataset: EgocentricDataset | None,
    settings: EgocentricStudySettings,
    *,
    workers: int = 0,
    redo: bool = False,
    repeat: Sequence[str] = (),
    on_run: Callable[[Run, float], None] = lambda _run, _took_s: None,
    progress: Progress,
) -> EgocentricOutcome:
    """Do all runs of a study, and write its tables and pictures.

    Parameters
    ----------
    folder : Path
        Made where absent. A study that was interrupted goes on in it.
    dataset : EgocentricDataset or None
        None: worlds are drawn.
    workers : int
        Runs at once; 0: as many as processors.

    Raises
    ------
    InvalidInputError, BusyError, AnnotationFileError
        Nothing can be begun. Runs that fail raise nothing: `EgocentricOutcome.failed` has them.
    """
    if unknown := [name for name in settings.methods if name not in METHODS]:
        raise InvalidInputError(f"method {unknown[0]}: expected some of {', '.join(METHODS)}")
    place = StudyFolder(folder)
    worlds = worlds_of(settings, dataset)
    with hold_folder(folder, place.hidden / "lock", what="study"):
        (folder / "runs").mkdir(exist_ok=True)
        _describe(folder, dataset, settings, repeat)
        data = _Data(place.hidden, dataset, settings)
        tuning = plan_tuning(worlds, settings)
        total = len(tuning) + len(plan_runs(worlds, settings, first_rates(settings)))
        with Workers(workers or processor_count(), advice=_ADVICE) as pool:

            def do(runs: Sequence[Run], report: Progress) -> dict[str, JobOutcome]:
                return _do_all(folder, runs, data, pool, redo=redo, on_run=on_run, progress=report)

            tuned_by = len(tuning) / total
            first = do(tuning, part_of(progress, _READING, tuned_by))
            rates = choose_rates(tuning, {k: o.result for k, o in first.items() if o.result})
            runs = plan_runs(worlds, settings, rates)
            outcomes = first | do(runs, part_of(progress, tuned_by, 1))
        failed = {key: each.reason for key, each in outcomes.items() if each.state == "failed"}
        results = {key: each.result for key, each in outcomes.items() if key not in failed}
        files, findings = write_report(folder, runs, results, repeat)
    kept = sum(each.state == "kept" for each in outcomes.values())
    return EgocentricOutcome((*tuning, *runs), results, failed, kept, tuple(files), tuple(findings))


class _Data:
    """The samples of the worlds: drawn or read once, in a file each for the workers."""

    def __init__(
        self, folder: Path, dataset: EgocentricDataset | None, settings: EgocentricStudySettings
    ) -> None:
        self._folder, self._dataset, self.settings = folder, dataset, settings

    def file(self, run: Run, progress: Progress) -> Path:
        from site_agent.training.saliency import clip_shape

        seed = 0 if run.world == DATA else run.seed
        path = self._folder / f"{run.world}-seed{seed}-{self._size(run.world)}.npz"
        if not path.is_file():
            if self._dataset is not None:
                samples: ClipSamples | GazeSamples = self._dataset.read(
                    shape=clip_shape(self.settings.architecture), progress=progress
                )
            else:
                samples = draw_world(run.world, seed, self.settings, progress)
            write_samples(samples, path)
        return path

    def _size(self, world: str) -> str:
        names = ("eye_people", "eye_frames") if world == EYES else ("people", "videos")
        return "x".join(str(getattr(self.settings, name)) for name in names)

    def facts(self, run: Run) -> dict[str, Any]:
        """Return what the result of a run depends on besides the run."""
        own = self.settings
        names = ["people", "videos", "rounds", "epochs", "architecture"]
        if run.world == EYES:
            names = ["eye_people", "eye_frames", "eye_rounds"]
        data = "" if self._dataset is None else self._dataset.digest
        return {"data": data, "versions": _versions(), **{n: getattr(own, n) for n in names}}


def _do_all(
    folder: Path,
    runs: Sequence[Run],
    data: _Data,
    pool: Workers,
    *,
    redo: bool,
    on_run: Callable[[Run, float], None],
    progress: Progress,
) -> dict[str, JobOutcome]:
    by_key = {run.key: run for run in runs}
    digests = {
        run.key: digest_of({"schema": SCHEMA, "run": asdict(run), **data.facts(run)})
        for run in runs
    }
    facts = {run.key: asdict(run) for run in runs}
    records = JobRecords(folder / "runs", SCHEMA, digests, facts)
    kept = {} if redo else records.read_all()

    def begin(job: Job) -> Task:
        run = by_key[job.key]
        path = data.file(run, lambda _share, text: progress(None, f"drawing {run.world}: {text}"))
        return Task(job.key, do_run, RunJob(run, path, data.settings))

    def end(outcome: JobOutcome) -> None:
        if outcome.state == "done":
            on_run(by_key[outcome.key], outcome.took_s)

    return do_jobs(
        Schedule([Job(run.key, cost=_cost(run)) for run in runs], frozenset(kept)),
        pool, begin, kept=kept, keep=records.keep, on_outcome=end, noun="runs", progress=progress,
    )  # fmt: skip


def _cost(run: Run) -> float:
    return 0.5 if run.world == EYES else 1.0


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("poolctl", "torch", "numpy")}


def _describe(
    folder: Path,
    dataset: EgocentricDataset | None,
    settings: EgocentricStudySettings,
    repeat: Sequence[str],
) -> None:
    """Write ``study.json``; refuse a folder that holds a study of another kind."""
    file = folder / "study.json"
    if file.exists() and SCHEMA not in file.read_text(encoding="utf-8", errors="replace"):
        raise InvalidInputError(f"{folder} holds another study; choose another folder with -o")
    content = {
        "schema": SCHEMA,
        "settings": asdict(settings),
        "data": None if dataset is None else dataset.digest,
        "versions": _versions(),
        "repeat": list(repeat),
    }
    write_json(file, content)
