"""Batches of recordings: the sessions of a study, with the models that analyse them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from site_agent import own_folders
from site_agent.errors import InvalidInputError
from site_agent.eyeblink.batch.sessions import (
    BatchSession,
    SessionList,
    find_sessions,
    read_session_table,
    with_models,
)
from site_agent.pool.profiles import usual_landmarks
from site_agent.tasks.caller import Caller
from site_agent.tasks.model_files import is_address, model_files


def default_landmarks(caller: Caller, look: Callable[[], None] = lambda: None) -> str:
    """Return the remembered model's name, or the path of the starter, which is trained once.

    `look`: Looks at the input before the training, so that a mistake is named at once.
    """
    return usual_landmarks() or str(_starter(caller, look))


def _starter(caller: Caller, look: Callable[[], None]) -> Path:
    from site_agent.training.ert import find_starter, kept_starter

    path = kept_starter(own_folders.cache_folder())
    if not path.is_file():
        look()
        caller.note(
            f"no --landmarks given: training a starter on drawn faces, once, for one to three "
            f"minutes; it is kept as {path}"
        )
    with caller.progress("train starter") as report:
        return find_starter(own_folders.cache_folder(), report)


@dataclass(frozen=True)
class PreparedBatch:
    """The sessions of a batch, with models that are on this machine."""

    sessions: Sequence[BatchSession]
    addresses: Mapping[str, str]
    """By its file, the address of a model that comes from the pool."""


def prepare_batch(
    caller: Caller,
    place: Path,
    study: Path,
    *,
    detector: str = "",
    landmarks: str = "",
    frame_rate_hz: float | None = None,
) -> PreparedBatch:
    """Read the sessions of a folder or a table, and fetch their models.

    `landmarks` and `detector`: Files or addresses, for the sessions that name none; by default the
    landmarks that were remembered, or the starter. Of a folder, the videos are taken if landmarks
    are given or it has no traces. `frame_rate_hz`: For sessions without times.
    """
    listed = _list_sessions(place, study, videos=bool(landmarks))
    for remark in listed.remarks:
        caller.warn(remark)
    if any(session.is_video and not session.landmarks for session in listed.sessions):
        landmarks = landmarks or default_landmarks(caller)
    completed = [
        _complete(session, detector, landmarks, frame_rate_hz) for session in listed.sessions
    ]
    # A file that one line of the table names and that is not there fails that session only.
    needed = sorted(
        word
        for word in {word for one in completed for word in (one.detector, one.landmarks)} - {""}
        if word in {detector, landmarks} or is_address(word)
    )
    files = {file.word: file for file in model_files(caller, needed)}
    sessions = with_models(completed, {word: file.path for word, file in files.items()})
    addresses = {
        str(file.path.absolute()): file.version.address
        for file in files.values()
        if file.version is not None
    }
    return PreparedBatch(list(sessions), addresses)


def _list_sessions(place: Path, study: Path, *, videos: bool) -> SessionList:
    if not place.exists():
        raise FileNotFoundError(f"{place}: no such file or folder; expected sessions")
    if not place.is_dir():
        return read_session_table(place)
    listed = find_sessions(place, videos=videos, leave_out=study)
    if not listed.sessions and not videos:
        listed = find_sessions(place, videos=True, leave_out=study)
    if not listed.sessions:
        looked_for = "videos" if videos else "videos, and no traces"
        raise InvalidInputError(f"{place}: holds no {looked_for}; expected a folder of recordings")
    return listed


def _complete(
    session: BatchSession, detector: str, landmarks: str, frame_rate_hz: float | None
) -> BatchSession:
    if not (session.frame_rate_hz or session.timestamps):
        session = replace(session, frame_rate_hz=frame_rate_hz)
    if not session.is_video:
        return session
    return replace(
        session, detector=session.detector or detector, landmarks=session.landmarks or landmarks
    )
