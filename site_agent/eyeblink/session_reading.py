"""A whole analysed session, read back from its folder: all but the pictures.

``frames.csv`` holds times to the microsecond and EAR to 1e-6, ``provenance.json`` the calibration
to the last bit, and the analysis worked on just these numbers (`records.as_written`). FEC computed
from them again therefore equals that of the analysis, to the last bit.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from site_agent.errors import StudyFolderError
from site_agent.eyeblink.batch.sessions import settings_from_plain
from site_agent.eyeblink.blinks.finding import Blink, LeftOut
from site_agent.eyeblink.conditioning.analysis import analyse_conditioning
from site_agent.eyeblink.conditioning.trials import read_trials_csv
from site_agent.eyeblink.openness.signal import Calibration
from site_agent.eyeblink.records import (
    POSE_COLUMNS,
    EyeTrace,
    FaceColumns,
    FaceSource,
    Float64,
    Gap,
)
from site_agent.eyeblink.session import AnalysedSession, BlinkAnalysisSettings, measured_trace
from site_agent.eyeblink.session_folder import RecordingStart, SourceFile, find_output
from site_agent.text_tables import read_table

_BOX = ("face_left_px", "face_top_px", "face_right_px", "face_bottom_px")


def read_session(place: Path) -> AnalysedSession:
    """Read a session from its folder, or from one of its files (see `find_output`).

    Trials are measured again, which gives the values of the analysis.
    """
    blinks = find_output(place, "blinks.csv")
    path = find_output(blinks, "provenance.json")
    try:
        provenance = json.loads(path.read_text(encoding="utf-8"))
        settings = _settings(provenance["settings"])
        trace = read_eye_trace(find_output(blinks, "frames.csv"))
        results = json.loads(find_output(blinks, "session.json").read_text(encoding="utf-8"))
        session = AnalysedSession(
            trace=trace,
            filtered=measured_trace(trace, settings),
            calibration=_calibration(provenance["calibration"]),
            blinks=tuple(_blink(row.cells) for row in read_table(blinks, ".").rows),
            settings=settings,
            sources=tuple(SourceFile(**source) for source in provenance["sources"]),
            recording=provenance["recording"],
            warnings=tuple(provenance["warnings"]),
            start=_start(results["start"]),
            left_out=tuple(LeftOut(**event) for event in results["left_out"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StudyFolderError(f"{path.parent}: the session cannot be read: {error}") from error
    try:
        trials = tuple(read_trials_csv(find_output(blinks, "trials.csv")).trials)
    except StudyFolderError:
        return session
    measured = analyse_conditioning(
        trace.timestamps_s, session.fec(), trials, settings.conditioning
    )
    return replace(session, conditioning=measured, trials=trials)


def read_eye_trace(path: Path) -> EyeTrace:
    """Read ``frames.csv``, with the faces that it has."""
    import pandas

    types = {"reason": str, "source": str}
    table = pandas.read_csv(path, keep_default_na=False, na_values=[""], dtype=types)
    if not (np.diff(np.asarray(table["timestamp_s"], dtype=np.float64)) > 0).all():
        raise ValueError(f"{path.name}: the column timestamp_s does not increase throughout")
    gaps = {gap.text: int(gap) for gap in Gap}
    sources = {source.name.lower(): int(source) for source in FaceSource}

    def numbers(name: str) -> Float64:
        return np.asarray(table[name], dtype=np.float64)

    kinds = table["source"].map(sources).to_numpy(dtype=np.uint8)
    boxes = np.stack([numbers(name) for name in _BOX], axis=1)
    face = FaceColumns(boxes, numbers("face_score"), kinds)
    posed = all(name in table for name in POSE_COLUMNS)
    return EyeTrace(
        frames=table["frame"].to_numpy(dtype=np.int64),
        timestamps_s=numbers("timestamp_s"),
        ear_left=numbers("ear_left"),
        ear_right=numbers("ear_right"),
        ear=numbers("ear"),
        confidence=numbers("confidence"),
        gaps=table["reason"].fillna("").map(gaps).to_numpy(dtype=np.uint8),
        face=None if (kinds == FaceSource.TRACE).all() else face,
        pose_deg=np.stack([numbers(name) for name in POSE_COLUMNS], axis=1) if posed else None,
    )


def _blink(row: Mapping[str, str]) -> Blink:
    """Return the blink of a row of ``blinks.csv``; NaN or 0 for empty cells."""
    hints = get_type_hints(Blink)
    names = {field.name: field.name for field in fields(Blink)} | {"number": "blink_id"}
    return Blink(**{name: _value(hints[name], row[column]) for name, column in names.items()})


def _value(hint: Any, text: str) -> Any:
    if hint is float:
        return float(text) if text else math.nan
    return int(text or 0) if hint is int else text


def _settings(values: Mapping[str, Any]) -> BlinkAnalysisSettings:
    if values.get("filter", {}).get("filter", "none") != "none":
        raise ValueError("it was smoothed by a filter of earlier versions; analyse it again")
    if values.get("files", {}).get("bits", 16) != 16:
        raise ValueError(
            "its video was read by the setting 'bits' of earlier versions; analyse it again"
        )
    settings = settings_from_plain(BlinkAnalysisSettings(), values, leave_out=("outputs",))
    # There are no pictures to draw on.
    return replace(settings, outputs=frozenset(values["outputs"]) - {"overlay"})


def _calibration(values: Mapping[str, Any]) -> Calibration:
    open_ear, closed_ear = (
        math.nan if values[name] is None else float(values[name])
        for name in ("open_ear", "closed_ear")
    )
    return Calibration(open_ear, closed_ear, bool(values["reliable"]), values.get("model_share"))


def _start(start: Mapping[str, str] | None) -> RecordingStart | None:
    if start is None:
        return None
    return RecordingStart(datetime.fromisoformat(start["time"]), start["known_from"])
