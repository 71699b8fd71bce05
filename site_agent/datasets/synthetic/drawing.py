"""Draw a synthetic data set of any kind: faces, eyes, clips, a video, or trials.

Drawn data in the layouts of published data sets: faces, phones, and cameras next to the eye.

Faces are a plain head with two rendered eyes, which look where the labels say. Pictures of near-eye
cameras are an eyeball with a pupil and a glint on dark skin, other for each person.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from site_agent.datasets.gaze import records
from site_agent.datasets.gaze.generic_layout import TABLE_NAME
from site_agent.datasets.synthetic.conditioning import write_drawn_trials
from site_agent.datasets.synthetic.egocentric_clips import write_clips
from site_agent.datasets.synthetic.eye_patches.dataset import (
    EyeDrawing,
    render_person,
    rendered_count,
    write_eye_dataset,
)
from site_agent.datasets.synthetic.eye_patches.persons import session_numbers
from site_agent.datasets.synthetic.settings import (
    ClipSettings,
    Drawing,
    FaceDrawing,
    TrialsDrawing,
    VideoDrawing,
)
from site_agent.datasets.synthetic.sites import face_dataset_files, write_face_dataset
from site_agent.datasets.synthetic.videos import truth_files, write_blink_video
from site_agent.errors import InvalidInputError, writing_to
from site_agent.plain_json import json_bytes
from site_agent.work import Progress, no_progress


@dataclass(frozen=True)
class DrawnKind:
    """A kind of data that is drawn: a row of `KINDS`."""

    settings: Any
    """The default settings; `list_targets` and `draw` take such."""
    list_targets: Callable[[Path, Any], Sequence[Path]]
    """Returns the files that `draw` would replace."""
    draw: Callable[[Path, Any, Progress], Drawing]
    """Draws at a path; equal settings give equal files."""


def _list_eye_files(path: Path, settings: EyeDrawing) -> list[Path]:
    # The other layouts need a new or empty folder.
    return [path / TABLE_NAME] if settings.layout == "folder" else []


def _draw_eyes(path: Path, settings: EyeDrawing, progress: Progress) -> Drawing:
    write = write_eye_dataset if settings.layout == "folder" else write_layout
    return write(path, settings, progress)


def _list_video_files(path: Path, settings: VideoDrawing) -> list[Path]:
    return [path, *truth_files(path, settings).values()]


KINDS: Mapping[str, DrawnKind] = {
    "faces": DrawnKind(FaceDrawing(), face_dataset_files, write_face_dataset),
    "eyes": DrawnKind(EyeDrawing(), _list_eye_files, _draw_eyes),
    # Clips need a new or empty folder.
    "clips": DrawnKind(ClipSettings(), lambda _path, _: [], write_clips),
    "video": DrawnKind(VideoDrawing(), _list_video_files, write_blink_video),
    "trials": DrawnKind(TrialsDrawing(), lambda path, _: [path], write_drawn_trials),
}
"""By name; a new kind is a line."""


_FACE_STREAM, _NEAR_STREAM = 0xFACE, 0x4EA2
_FACE_PX = 448
_EYE_X, _EYE_Y, _MOUTH_Y, _MOUTH_X = 50, -56, 75, 38
"""Places in the face, from its centre; its pixels are those of the patches, 0.625 mm."""
_INVALID_EVERY = 10


def write_layout(folder: Path, settings: EyeDrawing, progress: Progress = no_progress) -> Drawing:
    """Draw persons in the layout of the settings."""
    if folder.is_dir() and any(folder.iterdir()):
        raise InvalidInputError(f"{folder}: holds other files; choose a new or empty folder")
    write, count = _WRITERS[settings.layout], 0
    with writing_to(folder):
        for position, number in enumerate(settings.numbers):
            progress(position / settings.persons, f"person {number}")
            count += write(folder, settings, number)
    return Drawing(folder, {"persons": settings.persons, "samples": count})


class _Face:
    """A drawn face: its picture, (448, 448, 3), and its labels."""

    def __init__(self, pair: records.GazeSamples, tint: records.Float64) -> None:
        self.session, self.frame = str(pair.session[0]), int(pair.frame[0])
        patches, angles = pair.patches.copy(), np.stack([pair.gaze, pair.head], axis=1)
        records.as_left_eyes(patches, angles, pair.eye == "right")
        self.gaze, self.head = angles.mean(axis=0)
        tone = int(np.median(patches[:, -3:]))
        canvas = Image.new("L", (_FACE_PX, _FACE_PX), 255 - tone // 2)
        pen, middle = ImageDraw.Draw(canvas), _FACE_PX // 2
        turned = (-40 * self.head[0], -40 * self.head[1])
        pen.ellipse((middle - 130, middle - 190, middle + 130, middle + 180), fill=tone)
        for eye, patch in zip(pair.eye.tolist(), patches, strict=True):
            # The person's left eye is on the right of the picture.
            x = middle + (_EYE_X if eye == "left" else -_EYE_X) - 30
            canvas.paste(Image.fromarray(patch), (x, middle + _EYE_Y - 18))
        nose, mouth = middle + int(turned[0]), middle + _MOUTH_Y + int(turned[1])
        bridge, tip = middle - 20, middle + 30
        pen.line((nose, bridge, nose - 12, tip, nose + 12, tip), fill=tone // 2)
        pen.ellipse((nose - _MOUTH_X, mouth - 8, nose + _MOUTH_X, mouth + 8), fill=tone // 2)
        grey = np.array(canvas, dtype=np.float64)[..., None]
        self.picture: records.UInt8 = np.clip(grey * tint, 0, 255).astype(np.uint8)
        self.landmarks = [
            middle + shift
            for x in (-_EYE_X, _EYE_X)
            for corner in (-18, 18)
            for shift in (x + corner, _EYE_Y)
        ] + [middle - _MOUTH_X, middle + _MOUTH_Y, middle + _MOUTH_X, middle + _MOUTH_Y]


def _faces(settings: EyeDrawing, number: int) -> Iterator[_Face]:
    tint = np.random.default_rng([_FACE_STREAM, settings.seed, number]).uniform(0.7, 1.15, 3)
    samples = records.both_eyes(render_person(replace(settings, both_eyes=True), number))
    for first in range(0, len(samples), 2):
        yield _Face(samples[first : first + 2], np.sort(tint)[::-1])


def _write_normalised(folder: Path, settings: EyeDrawing, number: int) -> int:
    import h5py

    faces = list(_faces(settings, number))
    label = [[*face.gaze[::-1], *face.head[::-1], *face.landmarks] for face in faces]
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / f"p{number:02d}.mat", "w") as file:
        pictures = np.stack([face.picture[..., ::-1].transpose(2, 0, 1) for face in faces])
        file.create_dataset("Data/data", data=pictures, compression="gzip", compression_opts=1)
        file.create_dataset("Data/label", data=np.array(label))
    return len(faces)


def _write_gazecapture(folder: Path, settings: EyeDrawing, number: int) -> int:
    person = folder / f"{number:05d}"
    (person / "frames").mkdir(parents=True)
    rng = np.random.default_rng([_FACE_STREAM, settings.seed, number, 1])
    names: list[str] = []
    columns: dict[str, dict[str, list[float]]] = {}

    def note(name: str, **values: float) -> None:
        for key, value in values.items():
            columns.setdefault(name, {}).setdefault(key, []).append(value)

    valid = 0
    for i, face in enumerate(_faces(settings, number)):
        side, name = int(rng.integers(200, 260)), f"{i:05d}.jpg"
        x, y = int(rng.integers(60, 420 - side)), int(rng.integers(60, 580 - side))
        frame = Image.new("RGB", (480, 640), (90, 100, 90))
        frame.paste(Image.fromarray(face.picture).resize((side, side)), (x, y))
        frame.save(person / "frames" / name, quality=95)
        names.append(name)
        is_valid = int(i % _INVALID_EVERY != _INVALID_EVERY - 1)
        valid += is_valid
        note("appleFace", X=x, Y=y, W=side, H=side, IsValid=is_valid)
        for part, middle in (("appleLeftEye", _EYE_X), ("appleRightEye", -_EYE_X)):
            zoom, high = side / _FACE_PX, 44
            left, top = _FACE_PX / 2 + middle - high, _FACE_PX / 2 + _EYE_Y - high
            note(part, X=zoom * left, Y=zoom * top, W=2 * zoom * high, H=2 * zoom * high,
                 IsValid=is_valid)  # fmt: skip
        cell = 640 / 25
        note("faceGrid", X=1 + x // cell, Y=1 + y // cell, W=side // cell, H=side // cell,
             IsValid=is_valid)  # fmt: skip
        away = records.gaze_vectors(face.gaze[None])[0]
        # At 30 cm from the camera; the person's right is on the left of the picture.
        note("dotInfo", DotNum=i, XCam=-30 * away[0] / -away[2], YCam=-30 * away[1] / -away[2])
    info = {"TotalFrames": len(names), "Dataset": "train", "DeviceName": "drawn"}
    for name, content in {**columns, "frames": names, "info": info}.items():
        (person / f"{name}.json").write_bytes(json_bytes(content))
    return valid


class _NearEye:
    """The eye of a person as a camera next to it sees it, 640 x 480 pixels in grey."""

    def __init__(self, settings: EyeDrawing, number: int) -> None:
        self.rng = np.random.default_rng([_NEAR_STREAM, settings.seed, number])
        self._skin, self._iris = self.rng.uniform(90, 150), self.rng.uniform(60, 90)
        self._pupil_px = self.rng.uniform(26, 44)
        self._centre = self.rng.normal((320, 240), 20)
        self._turn = self.rng.normal(0, 0.03, 2)

    def draw(self, gaze: records.Float64) -> tuple[Image.Image, records.Float64]:
        """Return the picture and the pupil's centre in pixels.

        `gaze`: radians to the person's right, which is left in the picture, and up.
        """
        pupil = self._centre - 260 * np.sin(gaze + self._turn)
        picture = Image.new("L", (640, 480), int(self._skin))
        pen = ImageDraw.Draw(picture)
        half = np.array([230, 150])
        pen.ellipse((*(self._centre - half), *(self._centre + half)), fill=190)
        for radius, tone in ((95, self._iris), (self._pupil_px, 12)):
            ends = (*(pupil - radius), *(pupil + radius))
            pen.ellipse(ends, fill=int(tone))
        glint = self._centre + 0.4 * (pupil - self._centre) + (20, -20)
        pen.ellipse((*(glint - 5), *(glint + 5)), fill=255)
        soft = np.array(picture.filter(ImageFilter.GaussianBlur(2)), dtype=np.float64)
        noisy = np.clip(soft + self.rng.normal(0, 4, soft.shape), 0, 255).astype(np.uint8)
        return Image.fromarray(noisy), pupil

    def looks(self, count: int) -> records.Float64:
        return self.rng.uniform((-0.35, -0.25), (0.35, 0.25), (count, 2))


def _write_nvgaze(folder: Path, settings: EyeDrawing, number: int) -> int:
    eye, name = _NearEye(settings, number), f"{number + 1:02d}"
    (folder / name).mkdir(parents=True)
    lines = ["# drawn", "imagefile,eye,gaze_x,gaze_y"]
    for i, gaze in enumerate(eye.looks(rendered_count(settings, number))):
        side = "R" if i % 2 else "L"
        picture, _ = eye.draw(gaze * (-1 if side == "R" else 1, 1))
        if side == "R":
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        picture.save(folder / name / f"{i:06d}.jpg", quality=95)
        lines.append(f"{i:06d}.jpg,{side},{gaze[0]:.6f},{gaze[1]:.6f}")
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return len(lines) - 2


def _write_lpw(folder: Path, settings: EyeDrawing, number: int) -> int:
    import av

    eye, total = _NearEye(settings, number), rendered_count(settings, number)
    person = folder / str(number + 1)
    person.mkdir(parents=True)
    counts = session_numbers(settings.seed, number, total, settings.sessions)
    for session, count in enumerate(counts, start=1):
        lines = []
        with av.open(str(person / f"{session}.avi"), "w", format="avi") as container:
            stream = container.add_stream("mjpeg", rate=95)
            stream.width, stream.height, stream.pix_fmt = 640, 480, "yuvj420p"
            for gaze in eye.looks(count):
                picture, (x, y) = eye.draw(gaze)
                lines.append(f"{x:.2f} {y:.2f}")
                pixels = np.array(picture.convert("RGB"))
                container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
            container.mux(stream.encode())
        (person / f"{session}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return total


_WRITERS = {
    "mpiifacegaze": _write_normalised,
    "gazecapture": _write_gazecapture,
    "nvgaze": _write_nvgaze,
    "lpw": _write_lpw,
}
