"""The records that pass between the stages: one sample a frame, one trace a session."""

from array import array
from dataclasses import dataclass, field, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
UInt8 = NDArray[np.uint8]

POSE_COLUMNS = ("yaw_deg", "pitch_deg")
DIGITS = 6
"""Decimals of times and eye aspect ratios in files."""


class FaceSource(IntEnum):
    """The source of the face box of a frame."""

    MISSING = 0
    DETECT = 1
    FOLLOW = 2
    TRACE = 3
    REGION = 4


class Gap(IntEnum):
    """Why a frame has no eye aspect ratio; never reported as an open eye."""

    NONE = 0
    NO_FACE = 1
    EYES_OUTSIDE = 2
    LANDMARKS_COLLAPSED = 3
    MARKED_INVALID = 4
    FACE_MOVING = 5
    NOT_SURE = 6
    VIDEO_DAMAGED = 7

    @property
    def text(self) -> str:
        return self.name.lower().replace("_", "-") if self else ""


@dataclass(frozen=True)
class FaceBox:
    """Left, top, right and bottom of a face in pixels, dlib's inclusive corners, unrounded."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left + 1.0

    @property
    def height(self) -> float:
        return self.bottom - self.top + 1.0


@dataclass(frozen=True)
class EyeSample:
    """The eyes in one frame."""

    frame: int
    timestamp_s: float
    source: FaceSource
    box: FaceBox | None
    score: float
    """The detector's; NaN where the face was followed or is missing."""
    ear_left: float
    ear_right: float
    """Eye aspect ratio of the subject's left and right eye; NaN where `gap` says why."""
    confidence: float
    """0..1; lower for a face turned away."""
    gap: Gap
    eyes_place: tuple[float, float, float] = (float("nan"),) * 3
    """Middle between the eyes (x, y) and their distance in px; NaN where not known."""
    pose_deg: tuple[float, float] = (float("nan"),) * 2
    """Yaw and pitch of the head; NaN where not known."""


@dataclass(frozen=True, eq=False)
class FaceColumns:
    """The face in every frame."""

    boxes: Float64
    """Shape (n, 4), px."""
    scores: Float64
    """Shape (n,)."""
    sources: UInt8
    """`FaceSource`, shape (n,)."""
    eyes_places: Float64 | None = None
    """`EyeSample.eyes_place`, shape (n, 3); None for a session that was read from its files."""


