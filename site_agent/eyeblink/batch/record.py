"""The record of an analysed session (study.json, in its own folder), and outcomes of a batch.

The record is written last, so a folder that has it is complete. It holds the digests of the
sources, every setting and the version of this program.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from site_agent.datasets.trials import Trial
from site_agent.errors import StudyFolderError
from site_agent.eyeblink.batch.sessions import BatchSession
from site_agent.eyeblink.outputs.json_files import versions
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.session_folder import RECORD_NAME
from site_agent.plain_json import Number, plain, write_json
from site_agent.tables import Table, columns_of
from site_agent.work.files import FileState, file_state

SCHEMA = "poolctl-study-session/1"
BATCH = Table(
    "batch",
    columns_of(("session", "state", "reason", "frames", "blinks", "seconds", "warnings"), ".7g"),
)


@dataclass(frozen=True)
class Request:
    """The request for an analysis: equal requests have equal results.

    The roles of sources are ``video`` or ``trace``, ``trials``, ``timestamps``, ``detector`` and
    ``landmarks``.
    """

    poolctl: str
    frame_rate_hz: float | None
    settings: Mapping[str, Any]
    """Plain JSON types."""
    sources: Mapping[str, FileState]


@dataclass(frozen=True)
class SessionRecord:
    """A finished session."""

    name: str
    participant: str
    group: str
    number: Number
    """NaN where not known."""
    request: Request
    summary: Mapping[str, Any]
    conditioning: Mapping[str, Any] | None = None
    trials: tuple[Trial, ...] = ()
    """On the clock of the video, latencies corrected."""
    warnings: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """The laboratory's own columns of the table of sessions."""
    files: tuple[str, ...] = ()


_RECORD = TypeAdapter(SessionRecord)


def make_request(session: BatchSession, settings: BlinkAnalysisSettings) -> Request:
    """Return the request that an analysis of the session answers, still without digests."""
    return Request(
        poolctl=versions()["poolctl"],
        frame_rate_hz=session.frame_rate_hz,
        settings=plain(settings),
        sources={role: file_state(path) for role, path in source_paths(session).items()},
    )


def source_paths(session: BatchSession) -> dict[str, Path]:
    """Return the files of a session by role."""
    paths = {"video" if session.is_video else "trace": session.source}
    optional = {"trials": session.trials, "timestamps": session.timestamps}
    paths |= {role: path for role, path in optional.items() if path is not None}
    if session.is_video:
        paths["landmarks"] = Path(session.landmarks)
        if session.detector:
            paths["detector"] = Path(session.detector)
    return paths


def is_finished(folder: Path, record: SessionRecord, session: BatchSession, asked: Request) -> bool:
    """Return whether a folder holds the results of this request."""
    made = record.request
    paths = source_paths(session)
    return (
        (made.poolctl, made.frame_rate_hz, made.settings)
        == (asked.poolctl, asked.frame_rate_hz, asked.settings)
        and made.sources.keys() == asked.sources.keys()
        and all((folder / name).is_file() for name in record.files)
        and all(
            state.name == paths[role].name and state.is_unchanged(paths[role])
            for role, state in made.sources.items()
        )
    )


def write_record(record: SessionRecord, folder: Path) -> None:
    """Write the record into the session's folder, whole or not at all."""
    write_json(folder / RECORD_NAME, {"schema": SCHEMA, **plain(record)})


def read_record(folder: Path) -> SessionRecord:
    """Read the record of a session's folder."""
    path = folder / RECORD_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("schema") != SCHEMA:
            raise StudyFolderError(f"{path}: written by another version of this program")
        return _RECORD.validate_python(content)
    except OSError as error:
        raise StudyFolderError(f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StudyFolderError(
            f"{path}: is damaged ({error}); delete the folder and run the batch again"
        ) from error


State = Literal["done", "failed", "skipped", "pending"]


@dataclass(frozen=True)
class SessionOutcome:
    """The outcome of one session of a batch.

    State `skipped`: finished before, and left as it is; `pending`: the batch was ended before.
    """

    session: str
    state: State
    reason: str = ""
    took_s: float = 0.0
    record: SessionRecord | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.record.warnings if self.record else ()


@dataclass(frozen=True)
class BatchResult:
    """The outcomes of all sessions, in the order of the batch."""

    study: Path
    outcomes: tuple[SessionOutcome, ...]
    workers: int
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    """The shares that still work on sessions, by session."""

    def count(self, state: State) -> int:
        return sum(outcome.state == state for outcome in self.outcomes)

    @property
    def records(self) -> tuple[SessionRecord, ...]:
        return tuple(outcome.record for outcome in self.outcomes if outcome.record is not None)


def write_batch_table(path: Path, outcomes: Iterable[SessionOutcome]) -> None:
    """Write ``batch.csv``: one row a session, `seconds` of the recording."""
    rows = []
    for outcome in outcomes:
        summary: Mapping[str, object] = outcome.record.summary if outcome.record else {}
        numbers = [summary.get(name) for name in ("frames", "blinks", "seconds")]
        head = [outcome.session, outcome.state, " ".join(outcome.reason.split())]
        rows.append([*head, *numbers, "; ".join(outcome.warnings)])
    BATCH.write_csv(path, rows)
