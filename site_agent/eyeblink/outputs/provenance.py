"""provenance.json: all that is needed to repeat an analysis and to judge it."""

from __future__ import annotations

import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from site_agent.eyeblink.outputs.plain_json import write_json
from site_agent.eyeblink.session import AnalysedSession, summarise
from site_agent.eyeblink.video.times import were_given

SCHEMA = "poolctl-blink-provenance/1"
DISTRIBUTIONS = (
    "numpy",
    "numba",
    "scipy",
    "dlib-bin",
    "dlib",
    "opencv-python-headless",
    "av",
    "statsmodels",
    "matplotlib",
    "pynwb",
)

NOTES = (
    "fec = (open_ear - ear) / (open_ear - closed_ear), one calibration for the session.",
    "closure_paper_pct = 100 - (ear - min) * 100 / max over the session.",
    "ear, ear_left and ear_right are not filtered. For the times of blinks a centred running "
    "mean is used (settings.blinks.extents.smoothing_ms), which may put the onsets of recordings "
    "above 100 frames/s up to half of it early.",
    "A blink begins and ends where a fifth of its depth is passed; a closure where a ramp that is "
    "fitted to its lids does.",
    "The confidence of an event is the probability that it is one, from a logistic regression "
    "fitted to annotated recordings, times the confidence of its frames.",
    "Velocities, peaks and startles of trials are read from local polynomials "
    "(settings.conditioning.smoothing_ms), amplitudes and baselines from unfiltered fec.",
)


def write_provenance(session: AnalysedSession, path: Path) -> None:
    """Write digests of all inputs, every setting, versions, counts and warnings."""
    write_json(path, describe(session))


def describe(session: AnalysedSession) -> dict[str, Any]:
    """Return the provenance as plain data."""
    summary = asdict(summarise(session, {}))
    for not_a_count in ("files", "warnings", "open_ear", "closed_ear", "conditioning"):
        del summary[not_a_count]
    return {
        "schema": SCHEMA,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "sources": [asdict(source) for source in session.sources],
        "recording": dict(session.recording),
        "summary": summary,
        "calibration": asdict(session.calibration),
        "settings": asdict(session.settings),
        "warnings": list(session.warnings),
        "notes": [_time_note(session), *NOTES, *_filter_notes(session)],
        "versions": versions(),
    }


def _time_note(session: AnalysedSession) -> str:
    times_from = str(session.recording.get("times_from", ""))
    if were_given(times_from):
        return f"Times are those of the {times_from}, which was given."
    return "Times are the container's presentation times, from its start."


def _filter_notes(session: AnalysedSession) -> list[str]:
    chosen = session.settings.filter
    if chosen.filter == "none":
        return []
    return [
        f"fec and all that is measured of it come from ear smoothed over {chosen.filter_ms:g} ms "
        "by local parabolas (Savitzky-Golay), which look ahead as far as back: onsets of blinks "
        "and conditioned responses come out earlier than unfiltered, by up to half the window. "
        "The columns ear, ear_left and ear_right stay unfiltered."
    ]


def versions() -> dict[str, str]:
    """Return what this was computed with."""
    found = {
        "poolctl": _version("poolctl") or "run from its sources, not installed",
        "python": platform.python_version(),
        "platform": platform.system(),
    }
    for name in DISTRIBUTIONS:
        version = _version(name)
        if version is not None:
            found[name] = version
    return found


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
