"""Jobs on recordings: analyse one, gather a study, draw a video, train the starter."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import TypeAdapter

from site_agent import own_folders
from site_agent.errors import InvalidInputError, SiteAgentError, StudyFolderError
from site_agent.eyeblink.batch import (
    HIDDEN,
    SessionJob,
    finish_moves,
    label_record,
    plan_session,
    put_in_place,
    run_job,
)
from site_agent.eyeblink.batch.record import SessionOutcome, read_record, write_batch_table
from site_agent.eyeblink.batch.sessions import BatchSession, read_session_table, settings_from_plain
from site_agent.eyeblink.review.reviewed_session import write_reviewed_sessions
from site_agent.eyeblink.session import BlinkAnalysisSettings
from site_agent.eyeblink.session_folder import REVIEW_FOLDER
from site_agent.eyeblink.study import write_criteria, write_study
from site_agent.eyeblink.study.criteria import compare_criteria, default_criteria
from site_agent.eyeblink.study.sessions import read_study
from site_agent.eyeblink.video.recording import Recording
from site_agent.jobs.folder import JobFolder
from site_agent.plain_json import plain, write_json
from site_agent.training.ert import find_starter
from site_agent.work import Progress
from site_agent.work.claims import hold_folder
from site_agent.work.files import ends_digest, require_in_place
from site_agent.work.locks import locked

TABLE_NAME = "recordings.csv"
"""In the folder of a study: its recordings, a table that ``blink batch`` reads."""
_SESSION = TypeAdapter(BatchSession)


def analysis_request(
    session: BatchSession, study: Path, settings: BlinkAnalysisSettings
) -> dict[str, Any]:
    """Return the request of a job ``analyse``."""
    described = {name: value for name, value in plain(session).items() if value is not None}
    return {"study": str(study.absolute()), "session": described, "settings": plain(settings)}


def analyse(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Analyse one recording of a study; its folder appears whole, or not at all."""
    study, session = Path(request["study"]), _SESSION.validate_python(request["session"])
    plan = plan_session(session, study, _settings(request["settings"]))
    if plan.problem:
        raise InvalidInputError(plan.problem)
    record = plan.finished
    if record is None:
        files = [path for path in (session.source, session.trials) if path is not None]
        identities = [require_in_place(path) for path in files]
        assert plan.request is not None
        work = study / HIDDEN / "jobs" / str(request["id"])
        shutil.rmtree(work, ignore_errors=True)
        try:
            made = work / session.name
            run_job(SessionJob(session, plan.settings, plan.request, made), progress)
            if [require_in_place(path) for path in files] != identities:
                raise InvalidInputError(f"{session.source}: was exchanged while it was read")
            progress(None, "waits for 'blink batch', which is at work in this study")
            with held_study(study, request):
                record = put_in_place(study, made)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return {
        "study": str(study),
        "session": session.name,
        "blinks": record.summary["blinks"],
        "seconds": record.summary["seconds"],
        "warnings": list(record.warnings),
    }


@contextmanager
def held_study(study: Path, request: Mapping[str, Any]) -> Iterator[None]:
    """Hold a study against ``blink batch`` and against the other jobs, without open moves."""
    name = hashlib.sha256(os.fsencode(study)).hexdigest()[:16]
    # Jobs end together where videos are equal: in line here they wait milliseconds, there seconds.
    with (
        locked(Path(request["jobs"]) / f".study-{name}.lock"),
        hold_folder(study, HIDDEN, what="batch", wait=True),
    ):
        finish_moves(study)
        yield


