"""Blinks of drawn persons with glasses, and of the same persons without.

    python -m tests.benchmarks.blinks_with_glasses [--persons 6] [--seconds 25] [--seeds 2]

Glasses are laid over drawn frames: a dark round rim, lenses that make the eyes smaller, a round
reflection that covers a part of the lens, and glasses that have slipped until the rim lies on the
upper lid. Printed are precision and recall of starter models (`poolctl train starter`) trained on
bare faces and with glasses on a third of the persons, the range of EAR that each shows, and its
error on bare faces. The glasses drawn for the training are of another make (`synthetic.glasses`),
and the persons are others. The same frames serve all strengths.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import eyes_of
from site_agent.datasets.synthetic.canvas import Camera, expose
from site_agent.datasets.synthetic.eyes import Blink, closure_curve, random_blinks
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import person
from site_agent.datasets.synthetic.portraits import Portrait, background, draw_portrait
from site_agent.datasets.synthetic.rendering import Light, paint_head
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.evaluation.model_runs import evaluate_model
from site_agent.eyeblink.blinks.finding import find_blinks
from site_agent.eyeblink.face.finding import FaceFollower
from site_agent.eyeblink.face.landmarks import eye_sample
from site_agent.eyeblink.openness.signal import calibrate, without_unjudged
from site_agent.eyeblink.records import EyeTrace, Float64, TraceBuilder, UInt8
from site_agent.faces.models import FaceDetector, open_detector, open_landmarks
from site_agent.pictures.video_reading import Frame
from site_agent.training.ert import GLASSES_SHARE, settings_for_blinks, train_ert
from tests.site_agent.eyeblink.matching import match_blinks

RATE_HZ = 30.0
SIZE = (320, 240)


@dataclass(frozen=True)
class Glasses:
    """Sizes in distances between the eyes; `glare` is the opacity of the reflection, 0..1."""

    rim: float = 0.03
    glare: float = 0.0
    shrink: float = 1.0
    slipped: float = 0.0
    side: int = 1


STRENGTHS: Mapping[str, Glasses | None] = {
    "none": None,
    "thin rim": Glasses(0.02),
    "thick rim": Glasses(0.07),
    "strong lenses": Glasses(0.05, shrink=0.85),
    "weak glare": Glasses(0.04, glare=0.35),
    "strong glare": Glasses(0.04, glare=0.7),
    "slipped": Glasses(0.07, slipped=0.16),
}


def put_on(picture: UInt8, landmarks: Float64, glasses: Glasses) -> UInt8:
    """Return the picture with glasses on a face with 68 known landmarks."""
    centres = [eye.mean(axis=0) for eye in eyes_of(landmarks)]
    apart = float(np.linalg.norm(centres[0] - centres[1]))
    across = (centres[0] - centres[1]) / apart
    tilt_deg = float(np.degrees(np.arctan2(across[1], across[0])))
    axes = (0.42 * apart, 0.29 * apart)
    result = picture.astype(np.float32)
    grid_y, grid_x = np.mgrid[: picture.shape[0], : picture.shape[1]].astype(np.float32)
    for centre in centres:
        middle = centre + np.array([0.0, (0.03 + glasses.slipped) * apart])
        if glasses.shrink < 1.0:
            places = middle + (np.stack([grid_x, grid_y], -1) - middle) / glasses.shrink
            smaller = cv2.remap(picture, places.astype(np.float32), None, cv2.INTER_LINEAR)
            inside = _ellipse(picture.shape, middle, axes, tilt_deg)
            result = result * (1 - inside) + smaller * inside
        if glasses.glare:
            spot = middle + glasses.side * np.array([0.1, -0.06]) * apart
            inside = _ellipse(picture.shape, spot, (0.17 * apart, 0.13 * apart), tilt_deg + 20)
            result = result * (1 - glasses.glare * inside) + 245.0 * glasses.glare * inside
        outer = _ellipse(picture.shape, middle, axes, tilt_deg)
        inner_axes = tuple(side - glasses.rim * apart for side in axes)
        ring = outer - _ellipse(picture.shape, middle, inner_axes, tilt_deg)
        result = result * (1 - ring) + 30.0 * ring
    return np.clip(result, 0, 255).astype(np.uint8)


def _ellipse(shape: tuple[int, ...], middle: Float64, axes: object, tilt_deg: float) -> Float64:
    mask = np.zeros(shape[:2], np.uint8)
    a, b = axes  # type: ignore[misc]
    scaled = (int(middle[0] * 16), int(middle[1] * 16)), (int(a * 16), int(b * 16))
    cv2.ellipse(mask, *scaled, tilt_deg, 0, 360, 255, -1, cv2.LINE_AA, 4)
    return (mask / 255.0)[..., None].astype(np.float32)


def drawn_session(who: int, seconds: float) -> tuple[list[Blink], list[tuple[UInt8, Float64]]]:
    """Return the blinks of a person and the frames with their landmarks."""
    rng = np.random.default_rng([0x61A55, who])
    blinks = random_blinks(seconds, rng)
    times_s = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    lids = np.clip(closure_curve(blinks, times_s), 0.0, 1.0)
    someone, scale = person(900 + who), 0.21 * min(SIZE)
    light = Light(azimuth_deg=float(rng.uniform(-40, 40)))
    camera = Camera(blur_px=0.6, noise=2.5)
    portrait = Portrait(someone, (SIZE[0] / 2, SIZE[1] * 0.47), scale, expression=Expression())
    head, room = paint_head(someone, portrait.expression, scale), background(rng, SIZE, "room")
    frames = []
    phases = rng.uniform(0, 6, 4)
    for time_s, closure in zip(times_s, lids, strict=True):
        sway = np.sin(0.7 * time_s * np.array([1.0, 0.6, 0.8, 0.5]) + phases)
        moment = replace(
            portrait,
            pose=Pose(*(float(5 * angle) for angle in sway[:3])),
            centre_px=(SIZE[0] / 2 + 4 * sway[3], SIZE[1] * 0.47 + 3 * sway[0]),
            closure_left=float(closure),
            closure_right=float(closure),
        )
        scene = room.copy()
        landmarks = draw_portrait(scene, moment, light, head)
        frames.append((expose(scene, camera, rng), landmarks))
    return blinks, frames


def trace_of_session(
    frames: list[tuple[UInt8, Float64]],
    glasses: Glasses | None,
    model: Path,
    detector: FaceDetector,
) -> EyeTrace:
    """Follow the eyes as the analysis of a video does."""
    follower = FaceFollower(detector, open_landmarks(model))
    builder = TraceBuilder()
    for number, (picture, landmarks) in enumerate(frames):
        seen = picture if glasses is None else put_on(picture, landmarks, glasses)
        grey = cv2.cvtColor(seen, cv2.COLOR_RGB2GRAY)
        frame = Frame(number, number / RATE_HZ, np.asarray(grey, dtype=np.uint8))
        builder.add(eye_sample(frame, follower.step(frame.image, frame.timestamp_s)))
    return without_unjudged(builder.build())


def trained_models(folder: Path, seeds: int) -> Iterator[tuple[str, Path]]:
    """Yield eye models as `poolctl train starter` makes them, of bare faces and with glasses."""
    for seed in range(seeds):
        for share in (0.0, GLASSES_SHARE):
            faces = folder / f"faces-{seed}-{share:.1f}"
            xml = write_face_dataset(faces, 250, 250, seed=21 + seed, glasses=share)
            settings = replace(settings_for_blinks(250), threads=1)
            model = folder / f"eyes-{seed}-{share:.1f}.dat"
            train_ert(read_imglab_xml(xml), model, settings, training_scores=False)
            yield f"seed {seed}, {share:.0%} of the training faces with glasses", model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--persons", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--pictures", type=Path)
    arguments = parser.parse_args()
    sessions = [drawn_session(who, arguments.seconds) for who in range(arguments.persons)]
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
        for name, glasses in STRENGTHS.items():
            picture, landmarks = sessions[0][1][0]
            seen = picture if glasses is None else put_on(picture, landmarks, glasses)
            Image.fromarray(seen).save(arguments.pictures / f"{name.replace(' ', '-')}.png")
    detector = open_detector()
    with tempfile.TemporaryDirectory() as folder:
        bare = write_face_dataset(Path(folder) / "bare", 200, 200, seed=5, first_person=2000)
        for trained, model in trained_models(Path(folder), arguments.seeds):
            scores = evaluate_model(model, read_imglab_xml(bare), workers=0).metrics
            shown = ", ".join(f"{name} {value:.4f}" for name, value in scores.items())
            print(f"{trained}: on 200 bare faces of others {shown}", flush=True)
            for name, glasses in STRENGTHS.items():
                _report(name, sessions, glasses, model, detector)


def _report(
    name: str,
    sessions: list[tuple[list[Blink], list[tuple[UInt8, Float64]]]],
    glasses: Glasses | None,
    model: Path,
    detector: FaceDetector,
) -> None:
    detected = true = right = 0
    ranges = []
    for blinks, frames in sessions:
        trace = trace_of_session(frames, glasses, model, detector)
        calibration = calibrate(trace.ear)
        blinked = [(b.onset_s, b.offset_s) for b in find_blinks(trace)]
        truth = [(b.onset_s, b.offset_s) for b in blinks]
        match = match_blinks(blinked, truth)
        detected, true, right = (
            detected + match.detected,
            true + match.true,
            right + len(match.pairs),
        )
        ranges.append(calibration.span / calibration.open_ear if calibration.open_ear else 0.0)
    print(
        f"  {name:14} recall {right / true:.3f} precision {right / max(detected, 1):.3f} "
        f"({right} right, {detected} found, {true} drawn); EAR range "
        f"{100 * np.mean(ranges):.0f} % of the open eye",
        flush=True,
    )


if __name__ == "__main__":
    main()
