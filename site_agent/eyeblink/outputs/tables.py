"""The tables of a session: every column's type, unit and meaning in one place.

The CSV files are written from them, and their descriptions in the data package as well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from site_agent.datasets.trials import TrialType
from site_agent.eyeblink.blinks.finding import Blink
from site_agent.eyeblink.conditioning import Censored
from site_agent.eyeblink.conditioning.summary import TRIAL_COLUMNS, trial_rows
from site_agent.eyeblink.records import FaceColumns, FaceSource, Gap
from site_agent.eyeblink.session import AnalysedSession
from site_agent.tables import Column, Table

UNITS: Mapping[str, str] = {
    "s": "seconds",
    "ms": "milliseconds",
    "px": "pixels of the upright picture, counted from its upper left corner",
    "FEC": "fraction of eyelid closure: 0 open, 1 closed, calibrated for the session",
    "FEC/s": "fraction of eyelid closure per second",
    "%": "percent",
    "deg": "degrees",
}


# Digits of numbers by unit, for columns that state none: microseconds, hundredths of a pixel.
_FORMATS = {
    "s": ".6f",
    "ms": ".3f",
    "px": ".2f",
    "FEC": ".5f",
    "FEC/s": ".3f",
    "%": ".3f",
    "deg": ".2f",
}


def _columns(*columns: Column) -> tuple[Column, ...]:
    return tuple(
        column if column.format else replace(column, format=_FORMATS.get(column.unit, ".5f"))
        for column in columns
    )


FRAMES = Table(
    "frames",
    _columns(
        Column("frame", "integer", "", "Number of the frame in presentation order, from 0"),
        Column("timestamp_s", "number", "s", "Presentation time from the recording's start"),
        Column("face_found", "boolean", "", "Whether a face was found"),
        Column("face_score", "number", "", "The detector's score, where it was run", ".4f"),
        Column("face_left_px", "number", "px", "Left edge of the face box"),
        Column("face_top_px", "number", "px", "Upper edge of the face box"),
        Column("face_right_px", "number", "px", "Right edge of the face box, inclusive"),
        Column("face_bottom_px", "number", "px", "Lower edge of the face box, inclusive"),
        Column("source", "string", "", "Where the face box comes from"),
        Column("ear_left", "number", "", "Eye aspect ratio of the subject's left eye", ".6f"),
        Column("ear_right", "number", "", "Eye aspect ratio of the subject's right eye", ".6f"),
        Column("ear", "number", "", "Mean eye aspect ratio of the eyes seen, not filtered", ".6f"),
        Column("fec_left", "number", "FEC", "Eyelid closure of the subject's left eye"),
        Column("fec_right", "number", "FEC", "Eyelid closure of the subject's right eye"),
        Column("fec", "number", "FEC", "Eyelid closure from the mean eye aspect ratio"),
        Column(
            "closure_paper_pct",
            "number",
            "%",
            "100 - (ear - min) * 100 / max over the session; for comparison with earlier results",
        ),
        Column(
            "confidence", "number", "", "From 0 to 1; lower for a face that is turned away", ".3f"
        ),
        Column("yaw_deg", "number", "deg", "Turn of the head to the picture's right"),
        Column("pitch_deg", "number", "deg", "Nod of the head downwards; not by eyes alone"),
        Column("valid", "boolean", "", "Whether there is an eye aspect ratio"),
        Column("reason", "string", "", "Why there is none; empty for a valid frame"),
        Column("blink_id", "integer", "", "The blink that the frame belongs to"),
    ),
    title="The eyes in every frame",
    key="frame",
    levels={
        "source": {
            FaceSource.DETECT.name.lower(): "the detector found the face in this frame",
            FaceSource.FOLLOW.name.lower(): "the face was followed from the frame before",
            FaceSource.MISSING.name.lower(): "no face was found",
            FaceSource.REGION.name.lower(): "the face lies in a place that was given",
            FaceSource.TRACE.name.lower(): "the eye aspect ratios were read from a file",
        },
        "reason": {
            Gap.NO_FACE.text: "no face was found",
            Gap.EYES_OUTSIDE.text: "the eyes lie outside the picture",
            Gap.LANDMARKS_COLLAPSED.text: "the landmarks of the eyes fall together",
            Gap.MARKED_INVALID.text: "the trace that was read marks the frame as invalid",
            Gap.FACE_MOVING.text: "the face jumps: a cut, or a very fast movement",
            Gap.NOT_SURE.text: "the face is turned away, or its landmarks are not sure",
            Gap.VIDEO_DAMAGED.text: "the file is damaged up to the next key frame",
        },
    },
)

BLINKS = Table(
    "blinks",
    _columns(
        Column("blink_id", "integer", "", "1, 2, ... in the order of time"),
        Column("kind", "string", "", "Blink, or a closure that lasted longer than one"),
        Column("onset_s", "number", "s", "The lids begin to fall"),
        Column("peak_s", "number", "s", "The lids are lowest"),
        Column("offset_s", "number", "s", "The eye is open again, as far as it opens"),
        Column("onset_frame", "integer", "", "Frame nearest to the onset"),
        Column("peak_frame", "integer", "", "Frame of the lowest lids"),
        Column("offset_frame", "integer", "", "Frame nearest to the offset"),
        Column("shut_from_s", "number", "s", "The lids are 80 % of the way down"),
        Column("shut_until_s", "number", "s", "The lids leave the lowest 20 % of their way"),
        Column("cut", "string", "", "Where the eyes were not seen as a closure began or ended"),
        Column("duration_ms", "number", "ms", "From onset to offset"),
        Column("half_closed_ms", "number", "ms", "The lids are at least half of the way down"),
        Column("closing_ms", "number", "ms", "From onset to peak"),
        Column("opening_ms", "number", "ms", "From peak to offset"),
        Column("amplitude_fec", "number", "FEC", "Depth from the level just before"),
        Column("peak_fec", "number", "FEC", "Closure at the peak"),
        Column("completeness", "string", "", "Whether the lids met"),
        Column("peak_velocity_fec_per_s", "number", "FEC/s", "Highest speed of closing"),
        Column(
            "confidence",
            "number",
            "",
            "Probability that it is real; lower for a face that is turned away",
        ),
        Column("eyes", "string", "", "Which eyes took part"),
        Column(
            "lag_ms", "number", "ms", "When the right eye was half closed minus when the left was"
        ),
    ),
    title="The blinks and longer closures",
    key="blink_id",
    levels={
        "eyes": {
            "both": "both eyes closed",
            "left": "the left eye only",
            "right": "the right eye only",
            "unknown": "one eye was not seen, or the eyes are not known apart",
        },
        "kind": {"blink": "a blink", "closure": "longer than a blink lasts"},
        "cut": {
            "begin": "the lids were down when the eyes were first seen: it began earlier",
            "end": "the lids were down when the eyes were last seen: it ended later",
            "both": "both",
        },
        "completeness": {"complete": "the lids met, or nearly so", "partial": "they did not"},
    },
)

TRIALS = Table(
    "trials",
    _columns(*TRIAL_COLUMNS),
    title="The trials of the conditioning session",
    key="trial",
    levels={
        "trial_type": {
            TrialType.CS_ONLY.value: "conditioned stimulus alone",
            TrialType.US_ONLY.value: "unconditioned stimulus alone",
            TrialType.PAIRED.value: "conditioned stimulus followed by the unconditioned one",
        },
        "cr_onset_censored": {
            Censored.EARLY.value: "it begins at or before the earliest onset sought",
            Censored.NOT_FOUND.value: "no onset of the closure stands out",
        },
    },
)


def tables_of(session: AnalysedSession) -> tuple[Table, ...]:
    """Return the tables that a session has."""
    return (FRAMES, BLINKS) if session.conditioning is None else (FRAMES, BLINKS, TRIALS)


ROWS_AT_ONCE = 4096


def write_frames(session: AnalysedSession, path: Path) -> None:
    """Write one row a frame; `reason` says why there are no values."""
    FRAMES.write_csv(path, _frame_rows(session))


def write_blinks(session: AnalysedSession, path: Path) -> None:
    """Write one row a blink."""
    BLINKS.write_csv(path, blink_rows(session.blinks))


def blink_rows(blinks: Iterable[Blink]) -> Iterator[list[object]]:
    """Yield the values of the columns of `BLINKS`."""
    names = ("number", *BLINKS.header[1:])
    return ([getattr(blink, name) for name in names] for blink in blinks)


def write_trials(session: AnalysedSession, path: Path) -> None:
    """Write one row a trial; an empty cell is not "no response"."""
    results = session.conditioning.trials if session.conditioning is not None else ()
    TRIALS.write_csv(path, ([row[name] for name in TRIALS.header] for row in trial_rows(results)))


def _frame_rows(session: AnalysedSession) -> Iterator[tuple[object, ...]]:
    """Yield rows made in blocks: whole columns as objects take many times the arrays' memory."""
    trace, blink_ids = session.trace, session.blink_ids()
    unknown = np.full((len(trace.timestamps_s), 2), np.nan)
    pose_deg = unknown if trace.pose_deg is None else trace.pose_deg
    signals = (
        trace.ear_left,
        trace.ear_right,
        trace.ear,
        session.fec_left(),
        session.fec_right(),
        session.fec(),
        session.closure_paper_pct(),
        trace.confidence,
        *pose_deg.T,
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
    """Return columns face_found to source; traces from files know only where values are."""
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
