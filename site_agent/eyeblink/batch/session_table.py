"""The table of a batch: one line a recording."""

from __future__ import annotations

import math
from pathlib import Path

from site_agent.errors import BlinkAnalysisError, ConditioningError, TableFileError
from site_agent.eyeblink.batch.sessions import (
    BatchSession,
    SessionList,
    name_problem,
)
from site_agent.eyeblink.batch.settings import SETTING_NAMES, with_overrides
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.text_tables import TableRow, TextTable, read_table

COLUMNS = (
    "session",
    "video",
    "trace",
    "trials",
    "timestamps",
    "participant",
    "session_number",
    "group",
    "frame_rate_hz",
    "detector",
    "landmarks",
)


def read_session_table(path: Path | str) -> SessionList:
    """Read the sessions of a batch.

    Columns: ``video`` or ``trace`` (one of them in each line; paths relative to the table),
    ``session`` (names the result's folder; the file's name when left out), ``trials``,
    ``timestamps`` (of a folder of images, or of a video's frames), ``participant``,
    ``session_number``, ``group``, ``frame_rate_hz`` (where a recording has no times, and for
    videos instead of those in the file), ``detector``, ``landmarks``, and any setting by its name
    (``latency_ms``, ``cr_threshold``); empty cells mean the batch's own.

    A missing recording fails its session only.

    Raises
    ------
    TableFileError
        Every line that cannot be used, with what was found and what was expected.
    """
    table = read_table(Path(path))
    if "video" not in table.columns and "trace" not in table.columns:
        found = ", ".join(table.columns)[:200]
        raise TableFileError(
            table.path, [(0, f"the columns are {found}; expected video or trace, and session")]
        )
    problems: list[tuple[int, str]] = []
    sessions: list[BatchSession] = []
    for row in table.rows:
        try:
            sessions.append(_session(table.path.parent, row))
        except (ValueError, BlinkAnalysisError, ConditioningError) as error:
            problems.append((row.line, str(error)))
    problems += _name_problems(sessions)
    if not len(table):
        problems.append((0, "has a header but no session"))
    if problems:
        raise TableFileError(table.path, sorted(problems))
    return SessionList(tuple(sessions), _remarks(table))


def _session(folder: Path, row: TableRow) -> BatchSession:
    """Read one line; the ValueError of a wrong one says what is wrong."""

    def cell(name: str) -> str:
        return row.cells.get(name, "")

    def number(name: str) -> float:
        try:
            return float(cell(name))
        except ValueError as error:
            raise ValueError(f"{name} is {cell(name)!r}, expected a number") from error

    video, trace = cell("video"), cell("trace")
    if bool(video) == bool(trace):
        raise ValueError(
            "video and trace are both given; expected one of them"
            if video
            else "neither video nor trace is given"
        )
    source = folder / (video or trace)
    rate_hz = number("frame_rate_hz") if cell("frame_rate_hz") else None
    if rate_hz is not None and not 0 < rate_hz < 100_000:
        raise ValueError(f"frame_rate_hz is {rate_hz:g}, expected frames per second, more than 0")
    overrides = {name: text for name, text in row.cells.items() if name in SETTING_NAMES and text}
    with_overrides(BlinkAnalysisSettings(), overrides)
    return BatchSession(
        name=cell("session") or source.stem,
        source=source,
        is_video=bool(video),
        trials=folder / cell("trials") if cell("trials") else None,
        timestamps=folder / cell("timestamps") if cell("timestamps") else None,
        participant=cell("participant"),
        group=cell("group"),
        number=number("session_number") if cell("session_number") else math.nan,
        frame_rate_hz=rate_hz,
        detector=_model(folder, cell("detector")),
        landmarks=_model(folder, cell("landmarks")),
        overrides=overrides,
        line=row.line,
    )


def _model(folder: Path, word: str) -> str:
    """A file beside the table by its path; anything else (a pool address) as it stands."""
    beside = folder / word
    return str(beside) if word and beside.is_file() else word


def _name_problems(sessions: list[BatchSession]) -> list[tuple[int, str]]:
    problems = [
        (session.line, problem) for session in sessions if (problem := name_problem(session.name))
    ]
    first: dict[str, int] = {}
    for session in sessions:
        # Some file systems ignore case.
        before = first.setdefault(session.name.casefold(), session.line)
        if before != session.line:
            problems.append((session.line, f"the session {session.name!r} is on line {before} too"))
    return problems


def _remarks(table: TextTable) -> tuple[str, ...]:
    return tuple(
        f"{table.path.name}: the column {column!r} is not used; expected {', '.join(COLUMNS)} or "
        "the name of a setting"
        for column in table.columns
        if column not in COLUMNS and column not in SETTING_NAMES
    )
