"""How far gaze networks of drawn eyes carry over to pictures of another renderer.

    python -m tests.benchmarks.drawn_eyes_elsewhere [--seeds 3] [--persons 30] [--frames 200]

Networks of drawn eyes with a studio's camera, with a webcam, and with both, meet eyes cut out of
drawn faces: another renderer (painted, not traced) with persons, lids, light and camera that have
nothing in common with the first. Each network is tested as it is (error, and correlation of yaw
and pitch) and as a beginning: trained further on a few persons of the other renderer, compared with
a training on these from scratch, and tested on persons that it has not seen.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from site_agent.datasets.gaze.records import (
    GazeDataset,
    GazeSamples,
    angular_errors_deg,
    join_samples,
)
from site_agent.datasets.landmark_schemes import eyes_of
from site_agent.datasets.synthetic.canvas import Camera, expose
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, render_person
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.datasets.synthetic.head_model import Expression, Pose
from site_agent.datasets.synthetic.persons import person
from site_agent.datasets.synthetic.portraits import Portrait, draw_portrait
from site_agent.datasets.synthetic.rendering import Light, paint_head
from site_agent.networks.files import read_network
from site_agent.networks.modules import predict_gaze, to_module
from site_agent.training.gaze import train_gaze
from site_agent.training.network_settings import GazeSettings

# The corners of an eye are 28.9 mm apart, a patch is 37.5 mm wide, an iris has a radius of 5.85 mm,
# and its middle is 10.5 mm from that of the ball, as drawn eyes have them.
_WIDTHS, _IRIS_MM, _ARM_MM = 37.5 / 28.9, 5.85, 10.5
_FEW = (2, 8)
_TESTED = 16
_PICTURES = 25


def main() -> None:
    """Run the benchmark and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--persons", type=int, default=30)
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    rows: dict[str, list[list[float]]] = {}
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
            for name, row in measure(seed, arguments, Path(folder)).items():
                rows.setdefault(name, []).append(row)
                print(f"seed {seed}  {name:8}", *(f"{value:6.2f}" for value in row), flush=True)
    print(f"\nmean of {arguments.seeds} seeds, degrees; trained further on {_FEW} persons")
    print("base       as it is  r yaw  r pitch  " + "  ".join(f"{few} persons" for few in _FEW))
    for name, errors in rows.items():
        print(f"{name:9}", *(f"{value:8.2f}" for value in np.mean(errors, axis=0)))


