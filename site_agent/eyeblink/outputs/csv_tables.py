"""frames.csv, blinks.csv and trials.csv; empty cells where nothing is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from site_agent.eyeblink.conditioning.trial_results import trial_rows
from site_agent.eyeblink.outputs.tables import BLINKS, FRAMES, TRIALS, write_csv
from site_agent.eyeblink.records import FaceColumns, FaceSource, Gap
from site_agent.eyeblink.session import AnalysedSession

ROWS_AT_ONCE = 4096
DIGITS = {"s": 6, "ms": 3, "FEC": 5, "FEC/s": 3}


def write_frames(session: AnalysedSession, path: Path) -> None:
    """Write one row a frame; `reason` says why there are no values."""
    write_csv(path, FRAMES, _blocks(session))


def write_blinks(session: AnalysedSession, path: Path) -> None:
    """Write one row a blink."""
    names = ("number", *BLINKS.header[1:])
    rows = [
        [
            _text(getattr(blink, name), column.unit)
            for name, column in zip(names, BLINKS.columns, strict=True)
        ]
        for blink in session.blinks
    ]
    write_csv(path, BLINKS, [rows])


def write_trials(session: AnalysedSession, path: Path) -> None:
    """Write one row a trial; an empty cell is not "no response"."""
    results = session.conditioning.trials if session.conditioning is not None else ()
    rows = [
        [_text(row[column.name], column.unit) for column in TRIALS.columns]
        for row in trial_rows(results)
    ]
    write_csv(path, TRIALS, [rows])


def _text(value: str | float | bool | None, unit: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.{DIGITS.get(unit, 5)}f}" if isinstance(value, float) else str(value)


def _blocks(session: AnalysedSession) -> Iterator[Iterator[tuple[str, ...]]]:
    """Yield rows in blocks: whole columns as text would take many times the signals' memory."""
    trace, blink_ids = session.trace, session.blink_ids()
    signals = (
        (session.fec_left(), "%.5f"),
        (session.fec_right(), "%.5f"),
        (session.fec(), "%.5f"),
        (session.closure_paper_pct(), "%.3f"),
        (trace.confidence, "%.3f"),
    )
    ears = ((trace.ear_left, "%.6f"), (trace.ear_right, "%.6f"), (trace.ear, "%.6f"))
    for start in range(0, len(trace.timestamps_s), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        yield zip(
            trace.frames[part].astype(str).tolist(),
            _texts(trace.timestamps_s[part], "%.6f"),
            *_face_texts(trace.face, part, trace.valid[part]),
            *(_texts(values[part], form) for values, form in (*ears, *signals)),
            ["true" if valid else "false" for valid in trace.valid[part].tolist()],
            [Gap(gap).text for gap in trace.gaps[part].tolist()],
            ["" if number == 0 else str(number) for number in blink_ids[part].tolist()],
            strict=True,
        )


def _texts(values: np.typing.NDArray[np.float64], form: str) -> list[str]:
    return ["" if math.isnan(value) else form % value for value in values.tolist()]


def _face_texts(
    face: FaceColumns | None, part: slice, valid: np.typing.NDArray[np.bool_]
) -> list[list[str]]:
    """Columns face_found to source; a trace from a file knows only whether it has a value."""
    if face is None:
        found = ["true" if known else "false" for known in valid.tolist()]
        return [found, *([[""] * len(found)] * 5), ["trace"] * len(found)]
    sources = [FaceSource(source) for source in face.sources[part].tolist()]
    return [
        ["false" if source is FaceSource.MISSING else "true" for source in sources],
        _texts(face.scores[part], "%.4f"),
        *(_texts(face.boxes[part, corner], "%.2f") for corner in range(4)),
        [source.name.lower() for source in sources],
    ]