@dataclass(frozen=True, eq=False)
class EyeTrace:
    """Eye aspect ratios of a whole session, one entry a frame.

    EAR is NaN where not known.
    """

    frames: Int64
    timestamps_s: Float64
    """Strictly increasing."""
    ear_left: Float64
    ear_right: Float64
    ear: Float64
    """Mean of the valid eyes."""
    confidence: Float64
    gaps: UInt8
    """Values of `Gap`."""
    face: FaceColumns | None = None
    """None for a trace that was read from a file."""
    placeholders: int = 0
    """Frames in which such a trace had a number such as 0 or -1 in place of a value."""
    of_closure: bool = False
    """The file has closures; their EAR are those of an eye of the usual shape."""
    passed_over: tuple[str, ...] = ()
    """Columns of the file that are named like marks of valid frames but hold other values."""
    pose_deg: Float64 | None = None
    """Yaw and pitch of the head, shape (n, 2), NaN where not known; None where never."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        return np.isfinite(self.ear)

    def nearest(self, time_s: float) -> int:
        """Return the frame nearest in time."""
        after = int(np.searchsorted(self.timestamps_s, time_s))
        if after == 0:
            return 0
        if after == len(self.timestamps_s):
            return after - 1
        before_s, after_s = self.timestamps_s[after - 1], self.timestamps_s[after]
        return after - 1 if time_s - before_s <= after_s - time_s else after

    def box(self, frame: int) -> FaceBox | None:
        """Return the box of the face in a frame, None where there is none."""
        corners = [np.nan] if self.face is None else self.face.boxes[frame].tolist()
        return FaceBox(*corners) if np.isfinite(corners).all() else None

    @property
    def duration_s(self) -> float:
        """From the first frame to the end of the last one (one median frame interval longer)."""
        if len(self.timestamps_s) < 2:
            return 0.0
        steps_s = np.diff(self.timestamps_s)
        return float(self.timestamps_s[-1] - self.timestamps_s[0] + np.median(steps_s))

    @property
    def frame_time_s(self) -> Float64:
        """Return the time that each frame stands for, shape (n,).

        It lasts to the next frame, at most twice the usual time: nothing is known of lost frames
        and of pauses of the camera.
        """
        if len(self.timestamps_s) < 2:
            return np.zeros(len(self.timestamps_s))
        steps_s = np.diff(self.timestamps_s)
        usual_s = float(np.median(steps_s))
        times_s: Float64 = np.minimum(np.append(steps_s, usual_s), 2.0 * usual_s)
        return times_s

    @property
    def frame_rate_hz(self) -> float:
        """`frame_rate_of` the times."""
        return frame_rate_of(self.timestamps_s)


def frame_rate_of(timestamps_s: Float64) -> float:
    """Return the frames per second of increasing times, shape (n,); NaN for fewer than two.

    Times to a millisecond, as of Matroska, have a median interval of 33 or 8 ms at 30 or 120
    frames/s, so intervals near the median are averaged: lost frames and pauses have no part.
    """
    if len(timestamps_s) < 2:
        return float("nan")
    steps_s = np.diff(timestamps_s)
    usual_s = float(np.median(steps_s))
    near_s = steps_s[np.abs(steps_s / usual_s - 1.0) < _NEAR_USUAL]
    # Frames that come in bursts have no interval near the median.
    return 1.0 / (float(np.mean(near_s)) if len(near_s) else usual_s)


_NEAR_USUAL = 0.55
"""Half is included: 60 frames/s to 0.01 s have intervals of 0.02 and 0.01 s."""


def as_written(trace: EyeTrace) -> EyeTrace:
    """Return the trace with the digits that ``frames.csv`` has of it.

    Times to the microsecond, EAR to 1e-6 and angles to 0.01 degrees: results can be computed again
    from the file, to the last bit.
    """
    names = ("timestamps_s", "ear_left", "ear_right", "ear")
    rounded = {name: np.round(getattr(trace, name), DIGITS) for name in names}
    pose_deg = None if trace.pose_deg is None else np.round(trace.pose_deg, 2)
    return replace(trace, **rounded, pose_deg=pose_deg)


def mean_of_valid_eyes(ear_left: Float64, ear_right: Float64) -> Float64:
    """Return the mean of the eyes that are known, NaN where neither is."""
    left_known, right_known = np.isfinite(ear_left), np.isfinite(ear_right)
    total = np.where(left_known, ear_left, 0.0) + np.where(right_known, ear_right, 0.0)
    count = left_known.astype(np.float64) + right_known
    return np.where(count > 0, total / np.maximum(count, 1.0), np.nan)


@dataclass
class TraceBuilder:
    """Collects samples as they come, in flat arrays: 136 bytes a frame."""

    _rows: "array[float]" = field(default_factory=lambda: array("d"))

    COLUMNS = 17

    def add(self, sample: EyeSample) -> None:
        box = sample.box
        corners = (box.left, box.top, box.right, box.bottom) if box else (np.nan,) * 4
        self._rows.extend(
            (
                sample.frame,
                sample.timestamp_s,
                sample.ear_left,
                sample.ear_right,
                sample.confidence,
                sample.gap,
                sample.source,
                sample.score,
                *corners,
                *sample.eyes_place,
                *sample.pose_deg,
            )
        )

    def __len__(self) -> int:
        return len(self._rows) // self.COLUMNS

    def build(self) -> EyeTrace:
        rows = np.frombuffer(self._rows, dtype=np.float64).reshape(-1, self.COLUMNS)
        return EyeTrace(
            frames=rows[:, 0].astype(np.int64),
            timestamps_s=rows[:, 1].copy(),
            ear_left=rows[:, 2].copy(),
            ear_right=rows[:, 3].copy(),
            ear=mean_of_valid_eyes(rows[:, 2], rows[:, 3]),
            confidence=rows[:, 4].copy(),
            gaps=rows[:, 5].astype(np.uint8),
            face=FaceColumns(
                boxes=rows[:, 8:12].copy(),
                scores=rows[:, 7].copy(),
                sources=rows[:, 6].astype(np.uint8),
                eyes_places=rows[:, 12:15].copy(),
            ),
            pose_deg=rows[:, 15:].copy(),
        )