def measure(seed: int, arguments: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """Return of each base: error, both correlations, and the errors after training further."""
    first = 1000 + 100 * seed
    tested = join_samples([face_eyes(first + number) for number in range(_TESTED)])
    few = [face_eyes(first + 50 + number) for number in range(max(_FEW))]
    settings = RenderSettings(
        persons=arguments.persons,
        frames_per_person=arguments.frames,
        skews=Skews(amount=1),
        seed=seed,
    )
    drawn = {
        camera: [
            render_person(replace(settings, camera=camera), number) for number in settings.numbers
        ]
        for camera in ("studio", "webcam")
    }
    half = arguments.persons // 2
    drawn["both"] = drawn["studio"][:half] + drawn["webcam"][half:]
    rows = {}
    bases: dict[str, Path | None] = {"scratch": None}
    for name, samples in drawn.items():
        bases[name] = trained(samples, folder / f"{name}.safetensors", arguments.epochs, seed)
    constant = np.broadcast_to(np.mean([samples.gaze.mean(0) for samples in few], axis=0), (1, 2))
    for name, base in bases.items():
        if base is None:
            error = angular_errors_deg(np.repeat(constant, len(tested), 0), tested.gaze).mean()
            row = [float(error), 0.0, 0.0]
        else:
            row = scores(base, tested)
        for count in _FEW:
            output = folder / f"{name}-{count}.safetensors"
            row.append(scores(trained(few[:count], output, 30, seed, base), tested)[0])
        rows[name] = row
    return rows


def trained(
    parts: list[GazeSamples], output: Path, epochs: int, seed: int, base: Path | None = None
) -> Path:
    """Train a network on samples, from a base or from random parameters."""
    samples = join_samples(parts)
    names = tuple(dict.fromkeys(samples.person.tolist()))
    dataset = GazeDataset(output, "folder", names, lambda name: samples[samples.person == name])
    settings = GazeSettings(epochs=epochs, validation=0.0, device="cpu", threads=1, seed=seed)
    return train_gaze(dataset, output, settings, base=base).model_path


def scores(network: Path, samples: GazeSamples) -> list[float]:
    """Return mean error in degrees, and the correlations of yaw and pitch."""
    predicted = predict_gaze(to_module(read_network(network)), samples.patches, samples.head)
    followed = [np.corrcoef(predicted[:, axis], samples.gaze[:, axis])[0, 1] for axis in (0, 1)]
    return [float(angular_errors_deg(predicted, samples.gaze).mean()), *map(float, followed)]


def face_eyes(number: int) -> GazeSamples:
    """Return eyes cut out of pictures of one drawn face, one a picture, with their gaze."""
    rng = np.random.default_rng([0xFACE, number])
    who = person(number)
    scale_px = float(rng.uniform(45, 110))
    head = paint_head(who, Expression(), scale_px)
    patches, gazes, heads = [], [], []
    for _ in range(_PICTURES):
        look = np.clip(rng.normal(0, 0.5, 2), -1, 1)
        yaw, pitch, roll = np.clip(rng.normal(0, (9, 6, 4)), -20, 20)
        shut = float(rng.uniform(0, 0.2))
        pose = Pose(*map(float, (yaw, pitch, roll)))
        portrait = Portrait(who, (160, 150), scale_px, pose, Expression(), shut, shut, tuple(look))
        scene = np.full((320, 320, 3), rng.uniform(30, 220), np.float32)
        light = Light(*rng.normal((0, 25), (45, 20)))
        marks = draw_portrait(scene, portrait, light, head, with_body=False)
        camera = Camera(rng.uniform(0.4, 1.5), rng.uniform(1, 5), np.exp(rng.normal(0, 0.2)))
        image = expose(scene, camera, rng)
        side = int(rng.integers(2))
        patches.append(_cut_out(image, eyes_of(marks)[side], rng, mirror=side == 1))
        # In face units the iris moves by 0.075 and 0.04; yaw is positive to the left, pitch up.
        moved = look * (0.075, 0.04) * _IRIS_MM / who.iris_radius / _ARM_MM
        turned = np.deg2rad([-yaw, pitch])
        sign = (1 if side == 0 else -1, 1)
        gazes.append((turned - np.arcsin(moved)) * sign)
        heads.append(turned * sign)
    count = len(patches)
    return GazeSamples(
        np.stack(patches),
        np.array(gazes),
        np.array(heads),
        np.full(count, f"f{number}"),
        np.full(count, "s00"),
        np.arange(count, dtype=np.int64),
        np.full(count, "left", dtype="<U5"),
    )


def _cut_out(
    image: np.ndarray, eye: np.ndarray, rng: np.random.Generator, *, mirror: bool
) -> np.ndarray:
    """Return a grey patch, 36 x 60, about corners of an eye that are found not quite exactly."""
    left, right = eye[0], eye[3]
    across = right - left
    width = _WIDTHS * np.hypot(*across) * np.exp(rng.normal(0, 0.04))
    middle = (left + right) / 2 + rng.normal(0, 0.03, 2) * width
    x = across / np.hypot(*across) * width / 60
    y = np.array([-x[1], x[0]])
    matrix = np.column_stack([x, y, middle - 30 * x - 18 * y])
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    way = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    patch = cv2.warpAffine(grey, matrix, (60, 36), flags=way, borderMode=cv2.BORDER_REPLICATE)
    return patch[:, ::-1] if mirror else patch


if __name__ == "__main__":
    main()
