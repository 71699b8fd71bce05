"""Frames per second of the eyeblink pipeline, and of detecting and predicting in every frame.

    python -m tests.benchmarks.blink_speed [--seconds 30]

A video of 1280x720 is drawn and a landmark model trained on drawn faces of other persons (both
kept in the temporary folder for the next run). The plain way is that of a laboratory's script:
OpenCV decodes, dlib's detector searches every frame, dlib's shape predictor places the landmarks;
one thread. Its eye aspect ratios go through the same search for blinks. Where both find the same
blinks, only the speed differs.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.synthetic.portraits import eye_aspect_ratios
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.eyeblink.blinks.finding import Blink, find_blinks
from site_agent.eyeblink.face.finding import FaceFollower
from site_agent.eyeblink.face.landmarks import sample_eyes
from site_agent.eyeblink.records import EyeTrace, FaceSource, TraceBuilder, mean_of_valid_eyes
from site_agent.eyeblink.video.seeking import read_ahead
from site_agent.faces.models import open_detector, open_landmarks
from site_agent.pictures.video_reading import VideoReader
from site_agent.training.ert import ErtSettings, train_ert
from tests.site_agent.eyeblink.matching import match_blinks

FOLDER = Path(tempfile.gettempdir()) / "poolctl-blink-speed"


@dataclass(frozen=True, eq=False)
class Run:
    """The result of one way of analysis, and its duration."""

    trace: EyeTrace
    seconds: float

    @property
    def frames_per_s(self) -> float:
        return len(self.trace.frames) / self.seconds

    def blinks(self) -> list[Blink]:
        return find_blinks(self.trace)

    def intervals(self) -> list[tuple[float, float]]:
        return [(blink.onset_s, blink.offset_s) for blink in self.blinks()]


def trained_landmarks(folder: Path) -> Path:
    path = folder / "landmarks.dat"
    if not path.is_file():
        faces = write_face_dataset(folder / "faces", 240, persons=60, seed=2)
        settings = ErtSettings(
            oversampling_amount=20,
            oversampling_translation_jitter=0.1,
            num_trees_per_cascade_level=200,
            tree_depth=4,
            threads=2,
        )
        train_ert(read_imglab_xml(faces), path, settings, training_scores=False)
    return path


def drawn_video(folder: Path, seconds: float, size: tuple[int, int] = (1280, 720)) -> Path:
    path = folder / f"{size[1]}p-{seconds:g}s.mp4"
    if not path.is_file():
        write_blink_video(path, seconds, 30.0, seed=5, subject=700, size=size)
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


def compare(seconds: float) -> None:
    landmarks, video = trained_landmarks(FOLDER), drawn_video(FOLDER, seconds)
    truth = json.loads(video.with_name(f"{video.stem}_truth.json").read_text(encoding="utf-8"))
    true = [(blink["onset_s"], blink["offset_s"]) for blink in truth["blinks"]]
    warm_up = drawn_video(FOLDER, 1.0, (320, 240))
    run_pipeline(warm_up, landmarks)  # compiled code is loaded once a process
    runs = {"pipeline": run_pipeline(video, landmarks), "plain": run_plain(video, landmarks)}
    runs["pipeline again"] = run_pipeline(video, landmarks)
    for name, run in runs.items():
        print(f"{name:15s} {run.frames_per_s:7.1f} frames/s   {describe(run, true)}")
    ratios = [
        runs[name].frames_per_s / runs["plain"].frames_per_s for name in runs if name[1] == "i"
    ]
    print("ratio           " + ", ".join(f"{ratio:.1f}" for ratio in ratios))
    match = match_blinks(runs["pipeline"].intervals(), runs["plain"].intervals())
    same = len(match.pairs) == match.detected == match.true
    print(f"the same blinks {'yes' if same else f'no: {match}'}")


def describe(run: Run, true: list[tuple[float, float]]) -> str:
    match = match_blinks(run.intervals(), true)
    face = run.trace.face
    detected = "" if face is None else f", {np.sum(face.sources == FaceSource.DETECT)} detections"
    return (
        f"{len(run.trace.frames)} frames{detected}; blinks: {match.true} drawn, "
        f"{len(match.pairs)} of them found, {len(match.spurious)} others"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0)
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    compare(arguments.seconds)


if __name__ == "__main__":
    main()
