"""Agreement of landmarkers on how far and how fast lids close while the head turns.

    python -m tests.benchmarks.blink_poses [--landmarks NAME=FILE] [--traces NAME=FOLDER]

Videos of drawn persons with blinks of known closure are written, in which the head turns by up to
25 degrees and nods; they are kept for the next run. Each landmark model follows the faces once.
dlib's stock model of 68 points takes part where the package `face_recognition_models` is
installed. ``--traces`` adds another program: a table ``NAME.csv`` for each video (timestamp_s, ear,
ear_left, ear_right, yaw_deg, pitch_deg). Amplitudes and closing speeds are measured of the same
blinks as seen (before) and with the head in its usual pose (after), by shares of the open eye.

Printed are, before and after: the slope of amplitudes on 10 degrees of yaw, as a share, the
agreement of each landmarker with the drawn amplitudes, and of all landmarkers with one another
(intraclass correlation, ICC(2,1) after P. E. Shrout and J. L. Fleiss 1979), and F1. The exit status
is 1 where a slope gets worse by more than chance, or an agreement or F1 does.
"""

import argparse
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from site_agent.datasets.synthetic.eyes import Blink
from site_agent.datasets.synthetic.videos import VideoScene, write_blink_video
from site_agent.eyeblink.blinks.finding import find_blinks
from site_agent.eyeblink.openness.signal import at_usual_pose
from site_agent.eyeblink.openness.traces import read_trace
from site_agent.eyeblink.records import EyeTrace, Float64
from tests.benchmarks.blink_speed import FOLDER, run_pipeline, trained_landmarks
from tests.benchmarks.blinks_on_traces import Counts
from tests.site_agent.eyeblink.matching import match_blinks

TURNING = VideoScene(drift_deg=24.0)


