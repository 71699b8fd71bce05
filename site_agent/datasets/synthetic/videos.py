"""Videos of a drawn person with blinks at known times."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from site_agent.datasets.synthetic import canvas, conditioning, portraits
from site_agent.datasets.synthetic.eyes import Blink, closure_curve, random_blinks
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import Person, person
from site_agent.datasets.synthetic.rendering import Light, PaintedHead, head_window, paint_head
from site_agent.errors import writing_to
from site_agent.pictures.video import TICKS_PER_S, write_video
from site_agent.plain_json import write_json
from site_agent.tables import Column, Table, columns_of
from site_agent.work import Progress, no_progress

_Drawn = tuple[canvas.UInt8, tuple[float, float]]
_Region = tuple[slice, slice]
FRAMES = Table(
    "frames",
    (
        Column("frame"),
        Column("timestamp_s", format=".6f"),
        *columns_of(("closure", "ear_right", "ear_left", "ear"), ".5f"),
    ),
)


@dataclass(frozen=True)
class VideoScene:
    """The scene, which stays the same through a video."""

    light: Light = field(default_factory=Light)
    camera: canvas.Camera = field(default_factory=lambda: canvas.Camera(blur_px=0.6, noise=2.0))
    scenery: portraits.Background = "room"
    drift_deg: float = 5.0
    drift_px: float = 5.0
    scale_px: float | None = None


def truth_files(path: Path) -> tuple[Path, Path]:
    """Return the JSON and the CSV file that `write_blink_video` writes next to a video."""
    truth = path.with_name(f"{path.stem}_truth.json")
    return truth, truth.with_suffix(".csv")


def write_blink_video(
    path: Path | str,
    seconds: float = 20.0,
    frame_rate_hz: float = 30.0,
    seed: int = 0,
    subject: int | Person | None = None,
    *,
    blinks: Sequence[Blink] | None = None,
    closure: Callable[[canvas.Float64], canvas.Float64] | None = None,
    variable_frame_rate: bool = False,
    lost_frames: float = 0.0,
    size: tuple[int, int] = (640, 480),
    scene: VideoScene = VideoScene(),
    progress: Progress = no_progress,
) -> Path:
    """Write an mp4 video of a blinking person, and return the truth file next to it.

    Next to the video come ``<stem>_truth.json`` (settings and blinks) and ``<stem>_truth.csv``
    (time, closure and eye aspect ratio of every frame). Frames are drawn, encoded and forgotten
    one by one; memory does not grow with the length.

    Parameters
    ----------
    frame_rate_hz : float
        Nominal rate, 1..1000.
    subject : int or Person, optional
        The person or its number; `seed` where absent.
    blinks : sequence of Blink, optional
        Random ones where absent: every 2 to 6 s, some partial, some double.
    closure : callable, optional
        A curve of one's own instead of `blinks`: closure 0..1 at an array of times in seconds.
    variable_frame_rate : bool
        Frame intervals vary by up to 45 %; the times in the container are the true ones.
    lost_frames : float
        Share of frames that the camera dropped, 0..0.5.
    size : (width, height)
        Even numbers of pixels.
    """
    path = Path(path)
    rng = np.random.default_rng([0xB11F4, seed])
    drawn = subject if isinstance(subject, Person) else person(seed if subject is None else subject)
    chosen = list(blinks) if blinks is not None else random_blinks(seconds, rng)
    if closure is not None:
        chosen = list(blinks or [])
    times = _frame_times(seconds, frame_rate_hz, variable_frame_rate, lost_frames, rng)
    lids = closure(times) if closure is not None else closure_curve(chosen, times)
    lids = np.clip(np.asarray(lids, dtype=np.float64), 0.0, 1.0)
    truth, table = truth_files(path)
    frames = _frames(drawn, times, lids, scene, size=size, rng=rng)
    with writing_to(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FRAMES.open_csv(table) as write:

            def counted() -> Iterator[tuple[float, canvas.UInt8]]:
                for index, (image, ears) in enumerate(_drawn_ahead(frames)):
                    if index % 10 == 0:
                        progress(index / len(times), f"drawing frame {index} of {len(times)}")
                    right, left = ears
                    eyes = map(float, (lids[index], right, left, (right + left) / 2))
                    write([[index, float(times[index]), *eyes]])
                    yield float(times[index]), image

            write_video(path, counted(), frame_rate_hz, quality_crf=18)
        settings = {
            "seconds": seconds,
            "frame_rate_hz": frame_rate_hz,
            "variable_frame_rate": variable_frame_rate,
            "lost_frames": lost_frames,
            "size": list(size),
            "seed": seed,
            "person": drawn.number,
            "age_group": drawn.age_group,
        }
        listed = [asdict(blink) | {"complete": blink.complete} for blink in chosen]
        content = {"schema": "poolctl-blink-truth/1", "video": path.name, "frames": len(times)}
        write_json(truth, {**content, "settings": settings, "blinks": listed})
    progress(1.0, f"{len(times)} frames drawn")
    return truth


def _frame_times(
    seconds: float, rate_hz: float, variable: bool, lost: float, rng: np.random.Generator
) -> canvas.Float64:
    count = max(1, round(seconds * rate_hz))
    steps = np.ones(count)
    if variable:
        steps = rng.uniform(0.55, 1.45, count)
    times = np.concatenate([[0.0], np.cumsum(steps)[:-1]]) / rate_hz
    kept = rng.random(count) >= lost
    kept[0] = True
    # Write times as the container can hold them.
    return np.round(times[kept] * TICKS_PER_S) / TICKS_PER_S


def _frames(
    drawn: Person,
    times: canvas.Float64,
    lids: canvas.Float64,
    scene: VideoScene,
    *,
    size: tuple[int, int],
    rng: np.random.Generator,
) -> Iterator[tuple[canvas.UInt8, tuple[float, float]]]:
    scale = scene.scale_px or 0.19 * min(size)
    centre = (size[0] / 2, size[1] * 0.45)
    portrait = portraits.Portrait(drawn, centre, scale, Pose(), Expression(0.0, 0.15))
    head = paint_head(drawn, portrait.expression, scale)
    room = portraits.background(rng, size, scene.scenery)
    portraits.draw_body(room, drawn, portraits.placement_of(portrait), portrait.pose, scene.light)
    film = Film(room, scene.camera, rng)
    poses, shifts = _drift(times, scene, rng)
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
        yield film.take(moment, head, scene.light)


def _drawn_ahead(frames: Iterator[_Drawn]) -> Iterator[_Drawn]:
    """Yield the frames; each is drawn while the one before it is encoded."""
    with ThreadPoolExecutor(1) as drawer:
        coming = drawer.submit(next, frames, None)
        while (frame := coming.result()) is not None:
            coming = drawer.submit(next, frames, None)
            yield frame


class Film:
    """Takes frames of one room; the lasting parts are prepared once.

    A frame is drawn and exposed only where the head is: the rest is the room as it was taken
    once, under new noise.
    """

    _SPARE_PX = 64

    def __init__(
        self, room: canvas.Float32, camera: canvas.Camera, rng: np.random.Generator
    ) -> None:
        self._room = room
        self._rng = rng
        self._camera = camera
        # Noise is drawn once, larger than a frame, and a new place of it taken for every frame.
        rows, columns = room.shape[:2]
        grain = np.full((rows + self._SPARE_PX, columns + self._SPARE_PX, 3), 128, np.float32)
        noisy = canvas.expose(grain, canvas.Camera(0, camera.noise, grey=camera.grey), rng)
        self._brighter = np.maximum(noisy, 128) - np.uint8(128)
        self._darker = np.uint8(128) - np.minimum(noisy, 128)
        self._quiet = replace(camera, noise=0.0, jpeg_quality=None)
        # The blur brings in what lies this far from a place.
        self._margin_px = int(np.ceil(2.5 * camera.blur_px))
        self._picture = room.copy()
        self._taken_room = canvas.expose(room, self._quiet, rng)

    def take(
        self, moment: portraits.Portrait, head: PaintedHead, light: Light
    ) -> tuple[canvas.UInt8, tuple[float, float]]:
        landmarks = portraits.draw_portrait(self._picture, moment, light, head, with_body=False)
        drawn, exposed, inner = self._changed(moment, head)
        clean = self._taken_room.copy()
        clean[exposed] = canvas.expose(self._picture[drawn], self._quiet, self._rng)[inner]
        self._picture[drawn] = self._room[drawn]
        x, y = self._rng.integers(0, self._SPARE_PX, 2)
        place = (slice(y, y + clean.shape[0]), slice(x, x + clean.shape[1]))
        image = canvas.with_grain(clean, self._brighter[place], self._darker[place])
        return image, portraits.eye_aspect_ratios(landmarks)

    def _changed(
        self, moment: portraits.Portrait, head: PaintedHead
    ) -> tuple[_Region, _Region, _Region]:
        """Where the picture is not the room: with the blur's margin twice, with it once, and the
        latter as seen in the former."""
        rows, columns = self._room.shape[:2]
        left, top, right, bottom = head_window(
            self._room.shape, head, portraits.placement_of(moment)
        )
        if left >= right or top >= bottom:
            left, top, right, bottom = 0, 0, columns, rows
        near, far = self._margin_px, 2 * self._margin_px
        y, x = max(top - far, 0), max(left - far, 0)
        drawn = (slice(y, min(bottom + far, rows)), slice(x, min(right + far, columns)))
        first_row, last_row = max(top - near, 0), min(bottom + near, rows)
        first, last = max(left - near, 0), min(right + near, columns)
        exposed = (slice(first_row, last_row), slice(first, last))
        inner = (slice(first_row - y, last_row - y), slice(first - x, last - x))
        return drawn, exposed, inner


def _drift(
    times: canvas.Float64, scene: VideoScene, rng: np.random.Generator
) -> tuple[canvas.Float64, canvas.Float64]:
    """Draw a slow sway of the head: degrees, shape (n, 3), and shifts in pixels, shape (n, 2)."""
    waves = np.zeros((len(times), 5))
    for column in range(5):
        for share in (0.6, 0.3, 0.1):
            rate_hz = rng.uniform(0.03, 0.25) / share**0.5
            waves[:, column] += share * np.sin(2 * np.pi * (rate_hz * times + rng.random()))
    return waves[:, :3] * scene.drift_deg * (1.0, 0.7, 0.5), waves[:, 3:] * scene.drift_px


def _gazes(times: canvas.Float64, rng: np.random.Generator) -> canvas.Float64:
    """Where the eyes look: still, with a jump every second or two; shape (n, 2)."""
    length = float(times[-1]) + 1.0
    jumps = np.cumsum(rng.uniform(0.5, 2.5, int(length / 0.5) + 2))
    targets = np.clip(rng.normal(0, 0.35, (len(jumps) + 1, 2)), -1, 1)
    return targets[np.searchsorted(jumps, times)]


TRIALS = Table("trials", columns_of(("trial", "trial_type", "cs_onset_s", "us_onset_s"), ".6f"))
# The lids are drawn at this rate, whatever the camera's is.
_CURVE_RATE_HZ = 1000.0


@dataclass(frozen=True)
class ConditioningVideo:
    """The files of a drawn conditioning session."""

    video: Path
    trials: Path
    """The laboratory's list."""
    frames: Path
    """Closure and eye aspect ratios of every frame."""
    truth: Path
    """The settings and the drawn events of each trial."""
    seconds: float


