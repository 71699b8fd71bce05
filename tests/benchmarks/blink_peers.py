"""Blinks of one set of videos by this program and by the ways that laboratories use otherwise.

    python -m tests.benchmarks.blink_peers [VIDEOS [TRUTH]] [--landmarks NAME=FILE]
        [--traces NAME=FOLDER] [--threshold 0.2]

VIDEOS is a folder; TRUTH (VIDEOS itself where left out) holds for each video ``NAME_truth.json``
(as drawn videos have it) or ``NAME_blinks.csv`` (onset_s, offset_s); videos without it are named
and left out. Without VIDEOS three of 1280x720 are drawn. Each landmark model follows the face
through each video once, and dlib alone detects and predicts in every frame, as a script of twenty
lines does; each trace is searched by this program and by ``EAR < 0.2``. dlib's stock model of 68
points takes part where the package `face_recognition_models` is installed (it was trained on iBUG:
for research only). ``--traces`` adds other programs, such as MediaPipe in an environment of its
own: a table ``NAME.csv`` of eye aspect ratios for each video. A blink is found at an intersection
over union above 0.2, one to one.

The exit status is 1 where a threshold finds blinks better than this program in the same traces.
"""

import argparse
import importlib.util
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.synthetic.portraits import eye_aspect_ratios
from site_agent.datasets.synthetic.settings import VideoDrawing
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.errors import TableFileError
from site_agent.eyeblink.batch.sessions import VIDEO_SUFFIXES
from site_agent.eyeblink.conditioning.cr_onset import runs_of
from site_agent.eyeblink.face.finding import FaceFollower
from site_agent.eyeblink.face.landmarks import sample_eyes
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.records import EyeTrace, TraceBuilder, mean_of_valid_eyes
from site_agent.eyeblink.video.seeking import read_ahead
from site_agent.faces.models import open_detector, open_landmarks
from site_agent.pictures.video_reading import VideoReader
from site_agent.text_tables import read_table
from site_agent.training.ert import ErtSettings, train_ert
from tests.benchmarks.blinks_on_traces import Counts
from tests.site_agent.eyeblink.drawn_traces import find_blinks
from tests.site_agent.eyeblink.matching import Interval, match_blinks
from tests.site_agent.face_data import draw_faces

FOLDER = Path(tempfile.gettempdir()) / "poolctl-blink-peers"


@dataclass(frozen=True, eq=False)
class Run:
    """The result of one way of analysis, and its duration."""

    trace: EyeTrace
    seconds: float


def trained_landmarks(folder: Path) -> Path:
    path = folder / "landmarks.dat"
    if not path.is_file():
        faces = draw_faces(folder / "faces", 240, persons=60, seed=2, size=(320, 320))
        settings = ErtSettings(
            oversampling_amount=20,
            oversampling_translation_jitter=0.1,
            num_trees_per_cascade_level=200,
            tree_depth=4,
            threads=2,
        )
        train_ert(read_imglab_xml(faces), path, settings, training_scores=False)
    return path


def run_pipeline(video: Path, landmarks: Path) -> Run:
    follower = FaceFollower(open_detector(), open_landmarks(landmarks))
    builder = TraceBuilder()
    started_s = time.perf_counter()
    with VideoReader(video) as reader:
        for sample in sample_eyes(read_ahead(reader.frames, 16), follower):
            builder.add(sample)
    return Run(builder.build(), time.perf_counter() - started_s)


def run_plain(video: Path, landmarks: Path) -> Run:
    """Analyse as a script of twenty lines does."""
    import cv2
    import dlib

    detector, predictor = dlib.get_frontal_face_detector(), dlib.shape_predictor(str(landmarks))
    rows: list[tuple[float, float, float]] = []
    capture = cv2.VideoCapture(str(video))
    capture.set(cv2.CAP_PROP_N_THREADS, 1)
    started_s = time.perf_counter()
    while True:
        decoded, picture = capture.read()
        if not decoded:
            break
        grey = cv2.cvtColor(picture, cv2.COLOR_BGR2GRAY)
        time_s = len(rows) / capture.get(cv2.CAP_PROP_FPS)
        faces = detector(grey, 0)
        if not faces:
            rows.append((time_s, np.nan, np.nan))
            continue
        largest = max(faces, key=lambda face: face.area())
        points = predictor(grey, largest)
        right, left = eye_aspect_ratios(np.array([[p.x, p.y] for p in points.parts()]))
        rows.append((time_s, float(left), float(right)))
    seconds = time.perf_counter() - started_s
    capture.release()
    times_s, left, right = np.array(rows).T
    ear = mean_of_valid_eyes(left, right)
    known = np.isfinite(ear)
    trace = EyeTrace(
        np.arange(len(rows)), times_s, left, right, ear, known * 1.0, (~known).astype(np.uint8)
    )
    return Run(trace, seconds)


