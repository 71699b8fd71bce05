"""A study of models: the parts of a data set stand for sites, and every way to join their data.

`run_study` does the missing steps and leaves every model, its recipe and its scores in the
study's folder; `site_agent.studies.outcome` makes the table of it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from site_agent.datasets.landmark_schemes import expand_parts
from site_agent.datasets.records import part_names
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.studies.parts import StudyData, read_union
from site_agent.studies.protocol import Protocol, StudySettings, plan_protocol
from site_agent.studies.step_jobs import StepJob, run_job
from site_agent.studies.steps import (
    Contribute,
    Score,
    Step,
    StepRecord,
    StudyFolder,
    Train,
    step_digests,
    title,
)
from site_agent.training.ert import ErtSettings, estimated_memory_bytes, trainable_faces
from site_agent.training.hog_svm import needed_memory_bytes, plan_views
from site_agent.training_record import program_versions
from site_agent.work import Progress, no_progress
from site_agent.work.jobs import Job, JobOutcome, Schedule, State, do_jobs
from site_agent.work.measurements import processor_count, workers_that_fit
from site_agent.work.workers import Task, Workers


@dataclass(frozen=True)
class StepOutcome:
    """The outcome of a step."""

    step: Step
    state: State
    """``done``, ``kept`` from an earlier run, ``failed``, ``left out``."""
    reason: str = ""
    record: StepRecord | None = None

    @property
    def title(self) -> str:
        return title(self.step)


@dataclass(frozen=True)
class StudyRun:
    """The results of a run of a study."""

    folder: StudyFolder
    data: StudyData
    settings: StudySettings
    protocol: Protocol
    outcomes: Mapping[str, StepOutcome]
    """By key; without contributions to refinement that were combined."""
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
    """Return the names of the landmarks that the models place; none for detectors."""
    if settings.kind == "detectors":
        return ()
    landmarks = getattr(settings.training, "parts", ())
    unknown = [name for name in landmarks if name not in data.landmarks]
    if unknown or not data.landmarks:
        has = f"no landmarks named {', '.join(unknown[:6])}" if unknown else "no landmarks"
        raise InvalidInputError(f"the parts have {has}; a study of detectors needs none")
    names = tuple(name for name in data.landmarks if not landmarks or name in landmarks)
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


def study_versions() -> dict[str, str]:
    """Return the versions of the programs that make models."""
    import dlib

    return program_versions(dlib=dlib.__version__)


def run_study(
    folder: StudyFolder,
    data: StudyData,
    settings: StudySettings,
    *,
    workers: int = 0,
    redo: bool = False,
    on_outcome: Callable[[StepOutcome], None] | None = None,
    progress: Progress = no_progress,
) -> StudyRun:
    """Do every step of a study that is not done yet.

    `folder`: Held (`hold_folder`) and with the parts in it. `workers`: Steps at once; 0: as many as
    processors, shared with the threads of a training, and no more than memory allows. `redo`: Do
    finished steps, too. `on_outcome`: Called with every step that ends. `progress`: Called with the
    fraction done and a text; an exception that it raises stops the study.
    """
    settings = with_named_landmarks(data, settings)
    protocol = plan_study(data, settings)
    versions = study_versions()
    digests = step_digests(protocol.steps, data.digests, versions)
    kept = {
        step.key: record
        for step in protocol.steps
        if not redo and (record := folder.finished(step, digests[step.key])) is not None
    }
    faces = {part.name: part.faces for part in (*data.parts, data.test)}
    steps = {step.key: step for step in protocol.steps}
    schedule = Schedule(plan_jobs(protocol.steps, faces), frozenset(kept))
    count = workers or _worker_count(data, settings, [steps[k] for k in schedule.keys("waiting")])
    threads = max(1, processor_count() // count)

    def work_of(key: str) -> Path:
        return folder.work / key.replace(" ", "-")

    def make_task(job: Job) -> Task:
        inputs = {key: folder.result_of(steps[key]) for key in job.needs}
        payload = StepJob(steps[job.key], work_of(job.key), data.by_name, inputs, threads)
        return Task(job.key, run_job, payload)

    def keep(key: str, warnings: Sequence[str], took_s: float) -> StepRecord:
        return folder.adopt(steps[key], digests[key], work_of(key), took_s, warnings)

    def end(outcome: JobOutcome) -> None:
        if on_outcome is not None:
            on_outcome(_step_outcome(steps, outcome))
        _drop_used_up(folder, steps, schedule)

    _drop_used_up(folder, steps, schedule)
    with Workers(count, advice="run the study again with fewer workers") as pool:
        job_outcomes = do_jobs(
            schedule,
            pool,
            make_task,
            kept=kept,
            keep=keep,
            on_outcome=end,
            noun="steps",
            progress=progress,
        )
    outcomes = {key: _step_outcome(steps, outcome) for key, outcome in job_outcomes.items()}
    return StudyRun(folder, data, settings, protocol, outcomes, digests, versions, count)


def _step_outcome(steps: Mapping[str, Step], outcome: JobOutcome) -> StepOutcome:
    return StepOutcome(steps[outcome.key], outcome.state, outcome.reason, outcome.result)


def _drop_used_up(folder: StudyFolder, steps: Mapping[str, Step], schedule: Schedule) -> None:
    """Delete contributions to combined rounds: they are large, and can be made again."""
    for key, step in steps.items():
        if not isinstance(step, Contribute) or not schedule.is_used_up(key):
            continue
        if schedule.states[key] in ("kept", "done") or folder.result_of(step).exists():
            folder.forget(step)


def plan_jobs(steps: Sequence[Step], faces: Mapping[str, int]) -> list[Job]:
    """Return the steps of a study as jobs; `faces` by part.

    A contribution is deleted once its round is combined, and never needed again.
    """
    return [
        Job(
            step.key,
            tuple(step.inputs),
            step_cost(step, faces),
            title(step),
            lasting=not isinstance(step, Contribute),
        )
        for step in steps
    ]


def step_cost(step: Step, faces: Mapping[str, int]) -> float:
    """Return a rough relative duration of a step, in faces trained on."""
    count = float(sum(faces[part] for part in step.parts))
    if isinstance(step, Train):
        return count + 5
    if isinstance(step, Contribute):
        return 0.2 * count + 1
    if isinstance(step, Score):
        return 0.02 * count + 1
    return 0.5 + 0.5 * len(step.inputs)


def refuse_other_study(folder: StudyFolder, data: StudyData, settings: StudySettings) -> None:
    """Refuse a folder that holds a study of another kind or of other parts."""
    file = folder.path / "study.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        kind, digests = content["kind"], [part["digest"] for part in content["parts"]]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if (kind, digests) != (settings.kind, [part.digest for part in data.parts]):
        raise InvalidInputError(
            f"{folder.path} holds a study of {kind} with {len(digests)} other parts; "
            "choose another folder with -o, or replace it with --redo"
        )


def _worker_count(data: StudyData, settings: StudySettings, steps: Sequence[Step]) -> int:
    training = settings.training
    threads = training.threads
    most = max(1, processor_count() // max(1, threads))
    trainings = [step for step in steps if isinstance(step, Train)]
    return workers_that_fit(most, [_needed_bytes(data, step) for step in trainings])


def _needed_bytes(data: StudyData, step: Train) -> int:
    """Return the memory that a training needs, 0 where it will be refused anyway."""
    dataset = read_union(data.by_name[part] for part in step.parts)
    if isinstance(step.settings, ErtSettings):
        names = step.settings.parts or data.landmarks
        return estimated_memory_bytes(trainable_faces(dataset), len(names), step.settings)
    try:
        return needed_memory_bytes(dataset, plan_views(dataset, step.settings), step.settings)
    except TrainingDataError:
        return 0
