"""frames.csv, blinks.csv and trials.csv; empty cells where nothing is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from site_agent.eyeblink.conditioning.trial_results import trial_rows
from site_agent.eyeblink.outputs.tables import BLINKS, FRAMES, TRIALS
from site_agent.eyeblink.records import FaceColumns, FaceSource, Gap
from site_agent.eyeblink.session import AnalysedSession

ROWS_AT_ONCE = 4096


def write_frames(session: AnalysedSession, path: Path) -> None:
    """Write one row a frame; `reason` says why there are no values."""
    FRAMES.write_csv(path, _frame_rows(session))


def write_blinks(session: AnalysedSession, path: Path) -> None:
    """Write one row a blink."""
    names = ("number", *BLINKS.header[1:])
    BLINKS.write_csv(path, ([getattr(blink, name) for name in names] for blink in session.blinks))


def write_trials(session: AnalysedSession, path: Path) -> None:
    """Write one row a trial; an empty cell is not "no response"."""
    results = session.conditioning.trials if session.conditioning is not None else ()
    TRIALS.write_csv(path, ([row[name] for name in TRIALS.header] for row in trial_rows(results)))


def _frame_rows(session: AnalysedSession) -> Iterator[tuple[object, ...]]:
    """Yield rows made in blocks: whole columns as objects take many times the arrays' memory."""
    trace, blink_ids = session.trace, session.blink_ids()
    signals = (
        trace.ear_left,
        trace.ear_right,
        trace.ear,
        session.fec_left(),
        session.fec_right(),
        session.fec(),
        session.closure_paper_pct(),
        trace.confidence,
    )
    for start in range(0, len(trace.timestamps_s), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        yield from zip(
            trace.frames[part].tolist(),
            trace.timestamps_s[part].tolist(),
            *_face_columns(trace.face, part, trace.valid[part]),
            *(values[part].tolist() for values in signals),
            trace.valid[part].tolist(),
            [Gap(gap).text for gap in trace.gaps[part].tolist()],
            [number or None for number in blink_ids[part].tolist()],
            strict=True,
        )


def _face_columns(
    face: FaceColumns | None, part: slice, valid: np.typing.NDArray[np.bool_]
) -> list[Sequence[object]]:
    """Columns face_found to source; a trace from a file knows only whether it has a value."""
    if face is None:
        nothing: list[Sequence[object]] = [[None] * len(valid)] * 5
        return [valid.tolist(), *nothing, ["trace"] * len(valid)]
    sources = [FaceSource(source) for source in face.sources[part].tolist()]
    return [
        [source is not FaceSource.MISSING for source in sources],
        face.scores[part].tolist(),
        *(face.boxes[part, corner].tolist() for corner in range(4)),
        [source.name.lower() for source in sources],
    ]
