"""Draw a synthetic data set of any kind: faces, eyes, clips, a video, or trials."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from site_agent.datasets.gaze.generic_layout import TABLE_NAME
from site_agent.datasets.synthetic import videos
from site_agent.datasets.synthetic.conditioning import write_drawn_trials
from site_agent.datasets.synthetic.egocentric_clips import write_clips
from site_agent.datasets.synthetic.eye_patches.dataset import EyeDrawing, write_eye_dataset
from site_agent.datasets.synthetic.other_eyes import write_layout
from site_agent.datasets.synthetic.settings import (
    ClipSettings,
    FaceDrawing,
    TrialsDrawing,
    VideoDrawing,
)
from site_agent.datasets.synthetic.sites import face_dataset_files, write_face_dataset
from site_agent.work import Progress


@dataclass(frozen=True)
class Drawing:
    """A drawn data set."""

    path: Path
    """The file or folder that other commands read."""
    counts: dict[str, float]
    files: dict[str, Path] = field(default_factory=dict)
    """Further files, by their role."""


@dataclass(frozen=True)
class DrawnKind:
    """A kind of data that is drawn: a row of `KINDS`."""

    settings: Any
    """The default settings; `list_targets` and `draw` take such."""
    list_targets: Callable[[Path, Any], Sequence[Path]]
    """Returns the files that `draw` would replace."""
    draw: Callable[[Path, Any, Progress], Drawing]
    """Draws at a path; equal settings give equal files."""


def _list_face_files(path: Path, settings: FaceDrawing) -> list[Path]:
    return face_dataset_files(
        path,
        settings.images,
        settings.persons,
        first_person=settings.first_person,
        name=settings.name,
    )


def _draw_faces(path: Path, settings: FaceDrawing, progress: Progress) -> Drawing:
    xml = write_face_dataset(
        path,
        settings.images,
        settings.persons,
        settings.seed,
        image_size=settings.size,
        first_person=settings.first_person,
        style=settings.style,
        glasses=settings.glasses,
        name=settings.name,
        progress=progress,
    )
    return Drawing(xml, {"images": settings.images})


def _list_eye_files(path: Path, settings: EyeDrawing) -> list[Path]:
    # The other layouts need a new or empty folder.
    return [path / TABLE_NAME] if settings.layout == "folder" else []


def _draw_eyes(path: Path, settings: EyeDrawing, progress: Progress) -> Drawing:
    if settings.layout != "folder":
        samples = write_layout(path, settings, progress)
        return Drawing(path, {"persons": settings.persons, "samples": samples})
    table, samples = write_eye_dataset(path, settings, progress)
    return Drawing(table, {"persons": settings.persons, "samples": samples})


def _draw_clips(path: Path, settings: ClipSettings, progress: Progress) -> Drawing:
    count = write_clips(path, settings, progress)
    return Drawing(path, {"persons": settings.persons, "videos": count})


def _list_video_files(path: Path, settings: VideoDrawing) -> list[Path]:
    # A list of trials with this name may belong to a recording.
    trials = [] if settings.trials is None else [videos.trials_file(path)]
    return [path, *videos.truth_files(path), *trials]


def _draw_video(path: Path, settings: VideoDrawing, progress: Progress) -> Drawing:
    camera: dict[str, Any] = {
        "frame_rate_hz": settings.frame_rate_hz,
        "seed": settings.seed,
        "variable_frame_rate": settings.variable_frame_rate,
        "lost_frames": settings.lost_frames,
        "size": settings.size,
        "progress": progress,
    }
    if settings.trials is not None:
        session = videos.write_conditioning_video(path, settings.trials, **camera)
        files = {"truth": session.truth, "frames": session.frames, "trials": session.trials}
        return Drawing(path, {"seconds": session.seconds, "trials": settings.trials}, files)
    seconds = settings.seconds or 20.0
    truth = videos.write_blink_video(path, seconds=seconds, **camera)
    return Drawing(path, {"seconds": seconds}, {"truth": truth})


def _draw_trials(path: Path, settings: TrialsDrawing, _progress: Progress) -> Drawing:
    count = settings.animals * settings.sessions * settings.trials
    return Drawing(
        write_drawn_trials(path, settings), {"animals": settings.animals, "trials": count}
    )


KINDS: Mapping[str, DrawnKind] = {
    "faces": DrawnKind(FaceDrawing(), _list_face_files, _draw_faces),
    "eyes": DrawnKind(EyeDrawing(), _list_eye_files, _draw_eyes),
    # Clips need a new or empty folder.
    "clips": DrawnKind(ClipSettings(), lambda _path, _: [], _draw_clips),
    "video": DrawnKind(VideoDrawing(), _list_video_files, _draw_video),
    "trials": DrawnKind(TrialsDrawing(), lambda path, _: [path], _draw_trials),
}
"""By name; a new kind is a line."""
