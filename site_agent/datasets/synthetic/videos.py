"""Videos of a drawn person with blinks at known times."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.datasets.synthetic import canvas, conditioning, portraits
from site_agent.datasets.synthetic.eyes import Blink, closure_curve, random_blinks
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import Person, person
from site_agent.datasets.synthetic.rendering import Light, PaintedHead, paint_head
from site_agent.datasets.synthetic.settings import Drawing, VideoDrawing
from site_agent.errors import writing_to
from site_agent.pictures.video import TICKS_PER_S, write_video
from site_agent.plain_json import write_json
from site_agent.tables import Column, Table, columns_of
from site_agent.work import Progress, no_progress

_Drawn = tuple[canvas.UInt8, tuple[float, float]]
FRAMES = Table(
    "frames",
    (
        Column("frame"),
        Column("timestamp_s", format=".6f"),
        *columns_of(("closure", "ear_right", "ear_left", "ear"), ".5f"),
    ),
)


_LIGHT = Light()
_CAMERA = canvas.Camera(blur_px=0.6, noise=2.0)
_DRIFT_DEG, _DRIFT_PX = 5.0, 5.0
_TRIALS = Table("trials", columns_of(("trial", "trial_type", "cs_onset_s", "us_onset_s"), ".6f"))
# Lids of conditioning sessions are drawn at this rate, whatever the camera's is.
_CURVE_RATE_HZ = 1000.0
_SECONDS = 20.0


def truth_files(path: Path, settings: VideoDrawing) -> dict[str, Path]:
    """Return the files that `write_blink_video` writes next to a video, by their role."""
    truth = path.with_name(f"{path.stem}_truth.json")
    files = {"truth": truth, "frames": truth.with_suffix(".csv")}
    # Without trials, a list with this name may belong to a recording.
    if settings.trials is not None:
        files["trials"] = path.with_name(f"{path.stem}_trials.csv")
    return files


def write_blink_video(
    path: Path,
    settings: VideoDrawing = VideoDrawing(),
    progress: Progress = no_progress,
    *,
    subject: int | None = None,
    blinks: Sequence[Blink] | None = None,
    design: conditioning.ConditioningDesign | None = None,
) -> Drawing:
    """Write an mp4 video of a blinking person, with its truth files next to it.

    ``<stem>_truth.json`` has the settings and the blinks, ``<stem>_truth.csv`` the time, closure
    and eye aspect ratio of every frame. With trials it is a session of eyeblink conditioning:
    ``<stem>_trials.csv`` is the laboratory's list, the drawn events of each trial are in
    ``<stem>_truth.json``, and they depend on the seed and the design only, not on the camera.
    Frames are drawn, encoded and forgotten one by one; memory does not grow with the length.

    Parameters
    ----------
    subject : int, optional
        Number of the person; the seed where absent.
    blinks : sequence of Blink, optional
        Random ones where absent: every 2 to 6 s, some partial, some double.
    design : ConditioningDesign, optional
        Kind of session; the settings' trials count, and noise is that of the picture.
    """
    rng = np.random.default_rng([0xB11F4, settings.seed])
    drawn = person(settings.seed if subject is None else subject)
    session = None
    if settings.trials is not None:
        design = design or conditioning.ConditioningDesign()
        design = replace(design, n_trials=settings.trials, noise_fec=0.0)
        session = conditioning.draw_conditioning_session(settings.seed, _CURVE_RATE_HZ, design)
    seconds = float(session.timestamps_s[-1]) if session else settings.seconds or _SECONDS
    chosen = list(blinks) if blinks is not None else random_blinks(seconds, rng)
    times = _frame_times(seconds, settings, rng)
    if session is None:
        lids = np.clip(closure_curve(chosen, times), 0.0, 1.0)
    else:
        chosen = []
        lids = np.interp(times, session.timestamps_s, np.clip(session.fec, 0.0, 1.0))
    described = {"person": drawn.number, "age_group": drawn.age_group, "seconds": seconds}
    content: dict[str, Any] = {
        "schema": "poolctl-blink-truth/1",
        "video": path.name,
        "frames": len(times),
        "settings": asdict(settings) | described,
        "blinks": [asdict(blink) | {"complete": blink.complete} for blink in chosen],
    }
    counts, files = {"seconds": seconds}, truth_files(path, settings)
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FRAMES.open_csv(files["frames"]) as write:
            frames = _frames(drawn, times, lids, settings.size, rng)
            noted = _noted(frames, times, lids, write, progress)
            write_video(path, noted, settings.frame_rate_hz, quality_crf=18)
        if session is not None:
            counts["trials"] = len(session.trials)
            content |= _described(session)
            rows = (
                [t.trial, t.trial_type.value, t.cs_onset_s, t.us_onset_s] for t in session.trials
            )
            _TRIALS.write_csv(files["trials"], rows)
        write_json(files["truth"], content)
    progress(1.0, f"{len(times)} frames drawn")
    return Drawing(path, counts, files)


def _noted(
    frames: Iterator[_Drawn],
    times: canvas.Float64,
    lids: canvas.Float64,
    write: Callable[[list[list[float]]], None],
    progress: Progress,
) -> Iterator[tuple[float, canvas.UInt8]]:
    """Yield times and pictures, and write the truth of each."""
    for index, (image, (right, left)) in enumerate(_drawn_ahead(frames)):
        if index % 10 == 0:
            progress(index / len(times), f"drawing frame {index} of {len(times)}")
        ears = (right, left, (right + left) / 2)
        write([[index, float(times[index]), float(lids[index]), *ears]])
        yield float(times[index]), image


def _frame_times(
    seconds: float, settings: VideoDrawing, rng: np.random.Generator
) -> canvas.Float64:
    count = max(1, round(seconds * settings.frame_rate_hz))
    steps = np.ones(count)
    if settings.variable_frame_rate:
        steps = rng.uniform(0.55, 1.45, count)
    times = np.concatenate([[0.0], np.cumsum(steps)[:-1]]) / settings.frame_rate_hz
    kept = rng.random(count) >= settings.lost_frames
    kept[0] = True
    # Write times as the container can hold them.
    return np.round(times[kept] * TICKS_PER_S) / TICKS_PER_S


def _frames(
    drawn: Person,
    times: canvas.Float64,
    lids: canvas.Float64,
    size: tuple[int, int],
    rng: np.random.Generator,
) -> Iterator[_Drawn]:
    scale = 0.19 * min(size)
    centre = (size[0] / 2, size[1] * 0.45)
    portrait = portraits.Portrait(drawn, centre, scale, Pose(), Expression(0.0, 0.15))
    head = paint_head(drawn, portrait.expression, scale)
    room = portraits.background(rng, size, "room")
    portraits.draw_body(room, drawn, portraits.placement_of(portrait), portrait.pose, _LIGHT)
    film = Film(room, _CAMERA, rng)
    poses, shifts = _drift(times, rng)
    gazes = _gazes(times, rng)
    for index in range(len(times)):
        moment = replace(
            portrait,
            pose=Pose(*(float(angle) for angle in poses[index])),
            centre_px=(centre[0] + float(shifts[index, 0]), centre[1] + float(shifts[index, 1])),
            closure_left=float(lids[index]),
            closure_right=float(lids[index]),
            gaze=(float(gazes[index, 0]), float(gazes[index, 1])),
        )
        yield film.take(moment, head, _LIGHT)


def _drawn_ahead(frames: Iterator[_Drawn]) -> Iterator[_Drawn]:
    """Yield the frames; each is drawn while the one before it is encoded."""
    with ThreadPoolExecutor(1) as drawer:
        coming = drawer.submit(next, frames, None)
        while (frame := coming.result()) is not None:
            coming = drawer.submit(next, frames, None)
            yield frame


class Film:
    """Takes frames of one room, under noise that is drawn once, larger than a frame.

    A new place of it is taken for every frame, as drawing it takes longer than all else.
    """

    _SPARE_PX = 64

    def __init__(
        self, room: canvas.Float32, camera: canvas.Camera, rng: np.random.Generator
    ) -> None:
        self._room = room
        self._rng = rng
        rows, columns = room.shape[:2]
        grain = np.full((rows + self._SPARE_PX, columns + self._SPARE_PX, 3), 128, np.float32)
        noisy = canvas.expose(grain, canvas.Camera(0, camera.noise, grey=camera.grey), rng)
        self._brighter = np.maximum(noisy, 128) - np.uint8(128)
        self._darker = np.uint8(128) - np.minimum(noisy, 128)
        self._quiet = replace(camera, noise=0.0, jpeg_quality=None)

    def take(self, moment: portraits.Portrait, head: PaintedHead, light: Light) -> _Drawn:
        picture = self._room.copy()
        landmarks = portraits.draw_portrait(picture, moment, light, head, with_body=False)
        clean = canvas.expose(picture, self._quiet, self._rng)
        x, y = self._rng.integers(0, self._SPARE_PX, 2)
        place = (slice(y, y + clean.shape[0]), slice(x, x + clean.shape[1]))
        image = canvas.with_grain(clean, self._brighter[place], self._darker[place])
        return image, portraits.eye_aspect_ratios(landmarks)


def _drift(
    times: canvas.Float64, rng: np.random.Generator
) -> tuple[canvas.Float64, canvas.Float64]:
    """Draw a slow sway of the head: degrees, shape (n, 3), and shifts in pixels, shape (n, 2)."""
    waves = np.zeros((len(times), 5))
    for column in range(5):
        for share in (0.6, 0.3, 0.1):
            rate_hz = rng.uniform(0.03, 0.25) / share**0.5
            waves[:, column] += share * np.sin(2 * np.pi * (rate_hz * times + rng.random()))
    return waves[:, :3] * _DRIFT_DEG * (1.0, 0.7, 0.5), waves[:, 3:] * _DRIFT_PX


def _gazes(times: canvas.Float64, rng: np.random.Generator) -> canvas.Float64:
    """Where the eyes look: still, with a jump every second or two; shape (n, 2)."""
    length = float(times[-1]) + 1.0
    jumps = np.cumsum(rng.uniform(0.5, 2.5, int(length / 0.5) + 2))
    targets = np.clip(rng.normal(0, 0.35, (len(jumps) + 1, 2)), -1, 1)
    return targets[np.searchsorted(jumps, times)]


def _described(drawn: conditioning.SyntheticConditioning) -> dict[str, Any]:
    trials = []
    for trial, truth in zip(drawn.trials, drawn.truth, strict=True):
        values = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(truth).items()
        }
        trials.append({"trial": trial.trial, "trial_type": str(trial.trial_type), **values})
    return {"trials": trials, "spontaneous_blinks_s": drawn.blinks_s.round(6).tolist()}