def gather_study(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Write the tables of a study, as ``blink batch`` does, from the sessions that are there."""
    study = Path(request["study"])
    reasons = {
        view.job.request["session"]["name"]: view.state.reason
        for view in JobFolder(Path(request["jobs"])).views()
        if view.job.kind == "analyse"
        and view.job.request["study"] == str(study)
        and view.state.state == "failed"
    }
    with held_study(study, request):
        outcomes = [
            _outcome(session, study / session.name, reasons.get(session.name, ""))
            for session in read_session_table(study / TABLE_NAME).sessions
        ]
        progress(0.5, "writing the tables")
        write_batch_table(study / "batch.csv", outcomes)
        records = [outcome.record for outcome in outcomes if outcome.record is not None]
        summary = write_study(study, records, [outcome.session for outcome in outcomes])
        if any((study / outcome.session / REVIEW_FOLDER).is_dir() for outcome in outcomes):
            write_reviewed_sessions(study)
    return {
        "study": str(study),
        "sessions": len(records),
        "failed": len(outcomes) - len(records),
        "remarks": list(summary.remarks),
    }


def judge_conclusion(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Test whether a study's conclusion depends on the definition of a response."""
    study = Path(request["study"])
    sessions = read_study([study])
    criteria = default_criteria(sessions.settings)
    comparison = compare_criteria(
        sessions, criteria, question=request["question"], measure=request["measure"],
        progress=progress,
    )  # fmt: skip
    with held_study(study, request):
        write_criteria(study, comparison, criteria)
    return {"conclusion": comparison.conclusion, "remarks": list(sessions.remarks)}


def _outcome(session: BatchSession, folder: Path, reason: str) -> SessionOutcome:
    try:
        record = label_record(read_record(folder), session, folder)
    except StudyFolderError:
        return SessionOutcome(session.name, "failed" if reason else "pending", reason)
    return SessionOutcome(session.name, "done", record=record)


def draw_video(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Draw a video of a blinking person, for a first look."""
    from site_agent.datasets.synthetic.settings import VideoDrawing
    from site_agent.datasets.synthetic.videos import write_blink_video

    path = Path(request["path"])
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_blink_video(path, VideoDrawing(seconds=float(request["seconds"])), progress)
    return {"path": str(path)}


def train_starter(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:  # noqa: ARG001
    """Train the starter model, unless it is there."""
    return {"path": str(find_starter(own_folders.cache_folder(), progress))}


def _settings(values: Mapping[str, Any]) -> BlinkAnalysisSettings:
    settings = settings_from_plain(BlinkAnalysisSettings(), values, leave_out=("outputs",))
    return replace(settings, outputs=frozenset(values["outputs"]))


def look_at_videos(request: Mapping[str, Any], progress: Progress) -> dict[str, Any]:
    """Read length and rate of videos, and keep a small picture of each, or its problem."""
    videos: Mapping[str, str] = request["videos"]
    folder = Path(request["looks"])
    folder.mkdir(parents=True, exist_ok=True)
    unreadable = 0
    mark = {"look": request["id"]}
    is_second = JobFolder(Path(request["jobs"])).view(request["id"]).state.attempt > 1
    for count, (number, path) in enumerate(videos.items()):
        progress(count / len(videos), Path(path).name)
        facts_file = folder / f"{number}.json"
        known = json.loads(facts_file.read_bytes()) if facts_file.exists() else {}
        if known == mark and is_second:  # the process of the first attempt ended in the middle
            known = {"problem": "cannot be read: it ends the process that reads it"}
            write_json(facts_file, known)
        if known and known != mark:
            continue
        write_json(facts_file, mark)
        try:
            facts = _look_at(Path(path), folder / f"{number}.jpg")
        except (SiteAgentError, OSError) as error:
            facts = {"problem": str(error).removeprefix(f"{path}: ")}
            unreadable += 1
        write_json(facts_file, facts)
    return {"videos": len(videos), "unreadable": unreadable}


def _look_at(path: Path, picture: Path) -> dict[str, Any]:
    require_in_place(path)
    source = Recording(path).open("rgb")
    try:
        info = source.info
        # Of the middle of the first second: the very first frames are often dark.
        frames = list(islice(source.frames(), 12))
        if not frames:
            raise InvalidInputError(f"{path}: has no picture that can be read")
        image = Image.fromarray(frames[-1].image)
        image.thumbnail((160, 120))
        image.save(picture, "JPEG", quality=75)
    finally:
        source.close()
    ends = ends_digest(path)
    return {"seconds": info.duration_s, "rate_hz": info.declared_rate_hz, "ends": ends}
