"""One review: the automatic result, the video, the log, and the resulting state."""

import getpass
import threading
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

from aggregators.formats import file_digest
from site_agent.errors import ReviewActionError, ReviewOutdatedError, VideoFileError
from site_agent.eyeblink.face.boxes import FaceSettings
from site_agent.eyeblink.face.finding import FaceFollower
from site_agent.eyeblink.face.landmarks import check_eyes
from site_agent.eyeblink.records import FaceBox, Float64, UInt8
from site_agent.eyeblink.review.actions import (
    Action,
    Add,
    Correct,
    CorrectionLog,
    DropFrame,
    ReviewState,
    UseFrame,
    replay,
)
from site_agent.eyeblink.review.reviewed_session import (
    AutomaticResult,
    read_automatic_result,
    write_reviewed_blinks,
)
from site_agent.eyeblink.video.recording import Recording, were_given
from site_agent.eyeblink.video.seeking import SeekableVideo
from site_agent.faces.models import open_detector, open_landmarks


@dataclass(frozen=True, eq=False)
class FoundLandmarks:
    """A face in one frame: its box and float64 landmarks in pixels, (68, 2) or (12, 2)."""

    box: FaceBox
    landmarks: Float64


class LandmarkFinder:
    """Places landmarks in boxes of frames.csv, or where a detector finds the face."""

    def __init__(self, landmarks: Path | str, detector: Path | str | None = None) -> None:
        self._predictor = open_landmarks(landmarks)
        check_eyes(self._predictor, str(landmarks))
        self._detector = open_detector(detector)
        self._lock = threading.Lock()

    def find(self, picture: UInt8, box: FaceBox | None) -> FoundLandmarks | None:
        """Return the landmarks of an RGB picture; None where there is no face to be found."""
        grey = np.asarray(Image.fromarray(picture).convert("L"), dtype=np.uint8)
        follower = FaceFollower(self._detector, self._predictor, FaceSettings())
        with self._lock:
            if box is not None:
                return FoundLandmarks(box, follower.landmarks_in(grey, box))
            face = follower.step(grey, 0.0)
        return FoundLandmarks(face.box, face.landmarks) if face is not None else None


@dataclass
class ReviewSession:
    """Everything that the page and the export ask for; `video` is None for a trace."""

    result: AutomaticResult
    log: CorrectionLog
    video: SeekableVideo | None
    finder: LandmarkFinder | None
    reviewer: str
    warnings: tuple[str, ...] = ()
    state: ReviewState = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        # A killed process may have left a table older than the log.
        self.state = self._replay(())
        if self.log.path.exists():
            write_reviewed_blinks(self.result, self.state, self.log.path.parent)

    def __enter__(self) -> "ReviewSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.log.close()
        if self.video is not None:
            self.video.close()

    @property
    def revision(self) -> int:
        """Number of actions so far; a request must have seen all of them."""
        return len(self.log.entries)

    def act(self, action: Action, revision: int | None = None) -> ReviewState:
        """Do one action: check it, keep it, and write the reviewed blinks.

        `revision` is how many actions the reviewer has seen.
        """
        with self._lock:
            if revision is not None and revision != self.revision:
                raise ReviewActionError(
                    "another window has changed something since; check the page, then repeat"
                )
            action = self._fit(action)
            # Replayed before it is logged: the log must not hold an action that does not apply.
            state = self._replay((action,))
            self.log.append(action, self.reviewer)
            self.state = state
            # Last, as it can be made again from the log, and is when a review is opened.
            write_reviewed_blinks(self.result, state, self.log.path.parent)
            return state

    def landmarks(self, frame: int) -> FoundLandmarks | None:
        """Return the landmarks that the model places in a frame, None where there are none."""
        if self.video is None or self.finder is None:
            return None
        return self.finder.find(self.video.picture(frame), self.result.frames.box(frame))

    def _replay(self, further: tuple[Action, ...]) -> ReviewState:
        actions = [entry.action for entry in self.log.entries]
        return replay(self.result.events, [*actions, *further])

    def _fit(self, action: Action) -> Action:
        """Move times to the nearest frames, and check that the frames exist."""
        if isinstance(action, Add | Correct):
            names = ("onset_s", "peak_s", "offset_s")
            times = {name: getattr(action, name) for name in names}
            frames = self.result.frames
            on_frames = {
                name: float(frames.timestamps_s[frames.nearest(time_s)])
                for name, time_s in times.items()
                if time_s is not None
            }
            return action.model_copy(update=on_frames)
        if isinstance(action, UseFrame | DropFrame):
            if self.video is None:
                raise ReviewActionError("there is no video to take training frames from")
            if action.frame >= len(self.result.frames.timestamps_s):
                raise ReviewActionError(f"there is no frame {action.frame}")
        return action


def open_review(
    place: Path | str,
    *,
    video: Path | str | None = None,
    trace_only: bool = False,
    landmarks: Path | str | None = None,
    detector: Path | str | None = None,
    reviewer: str | None = None,
) -> ReviewSession:
    """Open the results of an analysis for review."""
    result = read_automatic_result(place)
    finder = LandmarkFinder(landmarks, detector) if landmarks is not None else None
    warnings = [] if landmarks is None else _other_model(result, Path(landmarks))
    path = None if trace_only else _find_video(result, Path(video) if video else None)
    seekable = None
    if path is not None:
        other_clock = were_given(str(result.session.recording.get("times_from", "")))
        times_s = result.frames.timestamps_s
        seekable = Recording(path).seekable(times_s, other_clock=other_clock)
    review_folder = result.review_folder
    log = CorrectionLog(review_folder, result.sha256)
    try:
        return ReviewSession(
            result, log, seekable, finder, reviewer or user_name(), tuple(warnings)
        )
    except BaseException:
        log.close()
        raise


def user_name() -> str:
    """Return the name of the operating system's user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _find_video(result: AutomaticResult, chosen: Path | None) -> Path | None:
    source = result.source("video")
    if source is None:
        if chosen is not None:
            raise ReviewOutdatedError(
                f"{chosen}: {result.folder} is the result of a trace, no video belongs to it"
            )
        return None
    name, sha256 = source.name, source.sha256
    if chosen is not None:
        if chosen.exists() and not _is_recording(chosen, sha256):
            raise ReviewOutdatedError(
                f"{chosen}: is not the recording that was analysed "
                f"({name}, sha256 {str(sha256)[:12]}...)"
            )
        return chosen
    folder = result.folder.absolute()
    for place in (folder, folder.parent, Path()):
        if (place / name).exists() and _is_recording(place / name, sha256):
            return place / name
    raise VideoFileError(
        f"{name}: the analysed video is neither in {result.folder} nor next to it; give its place "
        "with --video FILE, or review the trace alone with --trace-only"
    )


def _is_recording(path: Path, sha256: str | None) -> bool:
    """Compare with the digest of the provenance, where it has one."""
    return sha256 is None or (path.is_file() and file_digest(path) == sha256)


def _other_model(result: AutomaticResult, path: Path) -> list[str]:
    source = result.source("landmarks")
    if source is None or source.sha256 is None or file_digest(path) == source.sha256:
        return []
    return [f"{path.name} is not the model that the analysis was done with ({source.name})"]
