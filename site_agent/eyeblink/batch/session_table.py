"""The table of a batch: one line a recording."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from site_agent.errors import BlinkAnalysisError, ConditioningError, TableFileError
from site_agent.eyeblink.batch.sessions import (
    BatchSession,
    SessionList,
    name_problem,
    session_number,
)
from site_agent.eyeblink.batch.settings import SETTING_NAMES, with_overrides
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.session_labels import SessionLabels
from site_agent.eyeblink.text_tables import TableRow, TextTable, read_table

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "session": ("session", "session_id", "name", "recording"),
    "video": ("video", "video_file", "file"),
    "trace": ("trace", "ear_trace", "trace_file"),
    "trials": ("trials", "trials_file", "trials_csv", "ttl"),
    "timestamps": ("timestamps", "timestamps_file"),
    "participant": ("participant", "participant_id", "subject", "subject_id"),
    "session_number": ("session_number", "session_no", "day"),
    "group": ("group",),
    "frame_rate_hz": ("frame_rate_hz", "frame_rate", "fps"),
    "detector": ("detector",),
    "landmarks": ("landmarks",),
}
"""What a table may tell of a session, and the names that its column may have."""


def read_session_table(path: Path | str) -> SessionList:
    """Read the sessions of a batch.

    Columns: ``video`` or ``trace`` (one of them in each line; paths relative to the table),
    ``session`` (names the result's folder; the file's name when left out), ``trials``,
    ``timestamps`` (of a folder of images, or of a video's frames), ``participant`` (or
    ``subject``), ``session_number``, ``group``, ``frame_rate_hz`` (or ``fps``; where a recording
    has no times, and for videos instead of those in the file), ``detector``, ``landmarks``, and
    any setting by its name (``latency_ms``, ``cr_threshold``); empty cells mean the batch's own.
    Where the session names repeat and there is a participant column, they number each
    participant's sessions, and the folders are called ``PARTICIPANT_SESSION``.

    A recording that is not there is no fault of the table: the session fails, the others run.

    Raises
    ------
    TableFileError
        Every line that cannot be used, with what was found and what was expected.
    """
    table = read_table(Path(path))
    known = {
        meaning: next((name for name in names if name in table.columns), None)
        for meaning, names in COLUMNS.items()
    }
    if known["video"] is None and known["trace"] is None:
        found = ", ".join(table.columns)[:200]
        raise TableFileError(
            table.path, [(0, f"the columns are {found}; expected video or trace, and session")]
        )
    problems: list[tuple[int, str]] = []
    sessions: list[BatchSession] = []
    for row in table.rows:
        try:
            sessions.append(_session(table.path.parent, row, known))
        except (ValueError, BlinkAnalysisError, ConditioningError) as error:
            problems.append((row.line, str(error)))
    sessions = _with_participants_in_names(sessions)
    problems += _name_problems(sessions)
    if not len(table):
        problems.append((0, "has a header but no session"))
    if problems:
        raise TableFileError(table.path, sorted(problems))
    return SessionList(tuple(sessions), _remarks(table, known))


def _session(folder: Path, row: TableRow, known: Mapping[str, str | None]) -> BatchSession:
    """One line as a session; ValueError says what is wrong with it."""

    def cell(meaning: str) -> str:
        name = known[meaning]
        return row.cells[name] if name is not None else ""

    video, trace = cell("video"), cell("trace")
    if bool(video) == bool(trace):
        raise ValueError(
            "video and trace are both given; expected one of them"
            if video
            else "neither video nor trace is given"
        )
    source = folder / (video or trace)
    name = cell("session") or source.stem
    return BatchSession(
        name=name,
        source=source,
        is_video=bool(video),
        trials=folder / cell("trials") if cell("trials") else None,
        timestamps=folder / cell("timestamps") if cell("timestamps") else None,
        participant=cell("participant"),
        group=cell("group"),
        number=_number(cell("session_number"), known["session_number"])
        if cell("session_number")
        else session_number(cell("session")),
        frame_rate_hz=_rate(cell("frame_rate_hz"), known["frame_rate_hz"]),
        detector=_model(folder, cell("detector")),
        landmarks=_model(folder, cell("landmarks")),
        overrides=_overrides(row),
        line=row.line,
    )


def _number(text: str, column: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError as error:
        raise ValueError(f"{column} is {text!r}, expected a number") from error


def _rate(text: str, column: str | None) -> float | None:
    rate_hz = _number(text, column)
    if math.isnan(rate_hz):
        return None
    if not 0 < rate_hz < 100_000:
        raise ValueError(f"{column} is {text!r}, expected frames per second, more than 0")
    return rate_hz


def _model(folder: Path, word: str) -> str:
    """A file beside the table by its path; anything else (a pool address) as it stands."""
    beside = folder / word
    return str(beside) if word and beside.is_file() else word


def _overrides(row: TableRow) -> dict[str, str]:
    overrides = {
        name: text for name, text in row.cells.items() if name in SETTING_NAMES and text.strip()
    }
    if _other_age(row):
        del overrides["age"]
    with_overrides(BlinkAnalysisSettings(), overrides)
    return overrides


def _other_age(row: TableRow) -> str:
    """Return an age that does not say of what: 4 is years in one table, months in another."""
    text = row.cells.get("age", "").strip()
    return "" if not text or SessionLabels.is_age(text) else text


def _with_participants_in_names(sessions: list[BatchSession]) -> list[BatchSession]:
    names = {session.name for session in sessions}
    if len(names) == len(sessions) or not all(session.participant for session in sessions):
        return sessions
    return [replace(item, name=f"{item.participant}_{item.name}") for item in sessions]


def _name_problems(sessions: list[BatchSession]) -> list[tuple[int, str]]:
    problems = [
        (session.line, problem) for session in sessions if (problem := name_problem(session.name))
    ]
    first: dict[str, int] = {}
    for session in sessions:
        # Some file systems do not tell capitals from small letters.
        before = first.setdefault(session.name.casefold(), session.line)
        if before != session.line:
            problems.append((session.line, f"the session {session.name!r} is on line {before} too"))
    return problems


def _remarks(table: TextTable, known: Mapping[str, str | None]) -> tuple[str, ...]:
    used = {*known.values(), *SETTING_NAMES}
    meant = [*(name for names in COLUMNS.values() for name in names), *SETTING_NAMES]
    remarks = []
    if (age := next(filter(None, map(_other_age, table.rows)), "")) != "":
        remarks.append(
            f"{table.path.name}: the age {age!r} is not used; expected a duration of ISO 8601 such "
            "as P21Y or P4M"
        )
    for column in table.columns:
        if column in used:
            continue
        near = difflib.get_close_matches(column, meant, 1, 0.8)
        guess = f" (is {near[0]} meant?)" if near else ""
        remarks.append(f"{table.path.name}: the column {column!r} is not used{guess}")
    return tuple(remarks)
