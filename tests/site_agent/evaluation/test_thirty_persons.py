"""One network for 30 rendered persons; minutes of training."""

from pathlib import Path

import numpy as np
import pytest

from site_agent.datasets.gaze.check import open_gaze
from site_agent.datasets.gaze.records import (
    GazeDataset,
    GazeSamples,
    angular_errors_deg,
    held_out_sessions,
)
from site_agent.datasets.synthetic.eye_patches.dataset import write_eye_dataset
from site_agent.evaluation.gaze import GazeScores, evaluate_networks
from site_agent.training.gaze import train_gaze
from site_agent.training.network_settings import GazeSettings


@pytest.mark.slow
def test_a_network_is_within_three_degrees_on_held_out_sessions(tmp_path: Path) -> None:
    table, count = write_eye_dataset(tmp_path / "eyes")
    assert count > 30_000
    scores, ridge_deg, constant_deg = measure(open_gaze(table), tmp_path, epochs=5)
    assert len(scores.persons) == 30
    assert scores.mean_error_deg <= 3.0
    assert ridge_deg >= 1.3 * scores.mean_error_deg
    assert constant_deg >= 2 * ridge_deg


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


def _ridge_error_deg(train: GazeSamples, test: GazeSamples) -> float:
    inputs, gaze = _features(train), train.gaze
    products, targets = inputs.T @ inputs, inputs.T @ gaze
    tried = _features(test)
    errors = []
    for penalty in (1.0, 10.0, 100.0, 1000.0):
        weights = np.linalg.solve(products + penalty * np.eye(len(products)), targets)
        errors.append(float(angular_errors_deg(tried @ weights, test.gaze).mean()))
    return min(errors)


def _features(samples: GazeSamples) -> np.ndarray:
    patches = samples.patches.reshape(len(samples), -1).astype(np.float64)
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.maximum(patches.std(axis=1, keepdims=True), 4.0)
    return np.column_stack([patches, samples.head, np.ones(len(samples))])
