"""Draw a synthetic data set of any kind: faces, eyes, clips, or a video."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from site_agent.datasets.gaze.generic_layout import TABLE_NAME
from site_agent.datasets.synthetic import videos
from site_agent.datasets.synthetic.egocentric_clips import write_clips
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.datasets.synthetic.settings import ClipSettings, FaceDrawing, VideoDrawing
from site_agent.datasets.synthetic.sites import face_dataset_files, write_face_dataset
from site_agent.work import Progress, no_progress

DrawingSettings = FaceDrawing | RenderSettings | ClipSettings | VideoDrawing
KINDS: dict[str, DrawingSettings] = {
    "faces": FaceDrawing(),
    "eyes": RenderSettings(),
    "clips": ClipSettings(),
    "video": VideoDrawing(),
}
"""The default settings of each kind."""


@dataclass(frozen=True)
class Drawing:
    """A drawn data set."""

    path: Path
    """The file or folder that other commands read."""
    counts: dict[str, float]
    files: dict[str, Path] = field(default_factory=dict)
    """Further files, by their role."""


def list_targets(path: Path, settings: DrawingSettings) -> Sequence[Path]:
    """Return the files that `draw` would replace; clips need a new or empty folder instead."""
    if isinstance(settings, FaceDrawing):
        return face_dataset_files(path, settings.images, **_face_names(settings))
    if isinstance(settings, RenderSettings):
        return [path / TABLE_NAME]
    if isinstance(settings, VideoDrawing):
        # A list of trials with this name may belong to a recording.
        trials = [] if settings.trials is None else [videos.trials_file(path)]
        return [path, *videos.truth_files(path), *trials]
    return []


def draw(path: Path, settings: DrawingSettings, progress: Progress = no_progress) -> Drawing:
    """Draw a data set at a path; equal settings give equal files."""
    if isinstance(settings, FaceDrawing):
        xml = write_face_dataset(
            path,
            settings.images,
            **_face_names(settings),
            seed=settings.seed,
            image_size=settings.size,
            style=settings.style,
            glasses=settings.glasses,
            progress=progress,
        )
        return Drawing(xml, {"images": settings.images})
    if isinstance(settings, RenderSettings):
        table, samples = write_eye_dataset(path, settings, progress)
        return Drawing(table, {"persons": settings.persons, "samples": samples})
    if isinstance(settings, ClipSettings):
        count = write_clips(path, settings, progress)
        return Drawing(path, {"persons": settings.persons, "videos": count})
    return _draw_video(path, settings, progress)


def _face_names(settings: FaceDrawing) -> dict[str, Any]:
    return {
        "persons": settings.persons,
        "first_person": settings.first_person,
        "name": settings.name,
    }


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
