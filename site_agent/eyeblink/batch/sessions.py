"""The sessions of a batch: from a folder of recordings, or from a table (`session_table`)."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from site_agent.errors import BlinkAnalysisError
from site_agent.eyeblink.openness.traces import looks_like_trace
from site_agent.eyeblink.session_labels import SessionLabels
from site_agent.eyeblink.video.image_folder import TIMESTAMPS_NAME
from site_agent.pictures.images import is_clutter

VIDEO_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("3gp", "avi", "flv", "m2ts", "m4v", "mkv", "mov", "mp4", "mpeg"),
        *("mpg", "mts", "mxf", "ogv", "ts", "webm", "wmv", "y4m"),
    )
)
TRACE_SUFFIXES = frozenset({".csv", ".tsv", ".txt"})
BIDS_COLUMNS = ("bids_subject", "bids_session", "task")
"""Settings of a session that its BIDS names come from."""

_TRIALS_NAME = re.compile(r"(.+)[_\-.](trials|events|ttl)", re.IGNORECASE)
_PARTICIPANT = re.compile(r"(?:^|[_\-/. ])sub-([0-9A-Za-z]+)")
_SESSION = re.compile(r"(?:^|[_\-/. ])ses-([0-9A-Za-z]+)")
_LONGEST_NAME = 120


@dataclass(frozen=True)
class BatchSession:
    """One recording of a batch.

    Attributes
    ----------
    name : str
        Its folder in the study.
    source : Path
        The video (or folder of images), or the trace of eye aspect ratios.
    timestamps : Path or None
        Times of a folder's images, where they are not in it; or of a video's frames.
    participant, group : str
        Empty where not known.
    number : float
        Its number among the participant's sessions; NaN where not known.
    frame_rate_hz : float or None
        Of a trace or a folder of images that has no times; of a video, instead of those in its
        file.
    detector, landmarks : str
        Model files or pool addresses of this session alone; empty for the batch's.
    overrides : mapping of str to str
        Settings of this session alone, as they stand in the table.
    line : int
        Line of the table, 0 where there is none.
    """

    name: str
    source: Path
    is_video: bool
    trials: Path | None = None
    timestamps: Path | None = None
    participant: str = ""
    group: str = ""
    number: float = math.nan
    frame_rate_hz: float | None = None
    detector: str = ""
    landmarks: str = ""
    overrides: Mapping[str, str] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True)
class SessionList:
    """Sessions in the order of the table, and what was noticed while reading."""

    sessions: tuple[BatchSession, ...]
    remarks: tuple[str, ...] = ()


def find_sessions(folder: Path, *, videos: bool, leave_out: Path | None = None) -> SessionList:
    """Return the recordings in a folder and in the folders below it.

    Videos are known by the ending of their names, folders of images by their ``timestamps.csv``,
    traces (``.csv``, ``.tsv``, ``.txt``) by their content. ``NAME_trials.csv`` (also ``_events``
    and ``_ttl``) holds the trials of the recording ``NAME``. Names such as ``sub-01_ses-2``
    give participant and session.

    The folder `leave_out`, the study's own, is not searched.
    """
    recordings: list[Path] = []
    trials: dict[Path, Path] = {}
    others: list[Path] = []
    for path in _files(folder, leave_out):
        suffix, named = path.suffix.lower(), _TRIALS_NAME.fullmatch(path.stem)
        is_video = suffix in VIDEO_SUFFIXES or path.is_dir()
        if suffix in TRACE_SUFFIXES and named:
            trials[path.with_name(named[1])] = path
        elif is_video and videos:
            recordings.append(path)
        elif suffix in TRACE_SUFFIXES and not videos and not path.stem.endswith("_truth"):
            (recordings if looks_like_trace(path) else others).append(path)
    remarks = []
    if others:
        names = ", ".join(path.name for path in others)
        remarks.append(f"not traces of eye aspect ratios, left out: {names}")
    sessions = []
    for path, name in zip(recordings, _names(folder, recordings), strict=True):
        relative = path.relative_to(folder).as_posix()
        participant, session = _PARTICIPANT.search(relative), _SESSION.search(relative)
        sessions.append(
            BatchSession(
                name=name,
                source=path,
                is_video=videos,
                trials=trials.pop(_stem(path), None),
                participant=participant[1] if participant else "",
                number=session_number(session[1]) if session else math.nan,
            )
        )
    remarks += [f"{path.name}: no recording has this name, left out" for path in trials.values()]
    return SessionList(tuple(sessions), tuple(remarks))


def name_problem(name: str) -> str:
    """Return why a name cannot be that of a session's folder; empty where it can."""
    if not name:
        return "the session has no name"
    if (
        name.startswith(".")
        or name.endswith((".", " "))
        or re.search(r'[/\\:*?"<>|\x00-\x1f]', name)
    ):
        return f"the session name {name!r} cannot be the name of a folder"
    if len(name.encode("utf-8")) > _LONGEST_NAME:
        return f"the session name {name[:30]!r}... is longer than {_LONGEST_NAME} bytes"
    return ""