def trials_file(path: Path) -> Path:
    """Return the list of trials that `write_conditioning_video` writes next to a video."""
    return path.with_name(f"{path.stem}_trials.csv")


def write_conditioning_video(
    path: Path | str,
    trials: int = 20,
    frame_rate_hz: float = 60.0,
    seed: int = 0,
    subject: int | None = None,
    *,
    design: conditioning.ConditioningDesign | None = None,
    variable_frame_rate: bool = False,
    lost_frames: float = 0.0,
    size: tuple[int, int] = (640, 480),
    progress: Progress = no_progress,
) -> ConditioningVideo:
    """Write a video of a session of eyeblink conditioning, with its truth files next to it.

    The events of the session depend on `seed` and `design` only, not on the camera.

    `trials`: the video is as long as they take (6 to 9 s each, unless `design` says otherwise).
    `design`: the kind of session; `trials` counts, and noise is that of the picture. The other
    parameters are those of `write_blink_video`.
    """
    path = Path(path)
    design = replace(design or conditioning.ConditioningDesign(), n_trials=trials, noise_fec=0.0)
    drawn = conditioning.draw_conditioning_session(seed, _CURVE_RATE_HZ, design)

    def closure(times_s: canvas.Float64) -> canvas.Float64:
        return np.interp(times_s, drawn.timestamps_s, np.clip(drawn.fec_true, 0.0, 1.0))

    seconds = float(drawn.timestamps_s[-1])
    truth = write_blink_video(
        path,
        seconds,
        frame_rate_hz,
        seed,
        subject,
        closure=closure,
        variable_frame_rate=variable_frame_rate,
        lost_frames=lost_frames,
        size=size,
        progress=progress,
    )
    listed = trials_file(path)
    with writing_to(path):
        TRIALS.write_csv(
            listed,
            (
                [trial.trial, trial.trial_type.value, trial.cs_onset_s, trial.us_onset_s]
                for trial in drawn.trials
            ),
        )
        write_json(truth, json.loads(truth.read_text(encoding="utf-8")) | _described(drawn))
    return ConditioningVideo(path, listed, truth.with_suffix(".csv"), truth, seconds)


def _described(drawn: conditioning.SyntheticConditioning) -> dict[str, Any]:
    trials = []
    for trial, truth in zip(drawn.trials, drawn.truth, strict=True):
        values = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(truth).items()
        }
        trials.append({"trial": trial.trial, "trial_type": str(trial.trial_type), **values})
    return {"trials": trials, "spontaneous_blinks_s": drawn.blinks_s.round(6).tolist()}
