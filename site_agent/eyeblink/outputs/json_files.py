"""The JSON files next to the tables of a session.

``session.json`` has the results in a few numbers, ``datapackage.json`` the meaning of every column
by the Data Package standard (version 1, as validators read it; units are in the extra property
``unit``), and ``provenance.json`` all that is needed to repeat an analysis and to judge it.
"""

import platform
import re
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from site_agent.eyeblink.blinks.statistics import blink_statistics
from site_agent.eyeblink.outputs.tables import BLINKS, FRAMES, UNITS, tables_of
from site_agent.eyeblink.session import AnalysedSession, summarise
from site_agent.eyeblink.video.recording import were_given
from site_agent.tables import MISSING_VALUE, Column, Table

SESSION_SCHEMA = "poolctl-blink-session/1"


def describe_results(session: AnalysedSession) -> dict[str, Any]:
    """Return recording, calibration, statistics of the blinks, and conditioning results."""
    summary, trace = summarise(session, {}), session.trace
    labels = session.settings.labels
    conditioning = session.conditioning
    return {
        "schema": SESSION_SCHEMA,
        "subject": labels.subject or None,
        "session": labels.session or None,
        "start": asdict(session.start) if session.start is not None else None,
        "recording": {
            "name": session.sources[0].name if session.sources else None,
            "frames": summary.frames,
            "duration_s": summary.seconds,
            "frame_rate_hz": trace.frame_rate_hz,
            "face_found_pct": summary.face_found_pct,
            "valid_pct": summary.valid_pct,
        },
        "calibration": {**asdict(session.calibration), "span_ear": session.calibration.span},
        "blinks": asdict(blink_statistics(trace, session.blinks, session.fec())),
        "left_out": [asdict(event) for event in session.left_out],
        "conditioning": conditioning.to_dict() if conditioning is not None else None,
        "warnings": list(session.warnings),
    }


def describe_package(session: AnalysedSession) -> dict[str, Any]:
    """Return types, units, meanings and the missing value of each table."""
    recording = session.sources[0].name if session.sources else "recording"
    return {
        "profile": "tabular-data-package",
        "name": _name(Path(recording).stem),
        "title": f"Eyeblink analysis of {recording}",
        "description": (
            "Eye aspect ratios, eyelid closure and blinks. Times are presentation times in seconds "
            "from the start of the recording. Empty cells are missing values. The settings and "
            "the digests of all inputs are in the provenance file next to this one."
        ),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": versions()["poolctl"],
        "sources": [{"title": source.name} for source in session.sources],
        "resources": [_resource(table) for table in tables_of(session)],
    }


def _name(text: str) -> str:
    """Reduce a text to a name that the standard allows."""
    return re.sub("[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "recording"


def _resource(table: Table) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "fields": [_field(table, column) for column in table.columns],
        "missingValues": [MISSING_VALUE],
        "primaryKey": table.key,
    }
    if table is FRAMES:
        reference = {"resource": BLINKS.name, "fields": BLINKS.key}
        schema["foreignKeys"] = [{"fields": "blink_id", "reference": reference}]
    return {
        "profile": "tabular-data-resource",
        "name": table.name,
        "title": table.title,
        "path": table.file_name,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "dialect": {"delimiter": ",", "lineTerminator": "\n", "header": True},
        "schema": schema,
    }


def _field(table: Table, column: Column) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "description": describe_column(table, column),
    }
    if column.unit:
        described["unit"] = column.unit
    constraints: dict[str, Any] = {}
    if column.name == table.key:
        constraints["required"] = constraints["unique"] = True
    if column.name in table.levels:
        constraints["enum"] = list(table.levels[column.name])
    if constraints:
        described["constraints"] = constraints
    return described


def describe_column(table: Table, column: Column) -> str:
    """Return the column's meaning, with its unit and its values in words."""
    text = column.description
    if column.unit in UNITS:
        text += f" ({UNITS[column.unit]})"
    if column.name in table.levels:
        levels = (f"{name}: {meaning}" for name, meaning in table.levels[column.name].items())
        text += f" ({'; '.join(levels)})"
    return text


PROVENANCE_SCHEMA = "poolctl-blink-provenance/1"
DISTRIBUTIONS = (
    "numpy",
    "numba",
    "scipy",
    "dlib-bin",
    "dlib",
    "opencv-python-headless",
    "av",
    "matplotlib",
    "pynwb",
)

NOTES = (
    "fec = (open_ear - ear) / (open_ear - closed_ear), one calibration for the session.",
    "closure_paper_pct = 100 - (ear - min) * 100 / max over the session.",
    "ear, ear_left and ear_right are not filtered. For the times of blinks a centred running "
    "mean over 20 ms is used, which may put the onsets of recordings above 100 frames/s up to half "
    "of it early.",
    "A blink begins and ends where a fifth of its depth is passed; a closure where a ramp that is "
    "fitted to its lids does.",
    "The confidence of an event is the probability that it is one, from a logistic regression "
    "fitted to annotated recordings, times the confidence of its frames.",
    "Velocities, peaks and startles of trials are read from local polynomials "
    "(settings.conditioning.smoothing_ms), amplitudes and baselines from unfiltered fec.",
)


def describe_provenance(session: AnalysedSession) -> dict[str, Any]:
    """Return digests of all inputs, every setting, versions, counts and warnings."""
    summary = asdict(summarise(session, {}))
    for not_a_count in ("files", "warnings", "open_ear", "closed_ear", "conditioning"):
        del summary[not_a_count]
    return {
        "schema": PROVENANCE_SCHEMA,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": [asdict(source) for source in session.sources],
        "recording": dict(session.recording),
        "summary": summary,
        "calibration": asdict(session.calibration),
        "settings": asdict(session.settings),
        "warnings": list(session.warnings),
        "notes": [_time_note(session), *NOTES],
        "versions": versions(),
    }


def _time_note(session: AnalysedSession) -> str:
    times_from = str(session.recording.get("times_from", ""))
    if were_given(times_from):
        return f"Times are those of the {times_from}, which was given."
    return "Times are the container's presentation times, from its start."


def versions() -> dict[str, str]:
    """Return the versions of the program and the packages it computes with."""
    packages = {
        "poolctl": _version("poolctl") or "run from its sources, not installed",
        "python": platform.python_version(),
        "platform": platform.system(),
    }
    for name in DISTRIBUTIONS:
        version = _version(name)
        if version is not None:
            packages[name] = version
    return packages


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