def session_number(text: str) -> float:
    """Return the number that a label ends with (``2``, ``ses-02``, ``day3``), NaN without one."""
    found = re.fullmatch(r"[A-Za-z_\- ]*(\d+(?:\.\d+)?)", text.strip())
    return float(found[1]) if found else math.nan


def with_models(
    sessions: Iterable[BatchSession], files: Mapping[str, Path]
) -> tuple[BatchSession, ...]:
    """Return the sessions with the words for their models replaced by files."""
    return tuple(
        replace(
            session,
            detector=str(files.get(session.detector, session.detector)),
            landmarks=str(files.get(session.landmarks, session.landmarks)),
        )
        for session in sessions
    )


def with_bids_labels(
    sessions: Iterable[BatchSession], *, task: str = ""
) -> tuple[BatchSession, ...]:
    """Return the sessions with labels for BIDS names: participant and number, where not given.

    Raises
    ------
    BlinkAnalysisError
        A session has no participant, a label that BIDS does not allow, or the labels of another.
    """
    labelled = []
    first: dict[SessionLabels, str] = {}
    for session in sessions:
        given = {name: session.overrides.get(name, "") for name in BIDS_COLUMNS}
        number = f"{session.number:02g}" if float(session.number).is_integer() else ""
        subject = given["bids_subject"] or session.participant
        if not subject:
            raise BlinkAnalysisError(
                f"the session {session.name!r} has no participant; names of the BIDS standard "
                "need one (column participant, or bids_subject)"
            )
        try:
            labels = SessionLabels(subject, given["bids_session"] or number, given["task"] or task)
        except BlinkAnalysisError as error:
            raise BlinkAnalysisError(f"the session {session.name!r}: {error}") from error
        if labels in first:
            raise BlinkAnalysisError(
                f"{first[labels]!r} and {session.name!r} would have the same BIDS names (subject "
                f"{labels.subject}, session {labels.session or 'none'}); give them a session_number"
            )
        first[labels] = session.name
        chosen = zip(BIDS_COLUMNS, (labels.subject, labels.session, labels.task), strict=True)
        overrides = {**session.overrides, **{name: label for name, label in chosen if label}}
        labelled.append(replace(session, overrides=overrides))
    return tuple(labelled)


def _files(folder: Path, leave_out: Path | None) -> list[Path]:
    found = []
    hidden = leave_out.resolve() if leave_out is not None else None
    for root, folders, names in os.walk(folder):
        here = Path(root)
        if TIMESTAMPS_NAME in names and here != folder:
            found.append(here)
            folders.clear()
            continue
        folders[:] = sorted(
            name for name in folders if not is_clutter(name) and (here / name).resolve() != hidden
        )
        found += [here / name for name in sorted(names) if not is_clutter(name)]
    return found


def _stem(path: Path) -> Path:
    return path if path.is_dir() else path.with_suffix("")


def _names(folder: Path, paths: list[Path]) -> list[str]:
    """Name the sessions by their files, with the folders where the names alone repeat."""
    short = [_stem(path).name for path in paths]
    if len({name.casefold() for name in short}) == len(paths):
        return short
    return ["_".join(path.relative_to(folder).parts) for path in paths]
