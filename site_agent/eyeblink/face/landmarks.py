"""The eyes in the face of each frame, and how far they can be trusted."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from site_agent.datasets.landmark_schemes import EYE_POINTS, IBUG_PARTS, eye_aspect_ratio, eyes_of
from site_agent.datasets.part_order import group_of_shape, order_problem
from site_agent.errors import InvalidInputError
from site_agent.eyeblink.face.boxes import Predictor
from site_agent.eyeblink.face.finding import Follower, FoundFace
from site_agent.eyeblink.records import EyeSample, FaceSource, Float64, Gap
from site_agent.pictures.video_reading import Frame

SMALLEST_EYE_PX = 2.0
"""Eyes of less width are collapsed landmarks, or too small to tell open from closed."""

TRUSTED_YAW_DEG, LOST_YAW_DEG = 45.0, 75.0
TRUSTED_PITCH_DEG, LOST_PITCH_DEG = 15.0, 45.0
TRUSTED_EYES_YAW_DEG, LOST_EYES_YAW_DEG = 35.0, 60.0
"""For landmarks of the eyes alone: the farther eye is then two fifths as wide as the nearer one."""
EYE_SLANT_DEG = 18.0
"""How far the openings of the eyes are turned outwards, each to its side."""
TRUSTED_DISAGREEMENT, LOST_DISAGREEMENT = 0.03, 0.10
"""Landmarks from several starts end 0.005 to 0.01 apart on faces like those of the training, some
0.04 on others, and 0.06 to 0.11 where there is no face at all."""


def check_eyes(predictor: Predictor, name: str) -> None:
    """Refuse landmark models that have no eyes where they are looked for.

    Those of the 68-point scheme do, unless their mean shape shows that they were trained in
    another order, and those of the eyes alone: 12 points with the mean shape of two eyes.
    """
    count = predictor.part_count
    if problem := order_problem(predictor.initial_shape):
        raise InvalidInputError(
            f"{name}: the 68 landmarks of its mean face {problem}, so its landmarks 37 to 48 are "
            "not the eyes; expected the order of the iBUG scheme. Check its training data with "
            "'poolctl dataset check', and train it again"
        )
    if count == IBUG_PARTS or (
        count == EYE_POINTS and group_of_shape(predictor.initial_shape) == "eyes"
    ):
        return
    raise InvalidInputError(
        f"{name}: found a model of {count} landmarks, expected the 68 of the iBUG scheme, or the "
        f"{EYE_POINTS} of its eyes alone (37 to 48)"
    )


def sample_eyes(frames: Iterable[Frame], follower: Follower) -> Iterator[EyeSample]:
    """Yield the eyes of every frame."""
    for frame in frames:
        face = None if frame.damaged else follower.step(frame.image, frame.timestamp_s)
        yield eye_sample(frame, face)


def eye_sample(frame: Frame, face: FoundFace | None) -> EyeSample:
    """Measure the eyes of one frame; NaN with a reason where they cannot be measured."""
    if face is None:
        nan = float("nan")
        return EyeSample(
            frame.index,
            frame.timestamp_s,
            FaceSource.MISSING,
            None,
            nan,
            nan,
            nan,
            0.0,
            Gap.VIDEO_DAMAGED if frame.damaged else Gap.NO_FACE,
        )
    height_px, width_px = frame.image.shape[:2]
    left_eye, right_eye = eyes_of(face.landmarks)
    left, left_gap = _measure_eye(left_eye, width_px, height_px)
    right, right_gap = _measure_eye(right_eye, width_px, height_px)
    gap = Gap.NONE if Gap.NONE in (left_gap, right_gap) else left_gap
    left_middle, right_middle = (eye.sum(axis=0) / len(eye) for eye in (left_eye, right_eye))
    distance_px = float(np.linalg.norm(left_middle - right_middle))
    pose = head_pose(face.landmarks)
    return EyeSample(
        frame=frame.index,
        timestamp_s=frame.timestamp_s,
        source=face.source,
        box=face.box,
        score=face.score,
        ear_left=left,
        ear_right=right,
        confidence=0.0 if gap else face_confidence(face, pose),
        gap=gap,
        eyes_place=(*(left_middle + right_middle) / 2.0, distance_px),
        pose_deg=(pose.yaw_deg, pose.pitch_deg),
    )


def _measure_eye(eye: NDArray[np.float64], width_px: int, height_px: int) -> tuple[float, Gap]:
    if not np.isfinite(eye).all() or np.linalg.norm(eye[0] - eye[3]) < SMALLEST_EYE_PX:
        return float("nan"), Gap.LANDMARKS_COLLAPSED
    inside = (eye >= 0).all() and (eye[:, 0] <= width_px - 1).all()
    if not inside or not (eye[:, 1] <= height_px - 1).all():
        return float("nan"), Gap.EYES_OUTSIDE
    return float(eye_aspect_ratio(eye)), Gap.NONE


@dataclass(frozen=True)
class HeadPose:
    """Rough angles of the head."""

    yaw_deg: float
    """Positive to the picture's right."""
    pitch_deg: float
    """Positive downwards; NaN by landmarks of the eyes alone."""


