"""*.nwb on request: Neurodata Without Borders, for archives and common analysis programs.

Layout: ``processing/behavior`` holds a BehavioralTimeSeries "EyelidClosure" with FEC and a
BehavioralTimeSeries "EyeAspectRatio" with EAR, each for the mean of both eyes and for either eye
where it was measured; ``intervals/blinks`` the blinks; ``intervals/trials`` the trials.
"""

import json
import uuid
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hdmf.backends.hdf5.h5_utils import H5DataIO
from pynwb import NWBHDF5IO, NWBFile, ProcessingModule, TimeSeries
from pynwb.behavior import BehavioralTimeSeries
from pynwb.epoch import TimeIntervals
from pynwb.file import Subject

from site_agent.errors import InvalidInputError
from site_agent.eyeblink.conditioning.analysis import ConditioningResult
from site_agent.eyeblink.conditioning.summary import trial_rows
from site_agent.eyeblink.outputs.json_files import versions
from site_agent.eyeblink.outputs.tables import BLINKS, TRIALS
from site_agent.eyeblink.records import EyeTrace, Float64
from site_agent.eyeblink.session import AnalysedSession
from site_agent.plain_json import plain
from site_agent.tables import Column

REGULAR_WITHIN_S = 1e-9
TRIAL_END_AFTER_S = 1.0
"""A trial's row ends so long after its last stimulus."""
SPECIES = "Homo sapiens"
"""The landmarks are those of human faces."""
AGE_UNKNOWN = "P0D/"


def write_nwb(session: AnalysedSession, path: Path) -> None:
    """Write FEC and EAR with their times, blinks and trials."""
    nwb_file = _describe(session)
    with warnings.catch_warnings():
        # Of the library about its own dependencies; nothing a user could act on.
        warnings.simplefilter("ignore")
        with NWBHDF5IO(str(path), "w") as io:
            io.write(nwb_file)


def _describe(session: AnalysedSession) -> NWBFile:
    if not len(session.trace.timestamps_s):
        raise InvalidInputError("the recording has no frame")
    if session.start is None:
        raise InvalidInputError("NWB needs the time at which the session began; give it")
    labels = session.settings.labels
    recording = session.sources[0].name if session.sources else "a recording"
    nwb_file = NWBFile(
        session_description=f"Eyelid closure and blinks in {recording}, found by video analysis",
        experiment_description="Eyelid closure measured in a video of the face",
        identifier=str(uuid.uuid4()),
        session_start_time=session.start.time,
        session_id=labels.session or None,
        notes=f"The session's start is {session.start.known_from}.",
        keywords=[
            "eyeblink",
            "eyelid closure",
            *(["conditioning"] if session.conditioning else []),
        ],
        source_script=f"poolctl {versions()['poolctl']}",
        source_script_file_name="poolctl blink",
        data_collection="; ".join(session.warnings) or None,
        protocol=json.dumps(plain(session.settings)),
    )
    # Readers and archives want a subject with an age; "0 days or older" says that it is not known.
    nwb_file.subject = Subject(
        subject_id=labels.subject or "unknown",
        description="Participant of an eyeblink recording",
        species=SPECIES,
        sex=labels.sex,
        age=labels.age or AGE_UNKNOWN,
    )
    behavior = nwb_file.create_processing_module("behavior", "Eyelids, from video")
    _add_signals(behavior, session)
    _add_blinks(nwb_file, session)
    if session.conditioning is not None:
        _add_trials(nwb_file, session.conditioning)
    return nwb_file


