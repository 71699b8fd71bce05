"""Drawn faces, and small models trained on them once for all tests that need some."""

import os
from pathlib import Path

import pytest

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import FaceDataset
from tests.made_once import made_once


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test a home of its own, and no pool from the environment."""
    for name in [name for name in os.environ if name.startswith("POOL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("POOL_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="session")
def training_faces(tmp_path_factory: pytest.TempPathFactory) -> FaceDataset:
    """24 drawn faces with landmarks, 200 x 200 px."""
    from tests.site_agent.face_data import draw_faces

    def make(folder: Path) -> None:
        draw_faces(folder / "faces", 24, persons=12, seed=3, size=(200, 200))

    return read_imglab_xml(made_once(tmp_path_factory, "training-faces", make) / "faces/faces.xml")


@pytest.fixture(scope="session")
def test_faces(tmp_path_factory: pytest.TempPathFactory) -> FaceDataset:
    """12 drawn faces of other persons."""
    from tests.site_agent.face_data import draw_faces

    def make(folder: Path) -> None:
        size = (200, 200)
        draw_faces(folder / "faces", 12, persons=6, seed=4, size=size, first_person=300)

    return read_imglab_xml(made_once(tmp_path_factory, "test-faces", make) / "faces/faces.xml")


@pytest.fixture(scope="session")
def trained_detector(training_faces: FaceDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector trained on `training_faces`."""
    from site_agent.training.detector_plan import HogSvmSettings
    from site_agent.training.hog_svm import train_hog_svm

    # A coarse one, so that evaluation meets wrong detections and missed faces.
    settings = HogSvmSettings(epsilon=0.5, threads=2)

    def make(folder: Path) -> None:
        train_hog_svm(training_faces, folder / "faces.svm", settings, training_scores=False)

    return made_once(tmp_path_factory, "detector", make) / "faces.svm"


@pytest.fixture(scope="session")
def trained_landmarks(
    training_faces: FaceDataset, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A landmark model trained on `training_faces`."""
    from site_agent.training.ert import ErtSettings, train_ert

    settings = ErtSettings(num_trees_per_cascade_level=30, cascade_depth=6, tree_depth=3)

    def make(folder: Path) -> None:
        train_ert(training_faces, folder / "faces.dat", settings)

    return made_once(tmp_path_factory, "landmarks", make) / "faces.dat"
