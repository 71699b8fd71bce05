"""frames.csv: one row a frame."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from site_agent.eyeblink.outputs.tables import FRAMES, write_csv
from site_agent.eyeblink.records import FaceColumns, FaceSource, Gap
from site_agent.eyeblink.session import AnalysedSession

ROWS_AT_ONCE = 4096


class FramesCsv:
    """All signals, empty cells where not known; `reason` says why."""

    name = "frames"
    file_name = FRAMES.file_name
    essential = True

    def wanted(self, _: AnalysedSession, /) -> bool:
        return True

    def write(self, session: AnalysedSession, path: Path) -> None:
        write_csv(path, FRAMES, _blocks(session))


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
