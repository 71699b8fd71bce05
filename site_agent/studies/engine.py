"""The engine of all studies: it does the runs that are missing, and reports.

How it works. `protocol_file` reads the protocol and lists the runs; the data are read or drawn
once, into files for the workers. Each run has a digest of its function, factors, settings,
data, inputs and versions: an equal one keeps an earlier result. The others are done in worker
processes (`site_agent.work.steps`). `results` makes the tables and verdicts, `figures` the plots::

    STUDY/study.json, protocol.toml    settings, data, versions, how to repeat it
    STUDY/runs/KEY.json                the result of each run, with its digest
    STUDY/table.md, *.csv, *.png
    STUDY/.study/                      data for the workers, claims, and runs under way
"""

import json
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from aggregators.whole_file import write_whole
from site_agent.errors import InvalidInputError, writing_to
from site_agent.plain_json import write_json
from site_agent.studies.figures import draw_figures
from site_agent.studies.protocol_file import Protocol, Step, StepJob, load, namespace
from site_agent.studies.results import Results
from site_agent.work import Progress, no_progress, part_of
from site_agent.work.claims import Claims, Share, hold_folder
from site_agent.work.engines import open_workers
from site_agent.work.files import FileState, file_state
from site_agent.work.steps import Schedule, StepOutcome, digest_of, do_steps
from site_agent.work.steps import Step as WorkStep
from site_agent.work.workers import Task

SCHEMA = "poolctl-study/1"
_READING = 0.03
_PROGRAMS = ("poolctl", "numpy", "torch", "dlib-bin")


@dataclass(frozen=True)
class Conduct:
    """The options of conducting a study, which change no result."""

    progress: Progress = no_progress
    workers: str = ""
    """As `open_workers` takes them; by default one process a processor, if they fit."""
    share: Share | None = None
    """Of the processes that hold the study at the same time."""
    redo: bool = False
    """Repeat finished runs, too."""
    repeat: Sequence[str] = ()
    """The words of the command, for readers of the folder."""
    on_run: Callable[[str, float], None] = lambda _key, _took_s: None
    """Called with the key of each finished run and its duration in seconds."""


@dataclass(frozen=True)
class StudyResults:
    """The results of the runs of a study."""

    results: Mapping[str, Any]
    """By the key of the run."""
    failed: Mapping[str, str]
    """Why runs failed or were left out, by key."""
    kept: int
    """Number of results that an earlier call or another share has left."""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """The shares that are at work on runs or on those before them, by key; then there are no files
    yet."""
    files: tuple[Path, ...] = ()
    """Tables and pictures; the one with the verdict first."""
    findings: tuple[str, ...] = ()
    """The verdict first."""


def hold_study(
    protocol: Protocol, folder: Path, dataset: Any, settings: Any, conduct: Conduct
) -> StudyResults:
    """Do all runs of a study that are missing, and write its tables and pictures.

    `folder`: Made where absent. A study that was interrupted goes on in it. `dataset`: As the
    protocol's data are opened; None draws them.

    Raises `InvalidInputError`, `BusyError`, `AnnotationFileError`: nothing can be begun. Runs that
    fail raise nothing: `StudyResults.failed` has them.
    """
    steps = protocol.steps(dataset, settings)
    Results(protocol.content, steps, {}, settings).check()
    hidden = folder / ".study"
    with hold_folder(folder, ".study", what="study", share=conduct.share) as claims:
        _refuse_other_study(folder, protocol)
        reading = part_of(conduct.progress, 0, _READING)

        def prepare() -> Any:
            return protocol.data.prepare(dataset, settings, hidden, reading)

        request = [protocol.text, asdict(settings), conduct.repeat]
        facts = claims.agree(request, prepare if protocol.data else dict)
        versions = _versions()
        description = {
            "schema": SCHEMA, "study": protocol.name, "settings": asdict(settings), **facts,
            "versions": {**versions, "python": platform.python_version()},
            "repeat": list(conduct.repeat),
        }  # fmt: skip
        write_json(folder / "study.json", description)
        write_whole(folder / "protocol.toml", protocol.text)
        digests = _digests(steps, facts, versions, settings)
        doing = replace(conduct, progress=part_of(conduct.progress, _READING, 1))
        fitting = 0
        if protocol.content.workers and not conduct.workers:
            fitting = load(protocol.content.workers)(dataset, settings)
        outcome = _do(steps, folder, settings, digests, doing, claims=claims, fitting=fitting)
        if outcome.elsewhere:
            return outcome
        results = Results(
            protocol.content, steps, outcome.results, settings, facts=facts, failed=outcome.failed
        )
        findings = results.findings()
        with claims.turn("tables"):
            files = draw_and_write(results, folder, findings, conduct.repeat)
    return replace(outcome, files=tuple(files), findings=tuple(findings))


def draw_and_write(
    results: Results, folder: Path, findings: Sequence[str], repeat: Sequence[str]
) -> list[Path]:
    """Write the tables and draw the figures; return their files and the pictures of the runs."""
    files = results.write_tables(folder, findings, repeat)
    files += draw_figures(folder, results.content.figures, results)
    return files + results.list_files(folder)