def _add_signals(behavior: ProcessingModule, session: AnalysedSession) -> None:
    calibration = session.calibration
    fec = (
        "Fraction of eyelid closure, 0 open and 1 closed: "
        f"({calibration.open_ear:.6g} - EAR) / {calibration.span:.6g}; NaN where not known"
    )
    ear = "Eye aspect ratio, height over width of the eye, not filtered; NaN where not known"
    trace, timing = session.trace, _timing(session.trace)
    groups = {
        "EyelidClosure": (
            ("fec", session.fec(), f"Mean of both eyes. {fec}"),
            ("fec_left", session.fec_left(), f"The subject's left eye. {fec}"),
            ("fec_right", session.fec_right(), f"The subject's right eye. {fec}"),
        ),
        "EyeAspectRatio": (
            ("ear", trace.ear, f"Mean of both eyes. {ear}"),
            ("ear_left", trace.ear_left, f"The subject's left eye. {ear}"),
            ("ear_right", trace.ear_right, f"The subject's right eye. {ear}"),
        ),
    }
    first = None
    for name, signals in groups.items():
        container = BehavioralTimeSeries(name=name)
        for signal, values, description in signals:
            if np.isfinite(values).any() or signal in {"fec", "ear"}:
                # One set of times in the file; the other series refer to it.
                times = timing if first is None or "rate" in timing else {"timestamps": first}
                series = TimeSeries(
                    name=signal,
                    data=_compress(values),
                    unit="fraction" if signal.startswith("fec") else "ratio",
                    description=description,
                    **times,
                )
                container.add_timeseries(series)
                first = first or series
        behavior.add(container)


def _timing(trace: EyeTrace) -> dict[str, Any]:
    """Return a rate for frames at even distances, else the time of every frame."""
    times_s = trace.timestamps_s
    if len(times_s) > 2:
        step_s = float(times_s[-1] - times_s[0]) / (len(times_s) - 1)
        if float(np.ptp(np.diff(times_s))) < REGULAR_WITHIN_S:
            return {"starting_time": float(times_s[0]), "rate": 1.0 / step_s}
    return {"timestamps": _compress(times_s)}


def _compress(values: Float64) -> Any:
    return H5DataIO(values, compression="gzip", shuffle=True) if len(values) > 1000 else values


def _add_blinks(nwb_file: NWBFile, session: AnalysedSession) -> None:
    if not session.blinks:
        return
    built_in = {"blink_id", "onset_s", "offset_s"}  # the row's number, start and stop
    columns = [column for column in BLINKS.columns if column.name not in built_in]
    rows = [
        {column.name: getattr(blink, column.name) for column in columns} for blink in session.blinks
    ]
    table = TimeIntervals(name="blinks", description="Blinks and longer closures")
    columns = _known_columns(columns, rows)
    for column in columns:
        table.add_column(column.name, _meaning(column))
    for blink, row in zip(session.blinks, rows, strict=True):
        values = {column.name: row[column.name] for column in columns}
        table.add_row(start_time=blink.onset_s, stop_time=blink.offset_s, **values)
    nwb_file.add_time_intervals(table)


def _add_trials(nwb_file: NWBFile, conditioning: ConditioningResult) -> None:
    listed = [column for column in TRIALS.columns if column.name != "cr"]
    rows = [
        {column.name: _cell(row[column.name], column) for column in listed}
        for row in trial_rows(conditioning.trials)
    ]
    columns = _known_columns(listed, rows)
    for column in columns:
        nwb_file.add_trial_column(column.name, _meaning(column))
    nwb_file.add_trial_column(
        "cr", "Whether the trial holds a CR: yes, no, or n/a where that cannot be said"
    )
    before_s = -conditioning.settings.baseline_ms[0] / 1000.0
    for result, row in zip(conditioning.trials, rows, strict=True):
        measures = result.measures
        onsets_s = [
            time for time in (measures.cs_onset_s, measures.us_onset_s) if np.isfinite(time)
        ]
        nwb_file.add_trial(
            start_time=max(0.0, min(onsets_s) - before_s),
            stop_time=max(onsets_s) + TRIAL_END_AFTER_S,
            cr="n/a" if result.cr is None else ("yes" if result.cr else "no"),
            **{column.name: row[column.name] for column in columns},
        )


def _known_columns(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Leave out columns of numbers that are not known in any row."""
    return [
        column
        for column in columns
        if column.type != "number" or any(np.isfinite(row[column.name]) for row in rows)
    ]


def _cell(value: str | float | bool | None, column: Column) -> str | float | bool:
    if column.type == "number":
        return float("nan") if value is None else float(value)
    return "" if value is None else value


def _meaning(column: Column) -> str:
    return f"{column.description} ({column.unit})" if column.unit else column.description
