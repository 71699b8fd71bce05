"""Many sessions in one go: side by side, each whole or absent, and only those that are missing.

A study is a folder with one folder a session. Next to them are ``batch.csv`` (the state of each
session), ``sessions.csv`` and the learning curve (see `study`). A worker process analyses a session
into ``.batch/work``; only the parent moves it to its place when it is complete, by a rename. A
session that is there already, made from the same files with the same settings, stays as it is.
Several processes may fill one study, each as a share (`site_agent.work.claims`).
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from site_agent.errors import ConditioningError, InvalidInputError, StudyFolderError
from site_agent.eyeblink.batch import record as batch_record
from site_agent.eyeblink.batch.sessions import BatchSession, name_problem, with_overrides
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings, BlinkSession
from site_agent.eyeblink.session_folder import RECORD_NAME, REVIEWED_FOLDER, find_output
from site_agent.eyeblink.video.recording import Recording
from site_agent.work import Progress, no_progress
from site_agent.work.claims import Claims, Share, hold_folder
from site_agent.work.engines import open_workers
from site_agent.work.files import file_state
from site_agent.work.processes import processor_count, workers_that_fit
from site_agent.work.steps import Schedule, Step, StepOutcome, do_steps
from site_agent.work.workers import Task


@dataclass(frozen=True)
class SessionJob:
    """One session to analyse."""

    session: BatchSession
    settings: BlinkAnalysisSettings
    request: batch_record.Request
    folder: Path
    """Not there yet."""
    addresses: Mapping[str, str] = field(default_factory=dict)


def run_job(job: SessionJob, progress: Progress) -> str:
    """Analyse a session and write its record next to the results."""
    session, folder = job.session, job.folder
    summary = _analyse(job, progress)
    record = batch_record.SessionRecord(
        name=session.name,
        participant=session.participant,
        group=session.group,
        number=session.number,
        labels=session.labels,
        request=replace(job.request, sources=_with_digests(job)),
        summary=_numbers(summary),
        conditioning=_conditioning(folder),
        trials=summary.trials,
        warnings=summary.warnings,
        files=tuple(
            sorted(
                path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
            )
        ),
    )
    batch_record.write_record(record, folder)
    return session.name


def _analyse(job: SessionJob, progress: Progress) -> BlinkSession:
    session = job.session
    source = (
        Recording(session.source, session.timestamps, session.frame_rate_hz)
        if session.is_video
        else TraceFile(session.source, session.frame_rate_hz)
    )
    labels = replace(job.settings.labels, subject=session.participant)
    return run_blink_analysis(
        source,
        out_dir=job.folder,
        landmarks=session.landmarks or None,
        detector=session.detector or None,
        trials=session.trials,
        settings=replace(job.settings, labels=labels),
        progress=progress,
        addresses=job.addresses,
    )


def _conditioning(folder: Path) -> dict[str, Any] | None:
    content = json.loads(find_output(folder, "session.json").read_text(encoding="utf-8"))
    summary = content["conditioning"]
    return None if summary is None else dict(summary["summary"])


def _numbers(summary: BlinkSession) -> dict[str, Any]:
    plain = asdict(replace(summary, files={}, warnings=()))
    return {name: value for name, value in plain.items() if isinstance(value, int | float)}


def _with_digests(job: SessionJob) -> dict[str, Any]:
    """The sources with their digests, from the provenance where it has them."""
    provenance = find_output(job.folder, "provenance.json")
    known = {
        source["role"]: source["sha256"]
        for source in json.loads(provenance.read_text(encoding="utf-8"))["sources"]
    }
    paths = batch_record.source_paths(job.session)
    for role, state in job.request.sources.items():
        # The cache notes the use of a model by its time.
        if role not in ("landmarks", "detector") and file_state(paths[role]) != state:
            raise InvalidInputError(f"{paths[role]}: was changed since the batch began")
    return {
        role: replace(state, sha256=known.get(role) or file_digest(paths[role]))
        for role, state in job.request.sources.items()
    }


HIDDEN = ".batch"
"""The folder of a study with claims and unfinished sessions."""
# Memory of a worker besides its landmark model: libraries, frames read ahead, a long trace.
_WORKER_BYTES = 700_000_000
# dlib's .dat in memory, as arrays and as read, relative to the file.
_MODEL_COPIES = 3


def run_batch(
    sessions: Sequence[BatchSession],
    study: Path | str,
    *,
    settings: BlinkAnalysisSettings = BlinkAnalysisSettings(),
    workers: str = "",
    share: Share | None = None,
    redo: bool = False,
    addresses: Mapping[str, str] | None = None,
    on_outcome: Callable[[batch_record.SessionOutcome], None] | None = None,
    gather: Callable[[Sequence[batch_record.SessionRecord]], None] = lambda _records: None,
    progress: Progress = no_progress,
) -> batch_record.BatchResult:
    """Analyse the sessions of a study that are not finished yet.

    `workers`: As `open_workers` takes them; by default processes side by side, as many as there
    are cores and memory for. `share`: Of the processes that work in the study at the same time.
    `gather`: Called with all sessions when they have ended, by the last share.
    """
    batch = _Batch(
        study=Path(study).absolute(),
        sessions=sessions,
        settings=settings,
        addresses=addresses or {},
        on_outcome=on_outcome or (lambda _outcome: None),
        progress=progress,
        gather=gather,
        is_shared=share is not None,
    )
    names = Counter(session.name.casefold() for session in sessions)
    if repeated := [session.name for session in sessions if names[session.name.casefold()] > 1]:
        raise StudyFolderError(f"two sessions have the name {repeated[0]!r}; rename one")
    with hold_folder(batch.study, HIDDEN, what="batch", share=share) as claims:
        return batch.run(claims, workers, redo=redo)


@dataclass(frozen=True)
class SessionPlan:
    """The plan of a batch for a session."""

    settings: BlinkAnalysisSettings
    request: batch_record.Request | None = None
    finished: batch_record.SessionRecord | None = None
    problem: str = ""
    """The reason why it cannot be analysed; empty if it can."""


def plan_session(
    session: BatchSession, study: Path, settings: BlinkAnalysisSettings
) -> SessionPlan:
    """Decide whether a session needs an analysis."""
    folder = study / session.name
    try:
        settings = with_overrides(settings, session.overrides)
    except (ValueError, InvalidInputError, ConditioningError) as error:
        return SessionPlan(settings, problem=str(error))
    problem = name_problem(session.name) or _taken(folder)
    if session.is_video and not session.landmarks:
        problem = problem or "a video without a landmark model"
    if problem:
        return SessionPlan(settings, problem=problem)
    try:
        request = batch_record.make_request(session, settings)
    except OSError as error:
        return SessionPlan(settings, problem=f"{error.filename}: {error.strerror or error}")
    try:
        record = batch_record.read_record(folder) if folder.exists() else None
    except StudyFolderError:
        record = None  # damaged: to be made again
    finished = record is not None and batch_record.is_finished(folder, record, session, request)
    return SessionPlan(settings, request, record if finished else None)


def _taken(folder: Path) -> str:
    if not folder.exists() or (folder / RECORD_NAME).is_file():
        return ""
    return f"{folder} exists and was not made by a batch; move it away"


def worker_count(jobs: int, model_bytes: int) -> int:
    """Return how many workers to run: one a core, as many as memory allows, at least one."""
    each_bytes = _WORKER_BYTES + _MODEL_COPIES * model_bytes
    return max(1, workers_that_fit(min(processor_count(), jobs), [each_bytes] * jobs))


@dataclass
class _Batch:
    study: Path
    sessions: Sequence[BatchSession]
    settings: BlinkAnalysisSettings
    addresses: Mapping[str, str]
    on_outcome: Callable[[batch_record.SessionOutcome], None]
    progress: Callable[[float, str], None]
    gather: Callable[[Sequence[batch_record.SessionRecord]], None]
    is_shared: bool
    outcomes: dict[str, batch_record.SessionOutcome] = field(default_factory=dict)

    def run(self, claims: Claims, workers: str, *, redo: bool) -> batch_record.BatchResult:
        claims.agree((self.sessions, self.settings), lambda: None)
        if claims.share is None:
            finish_moves(self.study)
        jobs = {
            session.name: job
            for session in self.sessions
            if (job := self._job(session, claims.work, redo)) is not None
        }
        kept = {name: self.outcomes[name].record for name in jobs.keys() & self.outcomes.keys()}
        claims.refused = {
            name: outcome.reason for name, outcome in self.outcomes.items() if name not in jobs
        }
        models = [
            Path(job.session.landmarks)
            for name, job in jobs.items()
            if job.session.is_video and name not in kept
        ]
        fitting = worker_count(
            len(jobs) - len(kept), max((path.stat().st_size for path in models), default=0)
        )
        advice = "run the batch again with fewer workers"
        self.progress(0.0, f"{len(self.outcomes)} of {len(self.sessions)} sessions")

        def find(name: str) -> batch_record.SessionRecord:
            if claims.has(name):
                finish_moves(self.study, name)
            plan = plan_session(jobs[name].session, self.study, self.settings)
            if plan.finished is None:
                raise LookupError(name)
            return plan.finished

        schedule = Schedule(
            [Step(name, cost=float(_size(job.session.source))) for name, job in jobs.items()],
            frozenset(kept),
            claims.share,
        )
        try:
            with open_workers(workers, self.study, advice=advice, fitting=fitting) as pool:
                outcomes = do_steps(
                    schedule,
                    pool,
                    lambda step: Task(step.key, run_job, jobs[step.key]),
                    folder=claims,
                    find=find,
                    kept=kept,
                    keep=lambda name, _result, _s: put_in_place(self.study, jobs[name].folder),
                    on_outcome=self._end,
                    noun="sessions",
                    progress=lambda share, text: self.progress(share or 0.0, text),
                )
                count = pool.count
        finally:
            if claims.share is None:
                self._write_table()
        others = {key: one.reason for key, one in outcomes.items() if one.state == "elsewhere"}
        result = batch_record.BatchResult(self.study, tuple(self._rows()), count, others)
        if not others:
            with claims.turn("tables"):
                self._write_table()
                self.gather(result.records)
        return result

    def _write_table(self) -> None:
        batch_record.write_batch_table(self.study / "batch.csv", self._rows())

    def _job(self, session: BatchSession, work: Path, redo: bool) -> SessionJob | None:
        """Return the job of a session, finished or not; None where it cannot be analysed."""
        folder = self.study / session.name
        self.progress(0.0, f"looking at {session.name}")
        plan = plan_session(session, self.study, self.settings)
        if plan.problem:
            self._set_outcome(session.name, "failed", plan.problem)
            return None
        if plan.finished is not None and not redo:
            labelled = label_record(plan.finished, session, folder)
            self._set_outcome(session.name, "skipped", record=labelled)
        assert plan.request is not None
        roles = {"landmarks": session.landmarks, "detector": session.detector}
        known = {
            role: self.addresses[path]
            for role, word in roles.items()
            if (path := str(Path(word).absolute())) in self.addresses
        }
        return SessionJob(session, plan.settings, plan.request, work / session.name, known)

    def _end(self, outcome: StepOutcome) -> None:
        if outcome.state == "failed":
            self._set_outcome(outcome.key, "failed", outcome.reason, took_s=outcome.took_s)
        else:
            self._set_outcome(outcome.key, "done", record=outcome.result, took_s=outcome.took_s)

    def _set_outcome(
        self,
        name: str,
        state: batch_record.State,
        reason: str = "",
        *,
        record: batch_record.SessionRecord | None = None,
        took_s: float = 0.0,
    ) -> None:
        outcome = batch_record.SessionOutcome(name, state, reason, took_s, record)
        self.outcomes[name] = outcome
        if not self.is_shared:
            self._write_table()
        self.on_outcome(outcome)

    def _rows(self) -> list[batch_record.SessionOutcome]:
        return [
            self.outcomes.get(session.name, batch_record.SessionOutcome(session.name, "pending"))
            for session in self.sessions
        ]


def _size(path: Path) -> int:
    try:
        return file_state(path).size + 1
    except OSError:
        return 1


def label_record(
    record: batch_record.SessionRecord, session: BatchSession, folder: Path
) -> batch_record.SessionRecord:
    """Return a finished session with the labels that it has now; written where they changed."""
    labelled = replace(
        record,
        participant=session.participant,
        group=session.group,
        number=session.number,
        labels=session.labels,
    )
    if labelled != record:
        batch_record.write_record(labelled, folder)
    return labelled


def finish_moves(study: Path, name: str = "*") -> None:
    """Bring back sessions that were taken away for new ones which did not come (a crash).

    `name`: Of the one session that the caller has claimed; by default all.
    """
    replaced = study / HIDDEN / "replaced"
    for old in replaced.glob(name if name == "*" else escape(name)):
        if not (study / old.name).exists():
            old.rename(study / old.name)
        shutil.rmtree(old, ignore_errors=True)
    replaced.mkdir(parents=True, exist_ok=True)


def put_in_place(study: Path, made: Path) -> batch_record.SessionRecord:
    """Move a whole session to its place in the study, which is locked and has no open moves."""
    place, old = study / made.name, study / HIDDEN / "replaced" / made.name
    if place.exists():
        for file in _other_files(place, made):
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(place / file, made / file)
        place.rename(old)
    made.rename(place)
    shutil.rmtree(old, ignore_errors=True)
    return batch_record.read_record(place)


def _other_files(place: Path, made: Path) -> Iterator[Path]:
    """Return the files of a session's folder that no analysis wrote: a review, notes."""
    try:
        expected = {*batch_record.read_record(place).files, RECORD_NAME}
    except StudyFolderError:
        expected = {RECORD_NAME}
    for path in sorted(place.rglob("*")):
        relative = path.relative_to(place)
        if relative.parts[0] == REVIEWED_FOLDER:
            continue
        if (
            path.is_file()
            and relative.as_posix() not in expected
            and not (made / relative).exists()
        ):
            yield relative