def _do(
    steps: Sequence[Step], folder: Path, settings: Any, digests: Mapping[str, str],
    conduct: Conduct, *, claims: Claims, fitting: int,
) -> StudyResults:  # fmt: skip
    by_key = {step.key: step for step in steps}
    work, plain = claims.work, namespace(settings)
    with writing_to(folder):
        (folder / "runs").mkdir(exist_ok=True)
    kept = {} if conduct.redo else _read_kept(folder, digests)
    results = dict(kept)

    def make_task(begun: WorkStep) -> Task:
        step = by_key[begun.key]
        (work / step.key).mkdir(parents=True)
        inputs = {key: results[key] for key in step.needs}
        payload = StepJob(
            step, plain, folder / ".study", work / step.key, folder, inputs,
            workers.threads,
        )  # fmt: skip
        return Task(step.key, do_step, payload)

    def keep(key: str, result: Any, took_s: float) -> Any:
        step = by_key[key]
        record = {
            "schema": SCHEMA, "digest": digests[key], "run": step.factors,
            "took_s": round(took_s, 2), "files": _adopt(work / key, folder, step.place),
            "result": result,
        }  # fmt: skip
        json.dumps(result, allow_nan=False)
        write_json(folder / "runs" / f"{key}.json", record, lasting=False)
        results[key] = result
        return result

    def end(outcome: StepOutcome) -> None:
        if outcome.state == "done":
            conduct.on_run(outcome.key, outcome.took_s)

    def find(key: str) -> Any:
        results[key] = _read_result(folder, key, digests[key])
        return results[key]

    schedule = Schedule(
        [WorkStep(step.key, step.needs, step.cost) for step in steps], frozenset(kept), claims.share
    )
    advice = "run the study again with fewer workers"
    with open_workers(conduct.workers, folder, advice=advice, fitting=fitting) as workers:
        outcomes = do_steps(
            schedule, workers, make_task, folder=claims, find=find, kept=kept, keep=keep,
            on_outcome=end, noun="runs", progress=conduct.progress,
        )  # fmt: skip
    reasons = {key: (one.state, one.reason) for key, one in outcomes.items()}
    failed = {key: why for key, (state, why) in reasons.items() if state in ("failed", "left out")}
    elsewhere = {
        key: why for key, (state, why) in reasons.items() if state in ("elsewhere", "waiting")
    }
    finished = sum(state == "done" for state, _ in reasons.values())
    there = {key: results[key] for key in by_key if key in results}
    return StudyResults(there, failed, len(there) - finished, elsewhere)


def do_step(job: StepJob, progress: Progress) -> Any:
    """Do a run in a worker."""
    progress(0.0, job.step.name)
    return load(job.step.do)(job, progress)


def _digests(
    steps: Sequence[Step], facts: Mapping[str, Any], versions: Mapping[str, str], settings: Any
) -> dict[str, str]:
    digests: dict[str, str] = {}
    for step in steps:
        data = facts if step.uses is None else {name: facts["digests"][name] for name in step.uses}
        content = {
            "facts": data, "versions": versions, "do": step.do, "factors": step.factors,
            "options": step.options,
            "settings": _without(asdict(settings), step.ignores),
            "needs": [digests[key] for key in step.needs],
        }  # fmt: skip
        digests[step.key] = digest_of(content)
    return digests


def _without(values: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {
        name: _without(value, names) if isinstance(value, dict) else value
        for name, value in values.items()
        if name not in names
    }


def _adopt(work: Path, study: Path, place: str) -> list[FileState]:
    """Move the files of a run to their place."""
    states = []
    for path in sorted(work.iterdir()):
        target = study / place / path.name
        target.parent.mkdir(exist_ok=True)
        if target.is_dir():
            shutil.rmtree(target)
        path.replace(target)
        digest = file_digest(target) if target.is_file() else ""
        states.append(replace(file_state(target), name=f"{place}/{path.name}", sha256=digest))
    work.rmdir()
    return states


def _read_kept(folder: Path, digests: Mapping[str, str]) -> dict[str, Any]:
    """Return the results that exist and still fit their digests, by key."""
    results = {}
    for key, digest in digests.items():
        with suppress(LookupError):
            results[key] = _read_result(folder, key, digest)
    return results


def _read_result(folder: Path, key: str, digest: str) -> Any:
    """Return the result of a run; raise `LookupError` unless one has its digest."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        record = json.loads((folder / "runs" / f"{key}.json").read_text(encoding="utf-8"))
        files = [FileState(**state) for state in record["files"]]
        if record["digest"] == digest and all(_is_there(folder, file) for file in files):
            return record["result"]
    raise LookupError(key)


def _is_there(folder: Path, file: FileState) -> bool:
    path = folder / file.name
    return path.is_dir() or file.is_unchanged(path)


def _versions() -> dict[str, str]:
    versions = {}
    for name in _PROGRAMS:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _refuse_other_study(folder: Path, protocol: Protocol) -> None:
    file = folder / "study.json"
    if not file.exists():
        return
    content: Any = None
    with suppress(ValueError):
        content = json.loads(file.read_bytes())
    if not isinstance(content, dict) or (content.get("schema"), content.get("study")) != (
        SCHEMA, protocol.name,
    ):  # fmt: skip
        raise InvalidInputError(f"{folder} holds another study; choose another folder with -o")
