"""When a recording began."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from site_agent.eyeblink.session import RecordingStart
from site_agent.eyeblink.session_labels import SessionLabels

EARLIEST_YEAR = 1990
"""Cameras whose clock was never set write 1904 or 1970."""


def recording_start(path: Path, labels: SessionLabels, creation_time: str | None) -> RecordingStart:
    """Take what the user says, else what the camera wrote, else the time of the file."""
    if labels.start is not None:
        return RecordingStart(_with_zone(labels.start), "as given")
    written = _parsed(creation_time)
    if written is not None:
        return RecordingStart(written, "from the video file's creation time")
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).replace(microsecond=0)
    return RecordingStart(changed, "from the time at which the file was last changed")


def _parsed(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return _with_zone(moment) if moment is not None and moment.year >= EARLIEST_YEAR else None


def _with_zone(moment: datetime) -> datetime:
    """Times without a zone are those of this machine's."""
    return moment if moment.tzinfo is not None else moment.astimezone()
