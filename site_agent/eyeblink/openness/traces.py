"""Readers of files of eye aspect ratios, our own and those of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from site_agent.errors import TraceFileError, TrialFileError
from site_agent.eyeblink.conditioning.delimited_text import (
    column_name,
    decode_text,
    delimiter_of,
    parse_number,
    read_text,
    split_cells,
)
from site_agent.eyeblink.records import EyeTrace, Float64, Gap, mean_of_valid_eyes
from site_agent.eyeblink.video.times import TIME_COLUMNS

Cell = TypeVar("Cell", float, int, bool)
Line = tuple[int, str]
"""A line and its number in the file, counted from 1."""

_LOOKED_AT_LINES = 50
_LOOKED_AT_BYTES = 65_536
_LONGEST_USUAL_STEP_S = 1.0


def read_trace(path: Path | str, *, frame_rate_hz: float | None = None) -> EyeTrace:
    """Read a trace of eye aspect ratios.

    Parameters
    ----------
    path : path
        One value a line (``x`` or nothing where no face was found; a leading ``* `` is ignored),
        or a table with a header in which these columns are looked for: ``timestamp_s`` or
        ``timestamp_ms`` (also ``time_s``, ``time_ms``) or ``frame``; ``ear``, or ``ear_left`` and
        ``ear_right`` (also ``EAR2D6_l`` and ``EAR2D6_r``); ``valid`` (also ``EAR2D6_valid``).
        ``timestamp`` and ``time`` are taken as seconds where that can be. Where they, or
        milliseconds, cannot be used, and the frame rate is given, it counts. ``frames.csv`` of this
        program is such a table. Separators, decimal commas, encodings and lines that begin with
        ``#`` are those of a list of trials (see `delimited_text.read_text_table`).
    frame_rate_hz : float, optional
        Needed where the file has no times that can be used.

    Raises
    ------
    TraceFileError
        With the file and the line.
    """
    path = Path(path)
    if frame_rate_hz is not None and not (0 < frame_rate_hz < 100_000):
        raise TraceFileError(f"frame rate {frame_rate_hz}: expected more than 0 frames a second")
    try:
        lines = _lines_of(read_text(path))
    except TrialFileError as error:
        raise TraceFileError(str(error)) from error
    if not lines:
        raise TraceFileError(f"{path}: the file is empty, expected eye aspect ratios")
    columns = (
        _table_columns(path, lines, times_needed=frame_rate_hz is None)
        if _is_header(lines[0][1])
        else _plain_columns(path, lines)
    )
    return _as_trace(path, columns, frame_rate_hz)


def looks_like_trace(path: Path | str) -> bool:
    """Tell by the first lines of a file whether `read_trace` is likely to read it.

    A log file or a list of trials in the same folder is no trace. False where the file cannot be
    read.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            head = file.read(_LOOKED_AT_BYTES)
        lines = _lines_of(decode_text(path, head))
    except (OSError, TrialFileError):
        return False
    if len(head) == _LOOKED_AT_BYTES:
        del lines[-1:]  # it may be cut off
    del lines[_LOOKED_AT_LINES:]
    if not lines:
        return False
    if _is_header(lines[0][1]):
        return _holds_ear(_names(lines[0][1]))
    try:
        _plain_columns(path, lines)
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


def _lines_of(text: str) -> list[Line]:
    """Return the lines without comments, from the first to the last that is not blank.

    A header that is a comment, as NumPy writes it, stays, without its ``#``.
    """
    # Text that Windows made of Windows' text ends its lines with \r\r\n.
    numbered = list(enumerate(text.replace("\r\r\n", "\n").splitlines(), start=1))
    lines = [(number, line) for number, line in numbered if not line.lstrip().startswith("#")]
    filled = [index for index, (_, line) in enumerate(lines) if line.strip()]
    if not filled:
        return []
    lines = lines[filled[0] : filled[-1] + 1]
    comments = [each for each in numbered[: lines[0][0] - 1] if each[1].strip()]
    if comments:
        number, comment = comments[-1]
        header = comment.strip().lstrip("#").strip()
        if _is_header_of(header, lines[0][1]):
            return [(number, header), *lines]
    return lines


def _is_header(line: str) -> bool:
    return not _KNOWN_NAMES.isdisjoint(_names(line))


def _is_header_of(header: str, line: str) -> bool:
    """Tell whether what a comment says is the header of a table that begins with this line."""
    names = _names(header)
    fits = len(split_cells(line, delimiter_of(header))) == len(names)
    return fits and _holds_ear(names) and not _is_header(line)


def _holds_ear(names: Sequence[str]) -> bool:
    eyes = (_LEFT_NAMES, _RIGHT_NAMES)
    return not set(_MEAN_NAMES).isdisjoint(names) or all(set(eye) & set(names) for eye in eyes)


_BARE_TIME_NAMES = ("timestamp", "time")
_SURE_TIME_NAMES = ("timestamp_s", "time_s")
_TIME_NAMES = (*TIME_COLUMNS, *_BARE_TIME_NAMES)
_FRAME_NAMES = ("frame", "frame_number")
_LEFT_NAMES = ("ear_left", "ear2d6_l", "ear_l", "left_ear")
_RIGHT_NAMES = ("ear_right", "ear2d6_r", "ear_r", "right_ear")
_MEAN_NAMES = ("ear",)
_VALID_NAMES = ("valid", "ear2d6_valid", "ear_valid")
_KNOWN_NAMES = {*_TIME_NAMES, *_FRAME_NAMES, *_LEFT_NAMES, *_RIGHT_NAMES, *_MEAN_NAMES}


