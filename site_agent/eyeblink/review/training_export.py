"""The chosen frames as a training set: PNG files and an XML file as dlib's tools write it."""

import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from site_agent.datasets.imglab_xml import write_imglab_xml
from site_agent.datasets.landmark_schemes import IBUG_PARTS, RIGHT_EYE, eyes_of
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, numbered_parts
from site_agent.errors import InvalidInputError
from site_agent.eyeblink import records
from site_agent.eyeblink.review.actions import UseFrame
from site_agent.eyeblink.review.review_session import ReviewSession
from site_agent.work import Progress, no_progress

WANTED_EYE_WIDTH_PX = 60.0
LARGEST_SCALE = 4


@dataclass(frozen=True)
class ExportedTrainingSet:
    """The files of a training set."""

    path: Path
    images: int
    corrected_images: int
    scale: int
    """Size of its pictures relative to the video's."""


def export_training_set(
    review: ReviewSession, path: Path | str, *, progress: Progress = no_progress
) -> ExportedTrainingSet:
    """Write the frames that the reviewer chose, with face box and landmarks (68, or the eyes' 12).

    Pictures are enlarged up to four times, until the eyes are about 60 pixels wide: the format has
    whole pixels only, and half a pixel is a tenth of the opening of a small eye.
    """
    path = Path(path)
    folder = path.with_suffix("")
    if folder == path:
        raise InvalidInputError(f"{path}: expected a file name that ends in .xml")
    for target in (path, folder):
        if target.exists():
            raise InvalidInputError(f"{target}: already exists; give another name")
    video = review.video
    if video is None:
        raise InvalidInputError(f"{review.result.folder}: there is no video to take frames from")
    chosen = _choose_frames(review)
    scale = _fitting_scale([landmarks for _, _, landmarks in chosen])
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", suffix=".partial", dir=path.parent))
    try:
        images = []
        for number, (frame, box, landmarks) in enumerate(chosen):
            progress(number / len(chosen), f"frame {frame.frame}")
            target = temporary / f"frame-{frame.frame:07d}.png"
            picture = video.picture(frame.frame)
            images.append(_annotate(picture, target, box, landmarks, scale))
        temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    folder.chmod(0o755)
    placed = [
        AnnotatedImage(folder / i.path.name, i.boxes, i.width_px, i.height_px) for i in images
    ]
    dataset = FaceDataset(path, "Reviewed frames", _comment(review, scale), tuple(placed))
    write_imglab_xml(dataset, path)
    corrected = sum(bool(frame.moved) for frame, _, _ in chosen)
    return ExportedTrainingSet(path, len(images), corrected, scale)


def _choose_frames(
    review: ReviewSession,
) -> list[tuple[UseFrame, records.FaceBox, records.Float64]]:
    frames = [review.state.frames[number] for number in sorted(review.state.frames)]
    if not frames:
        raise InvalidInputError(
            f"{review.result.folder}: no frame is chosen for training; choose some in the page "
            "(key T) and correct their landmarks where needed"
        )
    faces = [(frame, *_face(review, frame)) for frame in frames]
    first, _, expected = faces[0]
    for frame, _, landmarks in faces:
        if len(landmarks) != len(expected):
            raise InvalidInputError(
                f"frame {frame.frame}: found {len(landmarks)} landmarks, expected the "
                f"{len(expected)} of frame {first.frame}; choose the frame again (key T) with the "
                "landmark model of the others"
            )
    return faces


def _face(review: ReviewSession, frame: UseFrame) -> tuple[records.FaceBox, records.Float64]:
    box = review.result.frames.box(frame.frame)
    if frame.landmarks is not None and box is not None:
        return box, np.array(frame.landmarks, dtype=np.float64)
    placed = review.landmarks(frame.frame)
    if placed is None:
        what = (
            "needs --landmarks FILE to place its landmarks" if review.finder is None else "no face"
        )
        raise InvalidInputError(f"frame {frame.frame}: {what}")
    if frame.landmarks is not None:
        return placed.box, np.array(frame.landmarks, dtype=np.float64)
    return placed.box, placed.landmarks


def _fitting_scale(landmarks: list[records.Float64]) -> int:
    widths = [float(np.linalg.norm(eye[0] - eye[3])) for face in landmarks for eye in eyes_of(face)]
    typical = float(np.median(widths))
    return min(LARGEST_SCALE, max(1, math.ceil(WANTED_EYE_WIDTH_PX / max(typical, 1.0))))


def _annotate(
    picture: records.UInt8, path: Path, box: records.FaceBox, landmarks: records.Float64, scale: int
) -> AnnotatedImage:
    height, width = picture.shape[:2]
    larger = Image.fromarray(picture).resize(
        (width * scale, height * scale), Image.Resampling.BICUBIC
    )
    larger.save(path)
    face = FaceBox(
        left=round(_scale(box.left, scale)),
        top=round(_scale(box.top, scale)),
        width=max(1, round(box.width * scale)),
        height=max(1, round(box.height * scale)),
        parts=_named_parts(_scale(landmarks, scale)),
    )
    return AnnotatedImage(path, (face,), *larger.size)


def _named_parts(landmarks: records.Float64) -> dict[str, tuple[float, float]]:
    """Name landmarks as in the iBUG scheme, so that those of the eyes fit files of all 68."""
    if len(landmarks) == IBUG_PARTS:
        return numbered_parts(landmarks)
    first = RIGHT_EYE.start
    return {f"{first + i:02d}": (float(x), float(y)) for i, (x, y) in enumerate(landmarks)}


def _scale(coordinate: Any, scale: int) -> Any:
    """Scale coordinates of pixel centres; pixels are areas that grow about their corner."""
    return (coordinate + 0.5) * scale - 0.5


def _comment(review: ReviewSession, scale: int) -> str:
    source = review.result.source("video")
    name, sha256 = (source.name, source.sha256) if source else ("a video", None)
    larger = f", enlarged {scale} times" if scale > 1 else ""
    return (
        f"Frames of {name} chosen and corrected by {review.reviewer} "
        f"in a review{larger}; video sha256 {sha256}"
    )
