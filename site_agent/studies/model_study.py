"""A study of models: the parts of a data set stand for sites, and every way to join their data.

`run_study` does what is not done yet and leaves every model, its recipe and its scores in the
study's folder; `site_agent.studies.outcome` makes the table of it.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

from site_agent.datasets import expand_parts, part_names
from site_agent.errors import BusyError, InvalidInputError, TrainingDataError
from site_agent.runs.lock import locked
from site_agent.runs.progress import Progress
from site_agent.runs.worker_pool import run_jobs, workers_that_fit
from site_agent.runs.worker_process import processor_count
from site_agent.studies.parts import StudyData, read_union
from site_agent.studies.protocol import Protocol, StudySettings, plan_protocol
from site_agent.studies.schedule import Schedule, State, step_cost
from site_agent.studies.step_jobs import StepJob
from site_agent.studies.step_records import StepRecord, StudyFolder
from site_agent.studies.steps import Contribute, Step, Train, step_digests, title
from site_agent.training import ErtSettings
from site_agent.training.progress_lines import duration_words

_EARLIEST_ESTIMATE = 0.03
_LEAST_FOR_ESTIMATE_S = 5.0


@dataclass(frozen=True)
class StepOutcome:
    """What became of a step.

    Attributes
    ----------
    state : str
        ``done``, ``kept`` from an earlier run, ``failed``, ``left out``.
    """

    step: Step
    state: State
    reason: str = ""
    record: StepRecord | None = None

    @property
    def title(self) -> str:
        return title(self.step)


@dataclass(frozen=True)
class StudyRun:
    """What a run has left.

    Attributes
    ----------
    outcomes : mapping of str to StepOutcome
        By key; what parts sent in refinement is not among them once it was combined.
    """

    folder: StudyFolder
    data: StudyData
    settings: StudySettings
    protocol: Protocol
    outcomes: Mapping[str, StepOutcome]
    digests: Mapping[str, str]
    versions: Mapping[str, str]
    workers: int

    def count(self, *states: State) -> int:
        """Return how many steps are in these states."""
        return sum(outcome.state in states for outcome in self.outcomes.values())

    @property
    def failed(self) -> list[StepOutcome]:
        """Steps that failed themselves."""
        return [outcome for outcome in self.outcomes.values() if outcome.state == "failed"]


def landmarks_of(data: StudyData, settings: StudySettings) -> tuple[str, ...]:
    """Return the names of the landmarks that the models place; none for detectors.

    Raises
    ------
    InvalidInputError
        Parts without landmarks, or test data that lack some.
    """
    if settings.kind == "detectors":
        return ()
    wanted = getattr(settings.training, "parts", ())
    unknown = [name for name in wanted if name not in data.landmarks]
    if unknown or not data.landmarks:
        has = f"no landmarks named {', '.join(unknown[:6])}" if unknown else "no landmarks"
        raise InvalidInputError(f"the parts have {has}; a study of detectors needs none")
    names = tuple(name for name in data.landmarks if not wanted or name in wanted)
    lacking = sorted(set(names) - set(part_names(data.test.read())))
    if lacking:
        raise InvalidInputError(
            f"{data.test.source} has no landmarks named {', '.join(lacking[:6])}"
            f"{' ...' if len(lacking) > 6 else ''}; the parts have them"
        )
    return names


def with_named_landmarks(data: StudyData, settings: StudySettings) -> StudySettings:
    """Replace groups of landmarks (``eyes``) by the names that they mean.

    Words that mean nothing stay, for `landmarks_of` to refuse.
    """
    training = settings.training
    if not isinstance(training, ErtSettings) or not training.parts:
        return settings
    names, unknown = expand_parts(training.parts, data.landmarks)
    return replace(settings, training=replace(training, parts=(*names, *unknown)))


def plan_study(data: StudyData, settings: StudySettings) -> Protocol:
    """Return the rows and steps of a study."""
    return plan_protocol(
        [part.name for part in data.parts],
        [part.faces for part in data.parts],
        settings,
        landmarks_of(data, settings),
    )


def program_versions() -> dict[str, str]:
    """Return the versions of what takes part in making models."""
    versions = {}
    for name, distributions in {
        "poolctl": ("poolctl",),
        "dlib": ("dlib-bin", "dlib"),
        "numpy": ("numpy",),
    }.items():
        versions[name] = "unknown"
        for distribution in distributions:
            with contextlib.suppress(metadata.PackageNotFoundError):
                versions[name] = metadata.version(distribution)
                break
    return versions


def run_study(
    folder: StudyFolder,
    data: StudyData,
    settings: StudySettings,
    *,
    workers: int = 0,
    redo: bool = False,
    on_outcome: Callable[[StepOutcome], None] | None = None,
    progress: Progress | None = None,
) -> StudyRun:
    """Do every step of a study that is not done yet.

    Parameters
    ----------
    folder : StudyFolder
        Held (`holding`) and with the parts in it.
    workers : int
        Steps at once; 0: as many as processors, shared with the threads of a training, and no
        more than memory allows.
    redo : bool
        Do finished steps, too.
    on_outcome : callable, optional
        Told of every step that ends.
    progress : callable, optional
        Called with the fraction done and a text; an exception that it raises stops the study.

    Raises
    ------
    InvalidInputError
        The study cannot be done as asked.
    """
    settings = with_named_landmarks(data, settings)
    protocol = plan_study(data, settings)
    versions = program_versions()
    digests = step_digests(protocol.steps, data.digests, versions)
    kept = {
        step.key: record
        for step in protocol.steps
        if not redo and (record := folder.finished(step, digests[step.key])) is not None
    }
    faces = {part.name: part.faces for part in (*data.parts, data.test)}
    costs = {step.key: step_cost(step, faces) for step in protocol.steps}
    schedule = Schedule(protocol.steps, frozenset(kept), costs)
    count = workers or _worker_count(data, settings, schedule)
    run = _Run(
        folder,
        data,
        schedule,
        digests,
        max(1, processor_count() // count),
        on_outcome or (lambda _outcome: None),
        progress or (lambda _fraction, _text: None),
    )
    for step in protocol.steps:
        if step.key in kept:
            run.outcomes[step.key] = StepOutcome(step, "kept", record=kept[step.key])
    run.drop_used_up()
    run_jobs(
        run.next_job,
        count,
        run.on_event,
        module="site_agent.studies.step_worker",
        advice="run the study again with fewer workers",
    )
    for step in protocol.steps:
        if schedule.states[step.key] == "left out":
            reason = schedule.reasons[step.key]
            run.outcomes[step.key] = StepOutcome(step, "left out", reason)
    ordered = {
        step.key: run.outcomes[step.key] for step in protocol.steps if step.key in run.outcomes
    }
    return StudyRun(folder, data, settings, protocol, ordered, digests, versions, count)


@contextlib.contextmanager
def holding(folder: StudyFolder) -> Iterator[None]:
    """Keep other runs away from a study; the system lets go when this process dies.

    Raises
    ------
    BusyError
        Another run is at work there.
    InvalidInputError
        The folder cannot be written.
    """
    if folder.path.exists() and not folder.path.is_dir():
        raise InvalidInputError(f"{folder.path}: is a file, expected a folder for the study")
    busy = BusyError(
        f"{folder.path}: another study is at work here; wait for it, or choose another folder "
        "with -o"
    )
    with contextlib.ExitStack() as stack:
        try:
            folder.hidden.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder.hidden / "lock", busy=busy))
        except OSError as error:
            raise InvalidInputError(
                f"{error.filename or folder.path}: cannot be written: {error.strerror or error}"
            ) from error
        yield


def refuse_other_study(folder: StudyFolder, data: StudyData, settings: StudySettings) -> None:
    """Refuse a folder that holds a study of another kind or of other parts."""
    file = folder.path / "study.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        found = (content["kind"], [part["digest"] for part in content["parts"]])
    except (OSError, ValueError, KeyError, TypeError):
        return
    if found != (settings.kind, [part.digest for part in data.parts]):
        raise InvalidInputError(
            f"{folder.path} holds a study of {content['kind']} with {len(found[1])} other parts; "
            "choose another folder with -o, or replace it with --redo"
        )


@dataclass
class _Run:
    """One run: hands out jobs, and takes what comes back."""

    folder: StudyFolder
    data: StudyData
    schedule: Schedule
    digests: Mapping[str, str]
    threads: int
    on_outcome: Callable[[StepOutcome], None]
    progress: Progress
    outcomes: dict[str, StepOutcome] = field(default_factory=dict)
    started_s: dict[str, float] = field(default_factory=dict)
    begun_s: float = field(default_factory=time.monotonic)

    def next_job(self) -> StepJob | None:
        step = self.schedule.next_step()
        if step is None:
            return None
        self.started_s[step.key] = time.monotonic()
        by_key = {other.key: other for other in self.schedule.steps}
        return StepJob(
            step,
            self.folder.work / step.key.replace(" ", "-"),
            self.data.by_name,
            {key: self.folder.result_of(by_key[key]) for key in step.inputs},
            self.threads,
        )

    def on_event(self, job: StepJob, event: dict[str, Any]) -> None:
        step = job.step
        if "progress" in event:
            if event["progress"] is not None:
                self.schedule.shares[step.key] = min(1.0, float(event["progress"]))
            self._tell(f"{title(step)}: {event['text']}")
            return
        took_s = time.monotonic() - self.started_s[step.key]
        if "failed" in event:
            self._failed(step, str(event["failed"]))
            return
        try:
            record = self.folder.adopt(
                step, self.digests[step.key], job.folder, took_s, event["done"]
            )
        except OSError as error:
            self._failed(
                step, f"{error.filename or step.key}: cannot be written: {error.strerror or error}"
            )
            return
        self.schedule.finish(step)
        self._ended(StepOutcome(step, "done", record=record))
        self.drop_used_up()

    def drop_used_up(self) -> None:
        """Delete what parts sent in rounds that are combined: it is large, and can be remade."""
        for step in self.schedule.steps:
            if not isinstance(step, Contribute) or not self.schedule.is_used_up(step.key):
                continue
            if self.outcomes.get(step.key) or self.folder.result_of(step).exists():
                self.folder.forget(step)

    def _failed(self, step: Step, reason: str) -> None:
        self.schedule.fail(step, reason)
        self._ended(StepOutcome(step, "failed", reason))

    def _ended(self, outcome: StepOutcome) -> None:
        self.outcomes[outcome.step.key] = outcome
        self.on_outcome(outcome)
        self._tell(f"{outcome.title}: {outcome.state}")

    def _tell(self, text: str) -> None:
        schedule = self.schedule
        ended = schedule.count("kept", "done", "failed", "left out")
        total = len(schedule.states) - schedule.count("not needed")
        share = schedule.share
        words = [f"{ended} of {total} steps"]
        elapsed_s = time.monotonic() - self.begun_s
        if share > _EARLIEST_ESTIMATE and elapsed_s > _LEAST_FOR_ESTIMATE_S and share < 1:
            words.append(f"about {duration_words(elapsed_s / share * (1 - share))} left")
        self.progress(share, ", ".join(words) + f"  {text}")


def _worker_count(data: StudyData, settings: StudySettings, schedule: Schedule) -> int:
    training = settings.training
    threads = training.threads
    wanted = max(1, processor_count() // max(1, threads))
    trainings = [step for step in schedule.to_do if isinstance(step, Train)]
    return workers_that_fit(wanted, [_needed_bytes(data, step) for step in trainings])


def _needed_bytes(data: StudyData, step: Train) -> int:
    """Return what a training will take, 0 where it will be refused anyway."""
    dataset = read_union(data.by_name[part] for part in step.parts)
    if isinstance(step.settings, ErtSettings):
        from site_agent.training.ert import estimated_memory_bytes, trainable_faces

        names = step.settings.parts or data.landmarks
        return estimated_memory_bytes(trainable_faces(dataset), len(names), step.settings)
    from site_agent.training.hog_svm import needed_memory_bytes
    from site_agent.training.orientations import plan_views

    try:
        return needed_memory_bytes(dataset, plan_views(dataset, step.settings), step.settings)
    except TrainingDataError:
        return 0
