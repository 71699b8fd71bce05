"""Data sets of rendered eyes: gaze by person and session, and the files."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from site_agent.datasets.gaze import records
from site_agent.datasets.gaze.generic_layout import write_samples
from site_agent.datasets.synthetic.eye_patches.geometry import head_rotation
from site_agent.datasets.synthetic.eye_patches.persons import (
    EyePerson,
    Recording,
    Skews,
    make_person,
    make_recording,
    session_numbers,
)
from site_agent.datasets.synthetic.eye_patches.rendering import EyeFrames, render_patches
from site_agent.datasets.synthetic.settings import Drawing
from site_agent.errors import InvalidInputError
from site_agent.settings import Settings
from site_agent.work import Progress, no_progress

_FRAME_STREAM, _NOISE_STREAM = 0xF4A, 0x40E
_HALF_EYE_DISTANCE_MM, _CAMERA_MM = 31.5, 600.0
_TURN_LIMIT = np.deg2rad(28)
_MOST = 100_000


class RenderSettings(Settings, error=InvalidInputError):
    """The settings of a data set of rendered eyes."""

    persons: int = Field(default=30, ge=1, le=_MOST)
    """Number of persons."""
    frames_per_person: int = Field(default=1000, ge=1, le=_MOST)
    """Frames of a person, on average; skews.amount spreads them."""
    sessions: tuple[Annotated[int, Field(ge=1, le=_MOST)], Annotated[int, Field(ge=1)]] = (3, 8)
    """Fewest and most sessions of a person."""
    both_eyes: bool = False
    """Two patches a frame, instead of one of either eye."""
    glasses: float = Field(default=0.25, ge=0, le=1)
    """Share of the persons with glasses, 0 to 1."""
    seed: int = 0
    first_person: int = Field(default=0, ge=0)
    """Number of the first person; disjoint ranges share no person."""
    skews: Skews = Field(default_factory=Skews)

    def __post_init__(self) -> None:
        if self.sessions[0] > self.sessions[1]:
            raise self.refused("sessions", self.sessions, "the smaller number first")

    @property
    def numbers(self) -> range:
        """Numbers of the persons."""
        return range(self.first_person, self.first_person + self.persons)


class EyeDrawing(RenderSettings, error=InvalidInputError):
    """The settings of a data set of drawn eyes, in a layout."""

    layout: Literal["folder", "mpiifacegaze", "gazecapture", "nvgaze", "lpw"] = "folder"
    """folder: eye patches with gaze.csv. The others are those of published data sets: full faces,
    phones for iTracker, and near-eye cameras with gaze (nvgaze) or the pupil (lpw)."""


def rendered_count(settings: RenderSettings, number: int) -> int:
    """Return how many frames a person has: log-uniform, with the mean that was asked for."""
    ratio = settings.skews.amount
    mean = (ratio - 1) / np.log(ratio) if ratio > 1 else 1.0
    person = make_person(settings.seed, number, settings.skews, settings.glasses)
    return max(1, round(settings.frames_per_person * person.amount / float(mean)))


def render_person(settings: RenderSettings, number: int) -> records.GazeSamples:
    """Render all samples of one person; equal settings give equal samples."""
    return records.GazeSamples.join(list(_rendered_sessions(settings, number)))


def drawn_dataset(settings: RenderSettings) -> records.GazeDataset:
    """Return persons as a data set that renders them when they are read."""
    numbers = {f"p{number:02d}": number for number in settings.numbers}

    def render(name: str) -> records.GazeSamples:
        return render_person(settings, numbers[name])

    return records.GazeDataset(Path("drawn"), "drawn", tuple(numbers), render)


def write_eye_dataset(
    folder: Path, settings: RenderSettings = RenderSettings(), progress: Progress = no_progress
) -> Drawing:
    """Render a data set into a folder in the generic layout; the same settings, the same bytes."""
    persons = drawn_dataset(settings).read_each(progress)
    table, samples = write_samples(folder, (samples for _, samples in persons))
    return Drawing(table, {"persons": settings.persons, "samples": samples})


def _rendered_sessions(settings: RenderSettings, number: int) -> Iterator[records.GazeSamples]:
    seed, skews = settings.seed, settings.skews
    person = make_person(seed, number, skews, settings.glasses)
    counts = session_numbers(seed, number, rendered_count(settings, number), settings.sessions)
    for session, count in enumerate(counts):
        recording = make_recording(seed, number, session, skews, person)
        rng = np.random.default_rng([_FRAME_STREAM, seed, number, session])
        gaze, head = _looks(person, recording, count, rng)
        common = {
            "opening": np.clip(1 + rng.normal(0, 0.07, count), 0.75, 1.2),
            "pupil": np.clip(0.36 + rng.normal(0, 0.06) + rng.normal(0, 0.02, count), 0.22, 0.6),
        }
        either = rng.random(count) < 0.5
        for side, eye in enumerate(records.EYES):
            shift = rng.normal(0, 0.5, (count, 2))
            chosen = np.full(count, True) if settings.both_eyes else either == bool(side)
            turned, angles = _seen_from_eye(gaze, head, eye)
            drawn = EyeFrames(angles, turned, **common, shift_px=shift)[chosen]
            noise = np.random.default_rng([_NOISE_STREAM, seed, number, session, side])
            shape = getattr(person, eye)
            lit = recording if eye == "left" else _mirrored(recording)
            patches = render_patches(person, shape, lit, drawn, noise)
            kept = len(patches)
            yield records.GazeSamples(
                patches,
                drawn.gaze,
                drawn.head,
                np.full(kept, f"p{number:02d}"),
                np.full(kept, f"s{session:02d}"),
                np.flatnonzero(chosen).astype(np.int64),
                np.full(kept, eye, dtype="<U5"),
            )


def _looks(
    person: EyePerson, recording: Recording, count: int, rng: np.random.Generator
) -> tuple[records.Float64, records.Float64]:
    """Return gaze and head pose between both eyes: people turn their heads to where they look."""
    centre = np.add(person.gaze_centre, recording.gaze_shift)
    gaze = centre + rng.normal(0, 1, (count, 2)) * person.gaze_spread
    head_turns = rng.normal(0, 1, (count, 2)) * person.head_spread
    head = np.add(person.head_centre, recording.head_shift) + 0.3 * (gaze - centre) + head_turns
    head = np.clip(head, np.deg2rad([-35, -25]), np.deg2rad([35, 25]))
    limits = np.array([_TURN_LIMIT, 0.8 * _TURN_LIMIT])
    return head + np.clip(gaze - head, -limits, limits), head


def _seen_from_eye(
    gaze: records.Float64, head: records.Float64, eye: records.Eye
) -> tuple[records.Float64, records.Float64]:
    """Return head pose and gaze of one eye, as of a left eye, in its own normalised camera.

    Both eyes look at the same point of the camera's plane, and each camera points at its eye.
    """
    side = 1.0 if eye == "left" else -1.0
    rotation = head_rotation(head)
    place = side * _HALF_EYE_DISTANCE_MM * rotation[:, :, 0] + (0.0, 0.0, _CAMERA_MM)
    vectors = records.gaze_vectors(gaze)
    target = vectors * (-_CAMERA_MM / vectors[:, 2:]) + (0.0, 0.0, _CAMERA_MM)
    camera = head_rotation(records.gaze_angles(_unit(-place)))
    angles = records.gaze_angles(np.einsum("nji,nj->ni", camera, _unit(target - place)))
    turned = records.gaze_angles(np.einsum("nji,nj->ni", camera, -rotation[:, :, 2]))
    return turned * (side, 1.0), angles * (side, 1.0)


def _unit(vectors: records.Float64) -> records.Float64:
    lengths: records.Float64 = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / lengths


def _mirrored(recording: Recording) -> Recording:
    across = np.array([-1.0, 1.0, 1.0])
    return replace(recording, light=recording.light * across, glints=recording.glints * across)
