"""Landmark training."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import dlib
import pytest

from aggregators.formats import read_model
from aggregators.models import ShapePredictor
from aggregators.predictors import to_grey
from site_agent.datasets import FaceDataset, part_names
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.errors import TrainingSettingsError
from site_agent.pictures.images import read_image
from site_agent.training import ErtSettings, train_ert

QUICK = ErtSettings(num_trees_per_cascade_level=8, cascade_depth=3, tree_depth=2)


def plain_dlib(dataset: FaceDataset, settings: ErtSettings, output: Path) -> bytes:
    """What dlib makes of whole images, without any of our cropping."""
    names = part_names(dataset)
    images, detections = [], []
    for image in dataset.images:
        images.append(to_grey(read_image(image.path, apply_orientation=False)))
        detections.append(
            [
                dlib.full_object_detection(
                    dlib.rectangle(*box.corners),
                    [dlib.point(*(int(value) for value in box.parts[name])) for name in names],
                )
                for box in image.boxes
            ]
        )
    options = dlib.shape_predictor_training_options()
    for name, value in settings.dlib_options().items():
        setattr(options, name, value)
    dlib.train_shape_predictor(images, detections, options).save(str(output))
    return output.read_bytes()


def test_photographs_give_the_same_bytes_as_plain_dlib(shared_data: Path, tmp_path: Path) -> None:
    dataset = read_imglab_xml(shared_data / "dlib_faces" / "training_with_face_landmarks.xml")
    settings = dataclasses.replace(
        QUICK,
        seed=7,
        oversampling_translation_jitter=0.05,
        feature_pool_region_padding=0.1,
        threads=2,
    )
    result = train_ert(dataset, tmp_path / "ours.dat", settings)
    assert result.model_path.read_bytes() == plain_dlib(dataset, settings, tmp_path / "plain.dat")


def test_all_settings_reach_dlib(training_faces: FaceDataset, tmp_path: Path) -> None:
    settings = ErtSettings(
        oversampling_amount=2,
        tree_depth=3,
        feature_pool_size=50,
        num_test_splits=5,
        cascade_depth=4,
        num_trees_per_cascade_level=6,
    )
    model = read_model(train_ert(training_faces, tmp_path / "a.dat", settings).model_path)
    assert isinstance(model, ShapePredictor)
    assert (model.level_count, model.tree_count, model.part_count) == (4, 24, 68)
    assert set(model.tree_depths.tolist()) == {3}
    assert model.pool_per_level.tolist() == [50] * 4


@pytest.mark.parametrize(
    ("setting", "value"),
    [("nu", 1.1), ("tree_depth", 30), ("feature_pool_region_padding", -0.5), ("parts", ("1", "1"))],
)
def test_settings_out_of_range_are_refused(setting: str, value: object) -> None:
    with pytest.raises(TrainingSettingsError, match=setting):
        ErtSettings(**{setting: value})  # type: ignore[arg-type]
