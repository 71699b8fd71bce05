"""Files of eye aspect ratios: `frames.csv` of this program, and those of other programs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from site_agent import text_tables
from site_agent.errors import TableFileError
from site_agent.eyeblink.records import (
    POSE_COLUMNS,
    EyeTrace,
    Float64,
    Gap,
    frame_rate_of,
    mean_of_valid_eyes,
)
from site_agent.wording import count_words

_LARGEST_EAR, _LARGEST_USUAL_EAR = 10.0, 1.0
_CLOSURE = {"fec": 1.0, "closure": 1.0, "eyelid_closure": 1.0} | dict.fromkeys(
    ("fec_pct", "fec_percent", "closure_pct", "closure_percent", "eyelid_closure_pct"), 100.0
)
"""Names of a column of closures, 0 open, and the value of a shut eye."""
_PER_CENT_FROM = 2.0
_LEFT = ("ear_left", "left_ear", "ear_l", "ear2d6_l")
_RIGHT = ("ear_right", "right_ear", "ear_r", "ear2d6_r")
_VALID = ("valid", "ear2d6_valid")
_FACE_SEEN = ("success", "detected", "face_detected")
"""Names that programs also give to counts of faces and to scores."""
_FRAME = ("frame", "frames", "frame_number", "frame_no", "frame_index", "frame_id")
_VALUE = re.compile(r"|x|nan|na|n/a|[+-]?[\d.]+(e[+-]?\d+)?")
TRUTH = dict.fromkeys(("true", "1", "1.0", "yes"), True)
TRUTH |= dict.fromkeys(("false", "0", "0.0", "no"), False)
"""The words of tables for yes and no, in small letters."""


def read_trace(
    path: Path | str, *, frame_rate_hz: float | None = None, decimal: text_tables.Decimal = "auto"
) -> EyeTrace:
    """Read a trace of eye aspect ratios.

    `frame_rate_hz`: needed where the file has no column of times; elsewhere it must fit them.
    """
    path = Path(path)
    if frame_rate_hz is not None and not 0 < frame_rate_hz < 100_000:
        raise TableFileError(path, f"frame rate {frame_rate_hz}: expected more than 0")
    if _is_plain(path):
        return _plain_trace(path, frame_rate_hz, decimal)
    return _table_trace(text_tables.read_table(path, decimal), frame_rate_hz)


def looks_like_trace(path: Path | str) -> bool:
    """Return whether the first line of a file is that of a trace; False for an unreadable file."""
    path = Path(path)
    try:
        if not _is_plain(path):
            header = text_tables.header_of(path)
            return _holds_ear(header) or any(name in _CLOSURE for name in header)
        word = _word(text_tables.first_line(path))
        return bool(word) and _ear(path, [1], [word.replace(",", ".")]) is not None
    except TableFileError:
        return False


def _is_plain(path: Path) -> bool:
    """Return whether the first line is a value and not a header."""
    return _VALUE.fullmatch(_word(text_tables.first_line(path)).replace(",", ".")) is not None


def _word(line: str) -> str:
    return line.strip().removeprefix("*").strip().lower()


def _plain_trace(path: Path, frame_rate_hz: float | None, decimal: text_tables.Decimal) -> EyeTrace:
    cells = [_word(line) for line in text_tables.read_text(path)[0].rstrip().splitlines()]
    if (decimal if decimal != "auto" else text_tables.decimal_mark([cells])) == ",":
        cells = text_tables.with_points(cells)
    if not cells:
        raise TableFileError(path, "is empty; expected eye aspect ratios")
    lines = list(range(1, len(cells) + 1))
    written = _ear(path, lines, cells)
    unknown = is_placeholder(written)
    ear = np.where(unknown, np.nan, written)
    _refuse_closure(path, ear)
    frames = np.arange(len(ear))
    times_s = frames / _rate(path, frame_rate_hz)
    trace = _trace(frames, times_s, (ear, ear * np.nan, ear * np.nan), np.ones(len(ear), bool))
    return replace(trace, placeholders=int(unknown.sum()))


def _table_trace(table: text_tables.TextTable, frame_rate_hz: float | None) -> EyeTrace:
    if not _holds_ear(table.columns) and table.first_of(_CLOSURE) is None:
        raise TableFileError(
            table.path,
            [
                (
                    1,
                    f"the columns are {table.named()}; expected ear, or ear_left and ear_right, "
                    "or fec for closures",
                )
            ],
        )
    if not len(table):
        raise TableFileError(table.path, "has a header but no values")
    lines = table.lines
    names = (table.first_of(_LEFT), table.first_of(_RIGHT), table.first_of(["ear"]))
    written = [
        np.full(len(lines), np.nan) if name is None else _ear(table.path, lines, table.cells(name))
        for name in names
    ]
    unknown = [is_placeholder(values) for values in written]
    left, right, ear = (
        np.where(at, np.nan, values) for at, values in zip(unknown, written, strict=True)
    )
    closure = None if _holds_ear(table.columns) else table.first_of(_CLOSURE)
    if closure is not None:
        ear, unknown[2] = _ear_of_closure(table, closure)
    elif names[2] is None:
        ear = mean_of_valid_eyes(left, right)
    if closure is None:
        _refuse_closure(table.path, ear)
    counts = np.arange(len(lines), dtype=np.float64)
    is_timed = table.first_of(text_tables.TIME_COLUMNS) is not None
    numbered = table.first_of(_FRAME[:1] if is_timed else _FRAME)
    frames = counts if numbered is None else _known(table, table.numbers(numbered))
    if is_timed:
        times_s = _known(table, table.times_s())
    else:
        times_s = (frames - frames[0]) / _rate(table.path, frame_rate_hz)
    backwards = np.flatnonzero(np.diff(times_s) <= 0)
    if len(backwards):
        at = int(backwards[0]) + 1
        text = f"time {times_s[at]:.6g} s does not come after {times_s[at - 1]:.6g} s"
        raise TableFileError(table.path, [(lines[at], text)])
    if is_timed:
        _refuse_other_rate(table.path, times_s, frame_rate_hz)
    valid, passed_over = _valid(table)
    trace = _trace(frames.astype(np.int64), times_s, (ear, left, right), valid)
    placeholders = int(np.any(unknown, axis=0).sum())
    angles = [table.numbers(name) for name in POSE_COLUMNS if name in table.columns]
    pose_deg = np.stack(angles, axis=1) if len(angles) == len(POSE_COLUMNS) else None
    return replace(
        trace,
        placeholders=placeholders,
        of_closure=closure is not None,
        passed_over=passed_over,
        pose_deg=pose_deg,
    )


def _trace(
    frames: np.ndarray, times_s: Float64, eyes: tuple[Float64, Float64, Float64], valid: np.ndarray
) -> EyeTrace:
    ear, left, right = (np.where(valid, values, np.nan) for values in eyes)
    gaps = np.where(valid, np.where(np.isfinite(ear), Gap.NONE, Gap.NO_FACE), Gap.MARKED_INVALID)
    return EyeTrace(
        frames=frames,
        timestamps_s=times_s,
        ear_left=left,
        ear_right=right,
        ear=ear,
        confidence=np.isfinite(ear).astype(np.float64),
        gaps=gaps.astype(np.uint8),
    )


def _holds_ear(columns: Sequence[str]) -> bool:
    both = all(any(name in columns for name in eye) for eye in (_LEFT, _RIGHT))
    return "ear" in columns or both


def _ear_of_closure(table: text_tables.TextTable, column: str) -> tuple[Float64, np.ndarray]:
    """Return closures as eye aspect ratios of an eye of the usual shape, and the placeholders."""
    written = table.numbers(column)
    # Closures may be clipped: an open eye is exactly 0 for long.
    unknown = is_placeholder(written) & (written != 0)
    closure = np.where(unknown, np.nan, written)
    shut = _CLOSURE[column]
    if np.nanmax(closure, initial=0.0) > _PER_CENT_FROM:
        shut = 100.0
    closure /= shut
    odd = np.flatnonzero((closure < -1) | (closure > _PER_CENT_FROM)).tolist()
    if odd:
        expected = "expected a closure from 0 (open) to 1 or 100 % (shut)"
        raise TableFileError(
            table.path, [(table.lines[i], f"{column} is {written[i]:g}, {expected}") for i in odd]
        )
    return OPEN_EAR * (1.0 - closure), unknown


def _refuse_closure(path: Path, ear: Float64) -> None:
    """Raise for eye aspect ratios that rest near 0 and rise: they are closures, upside down."""
    known = ear[np.isfinite(ear)]
    if len(known) < _FEWEST_TO_JUDGE:
        return
    low, usual, high = np.percentile(known, [0.5, 50, 99.8])
    rises = high - usual > _CLEARLY * (usual - low)
    if rises and usual < high * (_NEAR_ZERO if high < _BEYOND_EAR else 2 * _NEAR_ZERO):
        raise TableFileError(
            path,
            f"the values rest at {usual:.3g} and rise to {high:.3g}, while eye aspect ratios rest "
            "above and fall with each blink: are they closures? Then name the column fec (0 open, "
            "1 or 100 shut)",
        )


def value_remarks(trace: EyeTrace) -> Iterator[str]:
    """Say how the values of a trace were understood where they are no usual aspect ratios."""
    if trace.placeholders:
        yield (
            f"{count_words(trace.placeholders, 'frame')} with runs of exactly the same number (0, "
            "-1, 999 or the like) were taken as frames without a value: shut lids never give them"
        )
    for column in trace.passed_over:
        yield (
            f"the column {column} holds other values than true and false (1 and 0), so no frame "
            "was left out by it; name a column of such marks valid"
        )
    usual = float(np.nanmedian(trace.ear)) if trace.valid.any() else OPEN_EAR
    if trace.of_closure and usual < OPEN_EAR / 2:
        yield (
            f"the closures rest at {1 - usual / OPEN_EAR:.2f}, so the eyes are shut most of the "
            "time: or is the column one of openness (1 open, 0 shut)? Then write 1 - openness "
            "under the name fec"
        )
    held_s = _held_s(trace)
    if len(held_s):
        yield (
            f"{count_words(len(held_s), 'time')} the value stays exactly the same, or runs along a "
            f"line, for {held_s.min():.1f} to {held_s.max():.1f} s: programs repeat or interpolate "
            "values where they lose the face. Blinks there are missing, and the rates are too low; "
            "leave such values empty"
        )
    if usual > _LARGEST_USUAL_EAR:
        yield (
            f"the values rest at {usual:.3g}, while open eyes have an aspect ratio of 0.2 to 0.5: "
            "they were taken as openings of another unit, which all results named EAR share"
        )


def _held_s(trace: EyeTrace) -> Float64:
    """Return how long values are repeated, or lie on a line, where they are too fine for chance."""
    known, times_s = trace.ear[trace.valid], trace.timestamps_s[trace.valid]
    # The mean of two eyes has rounding errors, which would pass for the finest steps.
    steps = np.diff(np.unique(np.round(known, 9)))
    bends = np.abs(np.diff(known, 2))
    if trace.of_closure or not (len(steps) and len(bends)):
        return np.empty(0)
    if np.median(bends) < _FINE * steps.min():
        return np.empty(0)
    straight = bends <= 1.5 * steps.min() + 1e-9
    edges = np.flatnonzero(np.diff(straight, prepend=False, append=False))
    first, last = edges[::2], edges[1::2] + 1
    lengths_s = times_s[last] - times_s[first]
    held_s: Float64 = lengths_s[(last - first >= _FEWEST_HELD) & (lengths_s > _SHORTEST_HELD_S)]
    return held_s


_FINE, _FEWEST_HELD, _SHORTEST_HELD_S = 5.0, 10, 0.3
OPEN_EAR = 0.3
"""The eye aspect ratio that an open eye of a trace of closures gets."""
_FEWEST_TO_JUDGE, _CLEARLY, _NEAR_ZERO, _BEYOND_EAR = 50, 3.0, 0.12, 0.5


def _ear(path: Path, lines: Sequence[int], cells: Sequence[str]) -> Float64:
    """Return eye aspect ratios, NaN for ``x`` and empty cells."""
    known = ["" if word == "x" else word for word in cells]
    numbers = text_tables.read_numbers(path, "ear", lines, known)
    impossible = (numbers < -0.01) | (numbers > _LARGEST_EAR)
    odd = np.flatnonzero(impossible & ~is_placeholder(numbers)).tolist()
    if odd:
        raise TableFileError(
            path,
            [(lines[index], f"found {cells[index]}, expected a ratio of 0 to 10") for index in odd],
        )
    return numbers


PLACEHOLDERS = (0.0, -1.0, -999.0, 999.0, 9999.0)
"""Numbers that programs write where they have no value."""
_SHORTEST_RUN = 3


def is_placeholder(ear: Float64) -> np.ndarray:
    """Return where values of a trace, shape (n,), are runs of exactly one of `PLACEHOLDERS`.

    Shut lids never give them: landmarks move by parts of a pixel, and the lashes keep a distance.
    """
    same = np.isin(ear, PLACEHOLDERS)
    starts = np.flatnonzero(np.diff(ear, prepend=np.nan) != 0)
    lengths = np.diff(starts, append=len(ear))
    return same & np.repeat(lengths >= _SHORTEST_RUN, lengths)


def _known(table: text_tables.TextTable, numbers: Float64) -> Float64:
    missing = np.flatnonzero(np.isnan(numbers)).tolist()
    if missing:
        lines = table.lines
        text = "has no time or frame number"
        raise TableFileError(table.path, [(lines[index], text) for index in missing])
    return numbers


def _rate(path: Path, frame_rate_hz: float | None) -> float:
    if frame_rate_hz is None:
        names = " or ".join(text_tables.TIME_COLUMNS)
        text = f"has no column {names}; name its times so, or give the frame rate (--frame-rate-hz)"
        raise TableFileError(path, text)
    return frame_rate_hz


def _refuse_other_rate(path: Path, times_s: Float64, frame_rate_hz: float | None) -> None:
    if frame_rate_hz is None or len(times_s) < 2:
        return
    own_hz = frame_rate_of(times_s)
    if not abs(own_hz / frame_rate_hz - 1.0) < _SAME_RATE:
        raise TableFileError(
            path,
            f"has times of {own_hz:.4g} frames/s, while {frame_rate_hz:g} were given; leave out "
            "the frame rate, or the column of times if it is wrong",
        )


_SAME_RATE = 0.1


def _valid(table: text_tables.TextTable) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the frames to judge, and the columns of `_FACE_SEEN` that were passed over."""
    passed_over: list[str] = []
    for column in (name for name in (*_VALID, *_FACE_SEEN) if name in table.columns):
        flags = [cell.lower() for cell in table.cells(column)]
        odd = [
            (line, f"{column} is {word!r}, expected true or false (1 or 0)")
            for line, word in zip(table.lines, flags, strict=True)
            if word not in TRUTH
        ]
        if not odd:
            return np.array([TRUTH[word] for word in flags]), tuple(passed_over)
        if column in _VALID:
            raise TableFileError(table.path, odd)
        passed_over.append(column)
    near = next((name for name in table.columns if "valid" in name), None)
    if near is not None:
        text = f"the column {near!r} is not known; did you mean valid (true or false)?"
        raise TableFileError(table.path, [(1, text)])
    return np.ones(len(table), dtype=bool), tuple(passed_over)