def _names(line: str) -> list[str]:
    return [column_name(cell) for cell in split_cells(line, delimiter_of(line))]


def _plain_columns(path: Path, lines: Sequence[Line]) -> _Columns:
    # A blank line is a frame without a value: all after it would move earlier without it.
    words = [(number, line.strip().removeprefix("*").strip()) for number, line in lines]
    ear = [_ear_value(path, number, word) for number, word in words]
    numbers = [number for number, _ in words]
    return _Columns(numbers, None, None, None, None, ear, [True] * len(ear))


def _ear_value(path: Path, line: int, word: str) -> float:
    """Read one value; "x", "inf", an empty cell and what else is no number to tables are NaN."""
    if word.lower().lstrip("+-") in {"x", "inf", "infinity"}:
        return float("nan")
    try:
        value = parse_number(word)
    except ValueError as error:
        raise TraceFileError(
            f"{path}, line {line}: found {word[:40]!r}, expected an eye aspect ratio or x"
        ) from error
    if not (np.isnan(value) or -0.01 <= value <= 10.0):
        raise TraceFileError(
            f"{path}, line {line}: found {word[:40]}, expected an eye aspect ratio from 0 to 10"
        )
    return value


def _table_columns(path: Path, lines: Sequence[Line], *, times_needed: bool) -> _Columns:
    header_line, header = lines[0]
    names = _names(header)

    def position(candidates: Sequence[str]) -> int | None:
        return next((names.index(name) for name in candidates if name in names), None)

    time_at, frame_at = position(_TIME_NAMES), position(_FRAME_NAMES)
    left_at, right_at = position(_LEFT_NAMES), position(_RIGHT_NAMES)
    mean_at, valid_at = position(_MEAN_NAMES), position(_VALID_NAMES)
    if mean_at is None and (left_at is None or right_at is None):
        raise TraceFileError(
            f"{path}, line {header_line}: found the columns {', '.join(names)[:200]}; "
            "expected ear, or ear_left and ear_right"
        )
    rows = list(_rows(path, lines[1:], delimiter_of(header), len(names)))

    def column(at: int | None, read: Callable[[Path, int, str], Cell]) -> list[Cell] | None:
        return None if at is None else [read(path, number, row[at]) for number, row in rows]

    left, right = column(left_at, _ear_value), column(right_at, _ear_value)
    ear = column(mean_at, _ear_value)
    if ear is None:
        ear = mean_of_valid_eyes(np.array(left), np.array(right)).tolist()
    times_s = None
    if time_at is not None:
        cells = [(number, row[time_at]) for number, row in rows]
        times_s = _times(path, names[time_at], cells, needed=times_needed)
    return _Columns(
        lines=[number for number, _ in rows],
        times_s=times_s,
        frames=column(frame_at, _frame_value),
        ear_left=left,
        ear_right=right,
        ear=ear,
        valid=column(valid_at, _truth_value) or [True] * len(rows),
    )


def _rows(
    path: Path, lines: Sequence[Line], delimiter: str, width: int
) -> Iterator[tuple[int, list[str]]]:
    begun = False
    for number, line in lines:
        if not line.strip():
            if begun and width == 1:
                yield number, [""]  # a frame without a value, as where there is no header
            continue
        begun = True
        row = split_cells(line, delimiter)
        if len(row) != width:
            raise TraceFileError(
                f"{path}, line {number}: found {len(row)} cells, expected {width} as in the header"
            )
        yield number, [cell.strip() for cell in row]


def _times(path: Path, name: str, cells: Sequence[Line], *, needed: bool) -> list[float] | None:
    """Return the times of a column in seconds; None where they cannot be used and need not be.

    A column that says it holds seconds has to hold them.
    """
    try:
        times_s = _seconds(path, name, [_time_value(path, *cell) for cell in cells])
        _check_order(path, np.array(times_s), [number for number, _ in cells])
    except TraceFileError as error:
        if name in _SURE_TIME_NAMES:
            raise
        if not needed:
            return None
        raise TraceFileError(
            f"{error}; or give the frame rate of the recording (--frame-rate-hz), by which frames "
            f"are counted instead of the column {name}"
        ) from error
    return times_s


def _time_value(path: Path, line: int, word: str) -> float:
    try:
        value = parse_number(word)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise TraceFileError(
            f"{path}, line {line}: found {word[:40]!r}, expected a time as a number"
        )
    return value


def _seconds(path: Path, name: str, times: Sequence[float]) -> list[float]:
    """Return the times of a column in seconds; of one that does not say so, where they can be."""
    step = float(np.median(np.diff(times))) if len(times) > 1 else 0.0
    if name in _BARE_TIME_NAMES and step > _LONGEST_USUAL_STEP_S:
        raise TraceFileError(
            f"{path}: the column {name} has steps of {step:.6g}, in seconds too long for a video; "
            f"are these milliseconds? Then call it {name}_ms; {name}_s where they are seconds"
        )
    scale = TIME_COLUMNS.get(name, 1.0)
    return [time * scale for time in times]


def _frame_value(path: Path, line: int, word: str) -> int:
    try:
        return int(parse_number(word))
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
