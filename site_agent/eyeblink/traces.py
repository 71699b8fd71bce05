"""Readers of files of eye aspect ratios, our own and those of other programs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from site_agent.errors import TraceFileError
from site_agent.eyeblink.records import EyeTrace, Float64, Gap, mean_of_valid_eyes

Cell = TypeVar("Cell", float, int, bool)

_LOOKED_AT_LINES = 50


def read_trace(path: Path | str, *, frame_rate_hz: float | None = None) -> EyeTrace:
    """Read a trace of eye aspect ratios.

    Parameters
    ----------
    path : path
        One value a line (``x`` where no face was found; a leading ``* `` is ignored), or a
        table with a header in which these columns are looked for: ``timestamp_s`` or ``frame``;
        ``ear``, or ``ear_left`` and ``ear_right`` (also ``EAR2D6_l`` and ``EAR2D6_r``);
        ``valid`` (also ``EAR2D6_valid``). ``frames.csv`` of this program is such a table.
    frame_rate_hz : float, optional
        Needed where the file has no times.

    Raises
    ------
    TraceFileError
        With the file and the line.
    """
    path = Path(path)
    if frame_rate_hz is not None and not (0 < frame_rate_hz < 100_000):
        raise TraceFileError(f"frame rate {frame_rate_hz}: expected more than 0 frames a second")
    lines = _read_lines(path)
    first = next((line for line in lines if line.strip()), "")
    if not first:
        raise TraceFileError(f"{path}: the file is empty, expected eye aspect ratios")
    read_columns = _table_columns if _is_header(first) else _plain_columns
    return _as_trace(path, read_columns(path, lines), frame_rate_hz)


def looks_like_trace(path: Path | str) -> bool:
    """Tell by the first lines of a file whether `read_trace` is likely to read it.

    A log file or a list of trials in the same folder is no trace. False where the file cannot be
    read.
    """
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            lines = [line for line in islice(file, _LOOKED_AT_LINES) if line.strip()]
    except (OSError, UnicodeDecodeError):
        return False
    if not lines:
        return False
    if _is_header(lines[0]):
        names = set(_split(lines[0]))
        return bool(names.intersection(_MEAN_NAMES)) or all(
            names.intersection(eye) for eye in (_LEFT_NAMES, _RIGHT_NAMES)
        )
    try:
        _plain_columns(Path(path), lines)
    except TraceFileError:
        return False
    return True


@dataclass(frozen=True)
class _Columns:
    """What a file gave; `lines` are 1-based line numbers, for messages."""

    lines: list[int]
    times_s: list[float] | None
    frames: list[int] | None
    ear_left: list[float] | None
    ear_right: list[float] | None
    ear: list[float]
    valid: list[bool]


def _read_lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise TraceFileError(
            f"{path}: byte {error.start} is no text; expected a text file of eye aspect ratios"
        ) from error
    except OSError as error:
        raise TraceFileError(f"{path}: {error.strerror or error}") from error
    if "\0" in text:
        raise TraceFileError(f"{path}: holds zero bytes; expected a text file")
    return text.splitlines()


def _is_header(line: str) -> bool:
    return any(_delimiter(line) in line and name in _split(line) for name in _KNOWN_NAMES) or (
        line.strip().lower() in _KNOWN_NAMES
    )


_TIME_NAMES = ("timestamp_s", "time_s", "timestamp")
_FRAME_NAMES = ("frame", "frame_number")
_LEFT_NAMES = ("ear_left", "ear2d6_l", "ear_l", "left_ear")
_RIGHT_NAMES = ("ear_right", "ear2d6_r", "ear_r", "right_ear")
_MEAN_NAMES = ("ear",)
_VALID_NAMES = ("valid", "ear2d6_valid", "ear_valid")
_KNOWN_NAMES = {*_TIME_NAMES, *_FRAME_NAMES, *_LEFT_NAMES, *_RIGHT_NAMES, *_MEAN_NAMES}


def _delimiter(line: str) -> str:
    return max((",", ";", "\t"), key=line.count)


def _split(line: str) -> list[str]:
    return [cell.strip().lower() for cell in line.split(_delimiter(line))]


def _plain_columns(path: Path, lines: Sequence[str]) -> _Columns:
    numbers: list[int] = []
    ear: list[float] = []
    for number, line in enumerate(lines, start=1):
        word = line.strip().removeprefix("*").strip()
        if not word:
            continue
        numbers.append(number)
        ear.append(_ear_value(path, number, word))
    return _Columns(numbers, None, None, None, None, ear, [True] * len(ear))


def _ear_value(path: Path, line: int, word: str) -> float:
    """Read one value; "x", "nan" and an empty cell are NaN."""
    if word.lower() in {"x", "", "nan", "na", "none", "null"}:
        return float("nan")
    try:
        value = float(word)
    except ValueError as error:
        raise TraceFileError(
            f"{path}, line {line}: found {word[:40]!r}, expected an eye aspect ratio or x"
        ) from error
    if not np.isfinite(value):
        return float("nan")
    if not -0.01 <= value <= 10.0:
        raise TraceFileError(
            f"{path}, line {line}: found {word[:40]}, expected an eye aspect ratio from 0 to 10"
        )
    return value


def _table_columns(path: Path, lines: Sequence[str]) -> _Columns:
    header_line = next(number for number, line in enumerate(lines) if line.strip())
    names = _split(lines[header_line])
    delimiter = _delimiter(lines[header_line])

    def position(candidates: Sequence[str]) -> int | None:
        return next((names.index(name) for name in candidates if name in names), None)

    time_at, frame_at = position(_TIME_NAMES), position(_FRAME_NAMES)
    left_at, right_at = position(_LEFT_NAMES), position(_RIGHT_NAMES)
    mean_at, valid_at = position(_MEAN_NAMES), position(_VALID_NAMES)
    if mean_at is None and (left_at is None or right_at is None):
        raise TraceFileError(
            f"{path}, line {header_line + 1}: found the columns {', '.join(names)[:200]}; "
            "expected ear, or ear_left and ear_right"
        )
    rows = list(_rows(path, lines, header_line, delimiter, len(names)))

    def column(at: int | None, read: Callable[[Path, int, str], Cell]) -> list[Cell] | None:
        return None if at is None else [read(path, number, row[at]) for number, row in rows]

    left, right = column(left_at, _ear_value), column(right_at, _ear_value)
    ear = column(mean_at, _ear_value)
    if ear is None:
        ear = mean_of_valid_eyes(np.array(left), np.array(right)).tolist()
    return _Columns(
        lines=[number for number, _ in rows],
        times_s=column(time_at, _time_value),
        frames=column(frame_at, _frame_value),
        ear_left=left,
        ear_right=right,
        ear=ear,
        valid=column(valid_at, _truth_value) or [True] * len(rows),
    )


def _rows(
    path: Path, lines: Sequence[str], header_line: int, delimiter: str, width: int
) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(lines[header_line + 1 :], start=header_line + 2):
        if not line.strip():
            continue
        row = next(csv.reader([line], delimiter=delimiter))
        if len(row) != width:
            raise TraceFileError(
                f"{path}, line {number}: found {len(row)} cells, expected {width} as in the header"
            )
        yield number, [cell.strip() for cell in row]


def _time_value(path: Path, line: int, word: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise TraceFileError(
            f"{path}, line {line}: found {word[:40]!r}, expected a time in seconds"
        )
    return value


def _frame_value(path: Path, line: int, word: str) -> int:
    try:
        return int(float(word))
    except (ValueError, OverflowError) as error:
        raise TraceFileError(
            f"{path}, line {line}: found {word[:40]!r}, expected a frame number"
        ) from error


def _truth_value(path: Path, line: int, word: str) -> bool:
    truth = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if word.lower() not in truth:
        raise TraceFileError(f"{path}, line {line}: found {word[:40]!r}, expected true or false")
    return truth[word.lower()]


def _as_trace(path: Path, columns: _Columns, frame_rate_hz: float | None) -> EyeTrace:
    count = len(columns.ear)
    if count == 0:
        raise TraceFileError(f"{path}: no values, expected eye aspect ratios")
    frames = np.array(columns.frames if columns.frames is not None else range(count), np.int64)
    if columns.times_s is not None:
        times_s = np.array(columns.times_s)
    elif frame_rate_hz is None:
        raise TraceFileError(
            f"{path}: has no column timestamp_s; give the frame rate of the recording "
            "(--frame-rate-hz)"
        )
    else:
        times_s = (frames - frames[0]) / frame_rate_hz
    _check_order(path, times_s, columns.lines)
    valid = np.array(columns.valid)

    def where_valid(values: list[float] | None) -> Float64:
        array = np.full(count, np.nan) if values is None else np.array(values, dtype=np.float64)
        return np.where(valid, array, np.nan)

    ear = where_valid(columns.ear)
    gaps = np.where(valid, np.where(np.isfinite(ear), Gap.NONE, Gap.NO_FACE), Gap.MARKED_INVALID)
    return EyeTrace(
        frames=frames,
        timestamps_s=times_s,
        ear_left=where_valid(columns.ear_left),
        ear_right=where_valid(columns.ear_right),
        ear=ear,
        confidence=np.isfinite(ear).astype(np.float64),
        gaps=gaps.astype(np.uint8),
    )


def _check_order(path: Path, times_s: Float64, lines: Sequence[int]) -> None:
    backwards = np.flatnonzero(np.diff(times_s) <= 0)
    if len(backwards):
        at = int(backwards[0]) + 1
        raise TraceFileError(
            f"{path}, line {lines[at]}: time {times_s[at]:.6g} s does not come after "
            f"{times_s[at - 1]:.6g} s"
        )
