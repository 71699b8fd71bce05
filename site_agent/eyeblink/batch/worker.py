"""Analysing one session of a batch, in a worker process.

A job's results are complete in its own folder before it is done; only the parent moves them to
where they belong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from aggregators.formats import file_digest
from site_agent.eyeblink.batch.record import Request, SessionRecord, source_paths, write_record
from site_agent.eyeblink.batch.sessions import BatchSession
from site_agent.eyeblink.pipeline import TraceFile, run_blink_analysis
from site_agent.eyeblink.session import BlinkAnalysisSettings, BlinkSession
from site_agent.eyeblink.session_folder import find_output
from site_agent.eyeblink.video.recording import Recording
from site_agent.runs.progress import Progress


@dataclass(frozen=True)
class SessionJob:
    """One session to analyse into `folder`, which is not there yet."""

    session: BatchSession
    settings: BlinkAnalysisSettings
    request: Request
    folder: Path
    addresses: Mapping[str, str] = field(default_factory=dict)


def run_job(job: SessionJob, progress: Progress) -> str:
    """Analyse a session and leave its record beside the results."""
    session, folder = job.session, job.folder
    summary = _analyse(job, progress)
    record = SessionRecord(
        name=session.name,
        participant=session.participant,
        group=session.group,
        number=session.number,
        request=replace(job.request, sources=_with_digests(job)),
        summary=_numbers(summary),
        conditioning=_conditioning(folder),
        trials=summary.trials,
        warnings=summary.warnings,
        files=tuple(
            sorted(
                path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
            )
        ),
    )
    write_record(record, folder)
    return session.name


def _analyse(job: SessionJob, progress: Progress) -> BlinkSession:
    session = job.session
    source = (
        Recording(session.source, session.timestamps, session.frame_rate_hz)
        if session.is_video
        else TraceFile(session.source, session.frame_rate_hz)
    )
    return run_blink_analysis(
        source,
        out_dir=job.folder,
        landmarks=session.landmarks or None,
        detector=session.detector or None,
        trials=session.trials,
        settings=job.settings,
        progress=progress,
        addresses=job.addresses,
    )


def _conditioning(folder: Path) -> dict[str, Any] | None:
    content = json.loads(find_output(folder, "session.json").read_text(encoding="utf-8"))
    found = content["conditioning"]
    return None if found is None else dict(found["summary"])


def _numbers(summary: BlinkSession) -> dict[str, Any]:
    plain = asdict(replace(summary, files={}, warnings=()))
    return {name: value for name, value in plain.items() if isinstance(value, int | float)}


def _with_digests(job: SessionJob) -> dict[str, Any]:
    """The sources with their digests, as the provenance has them; what it lacks is read here."""
    provenance = find_output(job.folder, "provenance.json")
    known = {
        source["role"]: source["sha256"]
        for source in json.loads(provenance.read_text(encoding="utf-8"))["sources"]
    }
    if "images" in known:
        known["video"] = known["images"]
    paths = source_paths(job.session)
    return {
        role: replace(state, sha256=known.get(role) or _digest(paths[role]))
        for role, state in job.request.sources.items()
    }


def _digest(path: Path) -> str:
    return file_digest(path) if path.is_file() else ""