def drawn_videos(folder: Path, count: int = 3, seconds: float = 30.0) -> Path:
    """Draw videos of different persons, each with its truth; kept for the next run."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"person{number}.mp4"
        if not path.is_file():
            settings = VideoDrawing(seconds=seconds, size=(1280, 720), seed=60 + number)
            write_blink_video(path, settings, subject=800 + number)
    return folder


def read_truth(folder: Path, name: str) -> list[Interval]:
    described, listed = folder / f"{name}_truth.json", folder / f"{name}_blinks.csv"
    if described.is_file():
        blinks = json.loads(described.read_text(encoding="utf-8"))["blinks"]
        return [(blink["onset_s"], blink["offset_s"]) for blink in blinks]
    table = read_table(listed)
    onsets_s, offsets_s = table.numbers("onset_s"), table.numbers("offset_s")
    return [(float(a), float(b)) for a, b in zip(onsets_s, offsets_s, strict=True)]


def below(trace: EyeTrace, threshold: float) -> list[Interval]:
    """Return the stretches with an eye aspect ratio below a threshold, as tutorials have it."""
    end_s = np.append(trace.timestamps_s[1:], trace.timestamps_s[-1] + 1.0 / trace.frame_rate_hz)
    runs = runs_of(trace.ear < threshold, 1)
    return [(float(trace.timestamps_s[first]), float(end_s[last - 1])) for first, last in runs]


def found(trace: EyeTrace) -> list[Interval]:
    return [(blink.onset_s, blink.offset_s) for blink in find_blinks(trace)]


def compare(
    traces: Mapping[str, Mapping[str, EyeTrace]],
    frames_per_s: Mapping[str, float],
    truth: Mapping[str, Sequence[Interval]],
    threshold: float,
) -> bool:
    """Print a line for each model and search; return whether none of them beats our search."""
    leads = True
    for name, of_videos in traces.items():
        ways = {"this search": found, f"EAR < {threshold:g}": lambda one: below(one, threshold)}
        f1 = {}
        for way, search in ways.items():
            matches = [match_blinks(search(of_videos[video]), truth[video]) for video in of_videos]
            counts = Counts.of(matches)
            f1[way] = counts.f1
            speed = f"{frames_per_s[name]:6.0f} frames/s" if name in frames_per_s else ""
            print(f"  {name:14s} {way:12s} {counts}  {speed}")
        leads &= f1["this search"] == max(f1.values())
    return leads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("videos", type=Path, nargs="?")
    parser.add_argument("truth", type=Path, nargs="?")
    parser.add_argument("--landmarks", action="append", default=[], help="NAME=FILE, repeatable")
    parser.add_argument("--traces", action="append", default=[], help="NAME=FOLDER, repeatable")
    parser.add_argument("--threshold", type=float, default=0.2)
    arguments = parser.parse_args()
    videos = arguments.videos or drawn_videos(FOLDER / "peers")
    models = {
        name: Path(file) for name, file in (text.split("=", 1) for text in arguments.landmarks)
    }
    if not models:
        models["drawn faces"] = trained_landmarks(FOLDER)
    # Importing the package needs pkg_resources, which new versions of setuptools lack.
    spec = importlib.util.find_spec("face_recognition_models")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "models"
        models["stock 68"] = folder / "shape_predictor_68_face_landmarks.dat"
    paths, truth = {}, {}
    for path in sorted(videos.iterdir()):
        if path.suffix.lower() in VIDEO_SUFFIXES:
            try:
                truth[path.stem] = read_truth(arguments.truth or videos, path.stem)
                paths[path.stem] = path
            except TableFileError as error:
                print(f"{path.name} is left out: {error}")
    if not paths:
        raise SystemExit(f"{videos}: holds no video with truth")
    traces: dict[str, dict[str, EyeTrace]] = {}
    frames_per_s = {}
    ways = {model: partial(run_pipeline, landmarks=file) for model, file in models.items()}
    ways["dlib alone"] = partial(run_plain, landmarks=next(iter(models.values())))
    run_pipeline(next(iter(paths.values())), next(iter(models.values())))  # loads compiled code
    for model, analyse in ways.items():
        runs = {name: analyse(path) for name, path in paths.items()}
        traces[model] = {name: run.trace for name, run in runs.items()}
        frames = sum(len(run.trace.frames) for run in runs.values())
        frames_per_s[model] = frames / sum(run.seconds for run in runs.values())
    for text in arguments.traces:
        program, folder = text.split("=", 1)
        traces[program] = {name: read_trace(Path(folder) / f"{name}.csv") for name in paths}
    blinks = sum(map(len, truth.values()))
    print(f"{len(paths)} videos, {blinks} blinks")
    if not compare(traces, frames_per_s, truth, arguments.threshold):
        raise SystemExit("a threshold finds blinks better in the same traces")


if __name__ == "__main__":
    main()
