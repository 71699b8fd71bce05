"""study.json: what a study keeps of a session, in the session's own folder.

It is written last, so a folder that has it is complete. It holds the digests of the sources, every
setting and the version of this program.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from aggregators.whole_file import write_whole
from site_agent.errors import StudyFolderError
from site_agent.eyeblink.batch.sessions import BatchSession
from site_agent.eyeblink.batch.settings import plain_settings
from site_agent.eyeblink.conditioning.trials import Trial, TrialType
from site_agent.eyeblink.outputs.json_files import versions
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.session_folder import RECORD_NAME
from site_agent.plain_json import plain

SCHEMA = "poolctl-study-session/1"


@dataclass(frozen=True)
class SourceState:
    """A file that a session is made of; `size` and `mtime_ns` save reading it again."""

    name: str
    size: int
    mtime_ns: int
    sha256: str = ""

    def is_still(self, path: Path) -> bool:
        """Return whether `path` still has the content of the digest."""
        try:
            now = source_state(path)
        except OSError:
            return False
        if not self.sha256 or now.size != self.size:
            return False
        return now.mtime_ns == self.mtime_ns or (
            path.is_file() and file_digest(path) == self.sha256
        )


@dataclass(frozen=True)
class Request:
    """What was asked of an analysis: equal requests have equal results.

    `settings` are plain JSON types. The roles of sources are ``video`` or ``trace``, ``trials``,
    ``timestamps``, ``detector`` and ``landmarks``.
    """

    poolctl: str
    frame_rate_hz: float | None
    settings: Mapping[str, Any]
    sources: Mapping[str, SourceState]


@dataclass(frozen=True)
class SessionRecord:
    """A finished session.

    Attributes
    ----------
    number : float
        NaN where not known.
    summary : mapping of str to number
        Of the blinks, as in `BlinkSession`, JSON-able.
    conditioning : mapping or None
        Of the trials, as in `SessionSummary`; None where there are none.
    trials : tuple of Trial
        On the clock of the video, latencies corrected.
    files : tuple of str
        What the analysis wrote, relative to the folder.
    """

    name: str
    participant: str
    group: str
    number: float
    request: Request
    summary: Mapping[str, Any]
    conditioning: Mapping[str, Any] | None = None
    trials: tuple[Trial, ...] = ()
    warnings: tuple[str, ...] = ()
    files: tuple[str, ...] = field(default=())


def source_state(path: Path) -> SourceState:
    """Return size and time of a file, of all files in a folder together."""
    stats = [path.stat()]
    if path.is_dir():
        stats = [entry.stat() for entry in path.iterdir() if entry.is_file()] or stats
    return SourceState(
        path.name, sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)
    )


def make_request(session: BatchSession, settings: BlinkAnalysisSettings) -> Request:
    """Say what an analysis of the session is asked to do; the digests are not known yet."""
    return Request(
        poolctl=versions()["poolctl"],
        frame_rate_hz=session.frame_rate_hz,
        settings=plain_settings(settings),
        sources={role: source_state(path) for role, path in source_paths(session).items()},
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
            state.name == paths[role].name and state.is_still(paths[role])
            for role, state in made.sources.items()
        )
    )


def write_record(record: SessionRecord, folder: Path) -> None:
    """Write the record into the session's folder, whole or not at all."""
    content = {"schema": SCHEMA, **plain(asdict(record))}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(folder / RECORD_NAME, text + "\n")


def read_record(folder: Path) -> SessionRecord:
    """Read the record of a session's folder."""
    path = folder / RECORD_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.pop("schema") != SCHEMA:
            raise StudyFolderError(f"{path}: written by another version of this program")
        request = content.pop("request")
        sources = {name: SourceState(**item) for name, item in request.pop("sources").items()}
        trials = [
            Trial(
                **item
                | {"trial_type": TrialType(item["trial_type"])}
                | {name: _number(item[name]) for name in ("cs_onset_s", "us_onset_s")}
            )
            for item in content.pop("trials")
        ]
        for name in ("warnings", "files"):
            content[name] = tuple(content[name])
        return SessionRecord(
            **content | {"number": _number(content["number"])},
            request=Request(**request, sources=sources),
            trials=tuple(trials),
        )
    except OSError as error:
        raise StudyFolderError(f"{path}: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StudyFolderError(
            f"{path}: is damaged ({error}); delete the folder and run the batch again"
        ) from error


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
