"""Trained models that several test modules share."""

from pathlib import Path

import pytest

from tests.aggregators.drawn_faces import train_detector, train_landmark_model


@pytest.fixture(scope="session")
def landmark_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four dlib shape predictors of different sites; the last one has other trees."""
    folder = tmp_path_factory.mktemp("landmark-models")
    paths = [folder / f"site-{seed}.dat" for seed in range(4)]
    for seed, path in enumerate(paths):
        train_landmark_model(path, seed, depth=2 if seed == 3 else 3)
    return paths


@pytest.fixture(scope="session")
def detector_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three dlib detectors of different sites, as Python saves them."""
    folder = tmp_path_factory.mktemp("detectors")
    paths = [folder / f"site-{seed}.svm" for seed in range(3)]
    for seed, path in enumerate(paths):
        train_detector(path, seed)
    return paths
