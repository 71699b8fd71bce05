"""Every reader treats the EXIF orientation of a picture alike.

Pictures alone are read as they are shown, annotated ones as they are stored: dlib's tools, by which
boxes and landmarks are drawn, know no EXIF.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

from site_agent.datasets.check import check_datasets
from site_agent.datasets.gaze.generic_layout import Row, read_patch
from site_agent.datasets.records import FaceDataset
from site_agent.evaluation.model_runs import evaluate_model
from site_agent.pictures.images import UInt8, read_image
from site_agent.training.ert import ErtSettings, train_ert
from tests.site_agent.pictures.turned import STORED, save_turned

UPRIGHT = np.random.default_rng(1).integers(0, 256, (36, 60), dtype=np.uint8)
QUICK = ErtSettings(cascade_depth=2, num_trees_per_cascade_level=10, tree_depth=2)


def read_eye(path: Path) -> UInt8:
    row = Row(1, path.name, "p", "s", 0, "left", (0.0, 0.0, 0.0, 0.0))
    return read_patch(path.parent / "gaze.csv", row)


READERS: dict[str, Callable[[Path], UInt8]] = {
    "predict": lambda path: read_image(path)[..., 0],
    "eye patches": read_eye,
}


@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("reader", READERS)
def test_pictures_alone_are_read_as_they_are_shown(
    tmp_path: Path, reader: str, orientation: int
) -> None:
    path = save_turned(Image.fromarray(UPRIGHT), tmp_path / "1.png", orientation)
    np.testing.assert_array_equal(READERS[reader](path), UPRIGHT)


def test_annotated_pictures_are_read_as_they_are_stored(
    test_faces: FaceDataset, tmp_path: Path
) -> None:
    """Training, test and check of pictures with and without the EXIF data are the same."""
    models, scores = [], []
    for orientation in (1, 6):
        folder = tmp_path / str(orientation)
        folder.mkdir()
        images = []
        for image in test_faces.images[:4]:
            path, exif = folder / f"{image.path.stem}.png", Image.Exif()
            exif[ExifTags.Base.Orientation] = orientation
            with Image.open(image.path) as picture:
                picture.save(path, exif=exif)
                width, height = picture.size
            images.append(replace(image, path=path, width_px=width, height_px=height))
        faces = replace(test_faces, path=None, images=tuple(images))
        result = train_ert(faces, folder / "a.dat", QUICK, despite_findings=True)
        models.append(result.model_path.read_bytes())
        scored = evaluate_model(result.model_path, faces, despite_findings=True)
        scores.append(scored.metrics)
        codes = [finding.code for finding in check_datasets([faces])]
        assert set(codes) <= {"exif-orientation"}
    assert models[0] == models[1]
    assert scores[0] == scores[1]
