"""Train one gaze network on 30 rendered persons, and score it on sessions that were held out.

    python -m tests.benchmarks.gaze_networks [--data FOLDER] [--epochs N]

For comparison: a ridge regression of the scaled patches and head angles, with the penalty that
suits the test best; the constant mean gaze; and the error of an eye that is found exactly, with
only the person's own angle kappa and its own deviations unknown (no picture shows them).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import (
    GazeDataset,
    GazeSamples,
    angular_errors_deg,
    held_out_sessions,
)
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.datasets.synthetic.eye_patches.persons import make_person
from site_agent.evaluation.gaze import GazeScores, evaluate_networks
from site_agent.training.gaze import train_gaze
from site_agent.training.network_settings import GazeSettings

_PENALTIES = (1.0, 10.0, 100.0, 1000.0)


def main() -> None:
    """Run the benchmark and print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="rendered eyes; default: renders 30 persons")
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="poolctl-benchmark-") as folder:
        data = arguments.data or write_eye_dataset(Path(folder) / "eyes")[0]
        scores, ridge_deg, constant_deg = measure(open_gaze(data), Path(folder), arguments.epochs)
    worst = scores.metrics["worst_person_error_deg"]
    print(f"{scores.images} samples of held-out sessions of {len(scores.persons)} persons")
    print(f"network: mean {scores.mean_error_deg:.2f} degrees, worst person {worst:.2f}")
    print(f"ridge regression: {ridge_deg:.2f} degrees, {ridge_deg / scores.mean_error_deg:.2f} x")
    print(f"constant mean gaze: {constant_deg:.2f} degrees")
    print(f"unknown kappa alone, for a new person: {kappa_floor_deg():.2f} degrees")


def measure(dataset: GazeDataset, folder: Path, epochs: int) -> tuple[GazeScores, float, float]:
    """Return the network's scores, and the mean errors of ridge regression and constant."""
    samples = dataset.read()
    held = held_out_sessions(samples)
    train, test = samples[~held], samples[held]
    # The network sees nothing of the test, not even for when to stop.
    seen = GazeDataset(
        dataset.path, "folder", dataset.persons, lambda name: train[train.person == name]
    )
    settings = GazeSettings(epochs=epochs, validation=0.0, device="cpu", threads=1)
    network = train_gaze(seen, folder / "all.safetensors", settings).model_path
    [scores] = evaluate_networks([network], test)
    constant = np.broadcast_to(train.gaze.mean(axis=0), test.gaze.shape)
    constant_deg = float(angular_errors_deg(constant, test.gaze).mean())
    return scores, _ridge_error_deg(train, test), constant_deg


def kappa_floor_deg() -> float:
    """Return the mean angle between the persons' kappas and the mean kappa, over both eyes."""
    settings = RenderSettings()
    persons = [
        make_person(settings.seed, number, settings.skews, settings.glasses)
        for number in settings.numbers
    ]
    kappas = np.array([eye.kappa for person in persons for eye in (person.left, person.right)])
    mean = np.broadcast_to(kappas.mean(axis=0), kappas.shape)
    return float(angular_errors_deg(kappas, mean).mean())


def _ridge_error_deg(train: GazeSamples, test: GazeSamples) -> float:
    inputs, gaze = _features(train), train.gaze
    products, targets = inputs.T @ inputs, inputs.T @ gaze
    tried = _features(test)
    errors = []
    for penalty in _PENALTIES:
        weights = np.linalg.solve(products + penalty * np.eye(len(products)), targets)
        errors.append(float(angular_errors_deg(tried @ weights, test.gaze).mean()))
    return min(errors)


def _features(samples: GazeSamples) -> np.ndarray:
    patches = samples.patches.reshape(len(samples), -1).astype(np.float64)
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.maximum(patches.std(axis=1, keepdims=True), 4.0)
    return np.column_stack([patches, samples.head, np.ones(len(samples))])


if __name__ == "__main__":
    main()
