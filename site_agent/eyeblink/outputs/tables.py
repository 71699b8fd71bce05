"""The tables of a session: every column's type, unit and meaning in one place.

The CSV files are written from it, and what describes them (data package, BIDS sidecars) as well.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from site_agent.eyeblink.conditioning.trial_results import TRIAL_COLUMNS, TableColumn
from site_agent.eyeblink.conditioning.trials import TrialType
from site_agent.eyeblink.records import FaceSource, Gap
from site_agent.eyeblink.session import AnalysedSession

MISSING_VALUE = ""
"""What stands in a cell of which nothing is known."""

UNITS: Mapping[str, str] = {
    "s": "seconds",
    "ms": "milliseconds",
    "px": "pixels of the upright picture, counted from its upper left corner",
    "FEC": "fraction of eyelid closure: 0 open, 1 closed, calibrated for the session",
    "FEC/s": "fraction of eyelid closure per second",
    "%": "percent",
}


@dataclass(frozen=True)
class Table:
    """One CSV file.

    Attributes
    ----------
    columns : tuple of TableColumn
        In the order of the file.
    key : str
        The column that is unique and never empty.
    levels : mapping of str to mapping of str to str
        The values that a column of words can have, and what they mean.
    """

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    key: str
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"{self.name}.csv"

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


FRAMES = Table(
    "frames",
    "The eyes in every frame",
    (
        TableColumn("frame", "integer", "", "Number of the frame in presentation order, from 0"),
        TableColumn("timestamp_s", "number", "s", "Presentation time from the recording's start"),
        TableColumn("face_found", "boolean", "", "Whether a face was found"),
        TableColumn("face_score", "number", "", "The detector's score, where it was run"),
        TableColumn("face_left_px", "number", "px", "Left edge of the face box"),
        TableColumn("face_top_px", "number", "px", "Upper edge of the face box"),
        TableColumn("face_right_px", "number", "px", "Right edge of the face box, inclusive"),
        TableColumn("face_bottom_px", "number", "px", "Lower edge of the face box, inclusive"),
        TableColumn("source", "string", "", "Where the face box comes from"),
        TableColumn("ear_left", "number", "", "Eye aspect ratio of the subject's left eye"),
        TableColumn("ear_right", "number", "", "Eye aspect ratio of the subject's right eye"),
        TableColumn("ear", "number", "", "Mean eye aspect ratio of the eyes seen, not filtered"),
        TableColumn("fec_left", "number", "FEC", "Eyelid closure of the subject's left eye"),
        TableColumn("fec_right", "number", "FEC", "Eyelid closure of the subject's right eye"),
        TableColumn("fec", "number", "FEC", "Eyelid closure from the mean eye aspect ratio"),
        TableColumn(
            "closure_paper_pct",
            "number",
            "%",
            "100 - (ear - min) * 100 / max over the session; for comparison with earlier results",
        ),
        TableColumn(
            "confidence", "number", "", "From 0 to 1; lower for a face that is turned away"
        ),
        TableColumn("valid", "boolean", "", "Whether there is an eye aspect ratio"),
        TableColumn("reason", "string", "", "Why there is none; empty for a valid frame"),
        TableColumn("blink_id", "integer", "", "The blink that the frame belongs to"),
    ),
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
        },
    },
)

BLINKS = Table(
    "blinks",
    "The blinks and longer closures",
    (
        TableColumn("blink_id", "integer", "", "1, 2, ... in the order of time"),
        TableColumn("kind", "string", "", "Blink, or a closure that lasted longer than one"),
        TableColumn("onset_s", "number", "s", "The lids begin to fall"),
        TableColumn("peak_s", "number", "s", "The lids are lowest"),
        TableColumn("offset_s", "number", "s", "The eye is open again, as far as it opens"),
        TableColumn("onset_frame", "integer", "", "Frame nearest to the onset"),
        TableColumn("peak_frame", "integer", "", "Frame of the lowest lids"),
        TableColumn("offset_frame", "integer", "", "Frame nearest to the offset"),
        TableColumn("shut_from_s", "number", "s", "The lids are 80 % of the way down"),
        TableColumn("shut_until_s", "number", "s", "The lids leave the lowest 20 % of their way"),
        TableColumn(
            "cut", "string", "", "Where the eyes were not seen as a closure began or ended"
        ),
        TableColumn("duration_ms", "number", "ms", "From onset to offset"),
        TableColumn("half_closed_ms", "number", "ms", "The lids are at least half of the way down"),
        TableColumn("closing_ms", "number", "ms", "From onset to peak"),
        TableColumn("opening_ms", "number", "ms", "From peak to offset"),
        TableColumn("amplitude_fec", "number", "FEC", "Depth from the level just before"),
        TableColumn("peak_fec", "number", "FEC", "Closure at the peak"),
        TableColumn("completeness", "string", "", "Whether the lids met"),
        TableColumn("peak_velocity_fec_per_s", "number", "FEC/s", "Highest speed of closing"),
        TableColumn(
            "confidence",
            "number",
            "",
            "Probability that it is one; lower for a face that is turned away",
        ),
        TableColumn("eyes", "string", "", "Which eyes took part"),
        TableColumn(
            "lag_ms", "number", "ms", "When the right eye was half closed minus when the left was"
        ),
    ),
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
    "The trials of the conditioning session",
    TRIAL_COLUMNS,
    key="trial",
    levels={
        "trial_type": {
            TrialType.CS_ONLY.value: "conditioned stimulus alone",
            TrialType.US_ONLY.value: "unconditioned stimulus alone",
            TrialType.PAIRED.value: "conditioned stimulus followed by the unconditioned one",
        }
    },
)


def tables_of(session: AnalysedSession) -> tuple[Table, ...]:
    """Return the tables that a session has."""
    return (FRAMES, BLINKS) if session.conditioning is None else (FRAMES, BLINKS, TRIALS)


def write_csv(path: Path, table: Table, blocks: Iterable[Iterable[Sequence[str]]]) -> None:
    """Write a table of texts, header first; `blocks` are rows in portions."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.header)
        for rows in blocks:
            writer.writerows(rows)
