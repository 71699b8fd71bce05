"""A drawn recording and a small landmark model trained on other drawn persons."""

from pathlib import Path

import pytest

from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.synthetic.settings import VideoDrawing
from site_agent.datasets.synthetic.videos import write_blink_video
from site_agent.training.ert import ErtSettings, train_ert
from site_agent.training_record import metadata_path
from tests.made_once import made_once
from tests.site_agent.face_data import draw_faces


@pytest.fixture(scope="session")
def drawn_faces(tmp_path_factory: pytest.TempPathFactory) -> FaceDataset:
    """150 faces of other persons than those of the recording."""
    folder = made_once(
        tmp_path_factory,
        "blink-faces",
        lambda folder: draw_faces(folder / "faces", 150, seed=2, size=(320, 320)),
    )
    return read_imglab_xml(folder / "faces" / "faces.xml")


@pytest.fixture(scope="session")
def landmark_file(drawn_faces: FaceDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Landmark model of 68 parts, good enough to see blinks of other persons."""
    folder = made_once(
        tmp_path_factory,
        "blink-landmarks",
        lambda folder: train_landmarks(drawn_faces, folder / "faces.dat"),
    )
    return folder / "faces.dat"


@pytest.fixture(scope="session")
def good_eyes_file(drawn_faces: FaceDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of the eyes alone, with no metadata file next to it."""

    def make(folder: Path) -> None:
        train_landmarks(drawn_faces, folder / "eyes.dat", parts=("eyes",))
        metadata_path(folder / "eyes.dat").unlink()

    return made_once(tmp_path_factory, "good-eyes", make) / "eyes.dat"


@pytest.fixture(scope="session")
def eyes_file(training_faces: FaceDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rough model of the eyes alone, for tests that do not depend on its accuracy."""

    def make(folder: Path) -> None:
        settings = ErtSettings(num_trees_per_cascade_level=10, cascade_depth=3, parts=("eyes",))
        train_ert(training_faces, folder / "eyes.dat", settings, training_scores=False)
        metadata_path(folder / "eyes.dat").unlink()

    return made_once(tmp_path_factory, "rough-eyes", make) / "eyes.dat"


def train_landmarks(dataset: FaceDataset, path: Path, parts: tuple[str, ...] = ()) -> None:
    settings = ErtSettings(
        oversampling_amount=8,
        oversampling_translation_jitter=0.1,
        num_trees_per_cascade_level=120,
        tree_depth=4,
        threads=2,
        parts=parts,
    )
    train_ert(dataset, path, settings, training_scores=False)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Video of 12 s with variable frame rate; its truth lies next to it."""

    def make(folder: Path) -> None:
        path = folder / "session.mp4"
        settings = VideoDrawing(seconds=12.0, variable_frame_rate=True, size=(320, 240), seed=3)
        write_blink_video(path, settings, subject=150)

    return made_once(tmp_path_factory, "blink-recording", make) / "session.mp4"
