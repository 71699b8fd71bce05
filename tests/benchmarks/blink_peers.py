"""Blinks of one set of videos by this program and by the ways that laboratories use otherwise.

    python -m tests.benchmarks.blink_peers [VIDEOS [TRUTH]] [--landmarks NAME=FILE]
        [--traces NAME=FOLDER] [--threshold 0.2]

VIDEOS is a folder; TRUTH (VIDEOS itself where left out) holds for each video ``NAME_truth.json``
(as drawn videos have it) or ``NAME_blinks.csv`` (onset_s, offset_s); videos without it are named
and left out. Without VIDEOS three are drawn. Each landmark model follows the face through each
video once; its trace is searched by this program and by ``EAR < 0.2``. dlib's stock model of 68
points takes part where the package `face_recognition_models` is installed (it was trained on iBUG:
for research only). ``--traces`` adds other programs, such as MediaPipe in an environment of its
own: a table ``NAME.csv`` of eye aspect ratios for each video. A blink is found at an intersection
over union above 0.2, one to one.

The exit status is 1 where a threshold finds blinks better than this program in the same traces.
"""

import argparse
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.errors import TableFileError
from site_agent.eyeblink.batch.sessions import VIDEO_SUFFIXES
from site_agent.eyeblink.blinks.finding import find_blinks
from site_agent.eyeblink.conditioning.cr_onset import runs_of
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.records import EyeTrace
from site_agent.text_tables import read_table
from tests.benchmarks.blink_speed import FOLDER, run_pipeline, trained_landmarks
from tests.benchmarks.blinks_on_traces import Counts
from tests.site_agent.eyeblink.matching import Interval, match_blinks


def drawn_videos(folder: Path, count: int = 3, seconds: float = 30.0) -> Path:
    """Draw videos of different persons, each with its truth; kept for the next run."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = folder / f"person{number}.mp4"
        if not path.is_file():
            write_blink_video(path, seconds, 30.0, seed=60 + number, subject=800 + number)
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
    for model, file in models.items():
        runs = {name: run_pipeline(path, file) for name, path in paths.items()}
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