def head_pose(landmarks: Float64) -> HeadPose:
    """Estimate yaw and pitch from 68 landmarks, or the yaw from the 12 of the eyes.

    To about 10 degrees: the tip of the nose stands out by roughly 0.45 of the distance between the
    outer eye corners; seen from the front it lies below the eyes by 0.55 of the way to the mouth.
    Eyes look narrower the farther they are turned away.
    """
    if len(landmarks) == EYE_POINTS:
        left, right = (float(np.linalg.norm(eye[3] - eye[0])) for eye in eyes_of(landmarks))
        contrast = (right - left) / (left + right) if left + right > 1e-6 else np.inf
        yaw = np.degrees(np.arctan2(contrast, np.tan(np.radians(EYE_SLANT_DEG))))
        return HeadPose(float(yaw), float("nan"))
    eyes = (landmarks[36] + landmarks[45]) / 2.0
    across = landmarks[45] - landmarks[36]
    mouth = (landmarks[48] + landmarks[54]) / 2.0
    width, down = float(np.linalg.norm(across)), mouth - eyes
    height = float(np.linalg.norm(down))
    if width < 1e-6 or height < 1e-6:
        return HeadPose(90.0, 90.0)
    nose = landmarks[30] - eyes
    sideways = (
        float(nose @ across) / width - float(nose @ down) / height**2 * float(down @ across) / width
    )
    yaw = np.degrees(np.arctan2(sideways / width, 0.45))
    along = float(nose @ down) / height**2
    pitch = np.degrees(np.arctan2((along - 0.55) * height / width, 0.45))
    return HeadPose(float(yaw), float(pitch))


def pose_confidence(pose: HeadPose) -> float:
    """Return 1 for a face seen from the front, falling to 0.1 for one turned far away."""
    by_eyes = np.isnan(pose.pitch_deg)
    lost = [TRUSTED_EYES_YAW_DEG, LOST_EYES_YAW_DEG] if by_eyes else [TRUSTED_YAW_DEG, LOST_YAW_DEG]
    by_yaw = np.interp(abs(pose.yaw_deg), lost, [1.0, 0.1])
    pitch_deg = 0.0 if by_eyes else abs(pose.pitch_deg)
    return float(min(by_yaw, np.interp(pitch_deg, [TRUSTED_PITCH_DEG, LOST_PITCH_DEG], [1.0, 0.1])))


def face_confidence(face: FoundFace, pose: HeadPose) -> float:
    """Return 1 for landmarks to be trusted; lower by pose, and where the starts disagree."""
    by_agreement = np.interp(
        face.disagreement, [TRUSTED_DISAGREEMENT, LOST_DISAGREEMENT], [1.0, 0.1]
    )
    return float(min(pose_confidence(pose), by_agreement))