def turning_videos(folder: Path, persons: int = 10, seconds: float = 60.0) -> list[Path]:
    """Draw videos of heads that turn by up to 24 degrees and nod by up to 17."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"turning{number}.mp4" for number in range(persons)]
    for number, path in enumerate(paths):
        if not path.is_file():
            rng = np.random.default_rng(90 + number)
            onsets_s = np.arange(1.0, seconds - 1.0, 1.4) + rng.uniform(0.0, 0.4)
            blinks = [
                Blink(at_s, at_s + 0.1, at_s + 0.3, float(rng.uniform(0.5, 1.0)))
                for at_s in onsets_s.tolist()
            ]
            subject = 820 + number
            write_blink_video(
                path, seconds, 30.0, 90 + number, subject, blinks=blinks, scene=TURNING
            )
    return paths


@dataclass(frozen=True, eq=False)
class Measured:
    """The blinks of all videos by one landmarker, shape (n,); NaN where it misses one."""

    amplitude: Float64
    speed: Float64
    yaw_deg: Float64
    person: Float64
    counts: Counts


def measure(
    traces: Mapping[str, EyeTrace], truth: Mapping[str, list[dict[str, float]]]
) -> Measured:
    rows, matches = [], []
    for person, (name, trace) in enumerate(traces.items()):
        blinks = find_blinks(trace)
        spans = [(blink.onset_s, blink.offset_s) for blink in blinks]
        match = match_blinks(spans, [(true["onset_s"], true["offset_s"]) for true in truth[name]])
        matches.append(match)
        measured = np.full((len(truth[name]), 4), np.nan)
        measured[:, 3] = person
        assert trace.pose_deg is not None
        for place, at in match.pairs:
            blink = blinks[place]
            frame = int(np.searchsorted(trace.timestamps_s, blink.onset_s))
            yaw_deg = float(np.nanmedian(trace.pose_deg[max(0, frame - 5) : frame + 5, 0]))
            measured[at, :3] = blink.amplitude_fec, blink.peak_velocity_fec_per_s, yaw_deg
        rows.append(measured)
    return Measured(*np.concatenate(rows).T, Counts.of(matches))


def agreement(raters: list[Float64]) -> float:
    """Return ICC(2,1): two-way random effects, absolute agreement, single rater."""
    table = np.column_stack(raters)
    table = table[np.isfinite(table).all(axis=1)]
    count, k = table.shape
    grand = table.mean()
    rows = k * ((table.mean(axis=1) - grand) ** 2).sum() / (count - 1)
    columns = count * ((table.mean(axis=0) - grand) ** 2).sum() / (k - 1)
    rest = ((table - grand) ** 2).sum() - rows * (count - 1) - columns * (k - 1)
    error = rest / ((count - 1) * (k - 1))
    return float((rows - error) / (rows + (k - 1) * error + k * (columns - error) / count))


def slope(measured: Measured, drawn: Float64, *, to_a_side: bool) -> tuple[float, float]:
    """Return by which share amplitudes change for each 10 degrees of yaw, and the standard error.

    Persons have lines of their own of measured over drawn amplitude, as they are followed by
    different shares; without them, three persons seem to depend on yaw by chance.

    `to_a_side`: of the turn to the picture's right; else of the turn to either side.
    """
    known = np.isfinite(measured.amplitude) & np.isfinite(measured.yaw_deg)
    amplitude, yaw_deg = measured.amplitude[known], measured.yaw_deg[known]
    persons = measured.person[known, None] == np.unique(measured.person)
    turn = yaw_deg if to_a_side else np.abs(yaw_deg)
    design = np.column_stack([persons, persons * drawn[known, None], turn / 10.0])
    values, *_ = np.linalg.lstsq(design, amplitude)
    left = amplitude - design @ values
    variance = (
        left @ left / (len(left) - design.shape[1]) * np.linalg.inv(design.T @ design)[-1, -1]
    )
    return float(values[-1] / amplitude.mean()), float(np.sqrt(variance) / amplitude.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--landmarks", action="append", default=[], help="NAME=FILE, repeatable")
    parser.add_argument("--traces", action="append", default=[], help="NAME=FOLDER, repeatable")
    parser.add_argument("--persons", type=int, default=10)
    arguments = parser.parse_args()
    videos = turning_videos(FOLDER / "poses", arguments.persons)
    truth = {
        path.stem: json.loads(path.with_name(f"{path.stem}_truth.json").read_text("utf-8"))[
            "blinks"
        ]
        for path in videos
    }
    models = {
        name: Path(file) for name, file in (text.split("=", 1) for text in arguments.landmarks)
    }
    models.setdefault("ours", trained_landmarks(FOLDER))
    spec = importlib.util.find_spec("face_recognition_models")
    if spec is not None and spec.origin is not None:
        folder = Path(spec.origin).parent / "models"
        models.setdefault("stock 68", folder / "shape_predictor_68_face_landmarks.dat")
    traces = {
        name: {path.stem: run_pipeline(path, file).trace for path in videos}
        for name, file in models.items()
    }
    for text in arguments.traces:
        program, place = text.split("=", 1)
        traces[program] = {
            path.stem: read_trace(Path(place) / f"{path.stem}.csv") for path in videos
        }
    drawn = np.concatenate([[blink["amplitude"] for blink in truth[path.stem]] for path in videos])
    print(f"{len(videos)} videos, {len(drawn)} blinks; before -> after")
    results: dict[str, tuple[Measured, Measured]] = {}
    worse = False
    for name, seen in traces.items():
        usual = {video: at_usual_pose(trace) for video, trace in seen.items()}
        before, after = measure(seen, truth), measure(usual, truth)
        results[name] = before, after
        slopes = [
            slope(one, drawn, to_a_side=side) for side in (False, True) for one in (before, after)
        ]
        sided, to_right = (
            f"{old:+.3f} ({old_se:.3f}) -> {new:+.3f} ({new_se:.3f})"
            for (old, old_se), (new, new_se) in (slopes[:2], slopes[2:])
        )
        agreements = [agreement([one.amplitude, drawn]) for one in (before, after)]
        errors = [float(np.nanstd(one.amplitude - drawn)) for one in (before, after)]
        print(
            f"  {name:12s} slope on 10 degrees (standard error) to either side {sided}, to the "
            f"right {to_right}; ICC with the drawn amplitude {agreements[0]:.3f} -> "
            f"{agreements[1]:.3f}, SD of the error {errors[0]:.3f} -> {errors[1]:.3f}; F1 "
            f"{before.counts.f1:.3f} -> {after.counts.f1:.3f}"
        )
        for (old, _), (new, error) in (slopes[:2], slopes[2:]):
            worse |= abs(new) > max(abs(old), 2.0 * error)
        worse |= agreements[1] < agreements[0] or after.counts.f1 < before.counts.f1
    if len(results) > 1:
        for measure_name in ("amplitude", "speed"):
            between = [
                agreement([getattr(pair[place], measure_name) for pair in results.values()])
                for place in (0, 1)
            ]
            print(f"  between tools, {measure_name}: ICC {between[0]:.3f} -> {between[1]:.3f}")
    if worse:
        raise SystemExit("the usual pose makes a measure worse")


if __name__ == "__main__":
    main()
