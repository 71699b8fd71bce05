"""session.json: the results of a session in a few numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from site_agent.eyeblink.blinks.statistics import blink_statistics
from site_agent.eyeblink.outputs.plain_json import write_json
from site_agent.eyeblink.session import AnalysedSession, summarise

SCHEMA = "poolctl-blink-session/1"


def write_session_json(session: AnalysedSession, path: Path) -> None:
    """Write recording, calibration, statistics of the blinks, and conditioning results."""
    write_json(path, describe_session(session))


def describe_session(session: AnalysedSession) -> dict[str, Any]:
    """Return the results as plain data; NaN where nothing is known."""
    summary, trace = summarise(session, {}), session.trace
    labels = session.settings.labels
    conditioning = session.conditioning
    return {
        "schema": SCHEMA,
        "subject": labels.subject or None,
        "session": labels.session or None,
        "task": session.names.task or None,
        "start": asdict(session.start) if session.start is not None else None,
        "recording": {
            "name": session.sources[0].name if session.sources else None,
            "frames": summary.frames,
            "duration_s": summary.seconds,
            "frame_rate_hz": trace.frame_rate_hz,
            "face_found_pct": summary.face_found_pct,
            "valid_pct": summary.valid_pct,
        },
        "calibration": {
            **asdict(session.calibration),
            "span_ear": session.calibration.span,
        },
        "blinks": blink_statistics(trace, session.blinks, session.fec()).to_dict(),
        "left_out": [asdict(each) for each in session.left_out],
        "conditioning": conditioning.to_dict() if conditioning is not None else None,
        "warnings": list(session.warnings),
    }
