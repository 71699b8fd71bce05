"""Landmark training."""

import dataclasses
import json
from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators.formats import read_model
from aggregators.models import ShapePredictor
from aggregators.predictors import to_grey
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.landmark_schemes import mean_eye_aspect_ratio
from site_agent.datasets.records import FaceBox, FaceDataset, part_names, parts_array
from site_agent.errors import InvalidInputError, TrainingDataError
from site_agent.evaluation.landmark_scores import CLOSED_EAR
from site_agent.eyeblink.session import model_doubts
from site_agent.pictures.images import read_image
from site_agent.training.ert import FOR_BLINKS, ErtSettings, train_ert

QUICK = ErtSettings(num_trees_per_cascade_level=8, cascade_depth=3, tree_depth=2)


def change_box(dataset: FaceDataset, index: int, **changes: object) -> FaceDataset:
    """Change the first box of one image."""
    images = list(dataset.images)
    box = dataclasses.replace(images[index].boxes[0], **changes)  # type: ignore[arg-type]
    images[index] = dataclasses.replace(images[index], boxes=(box,))
    return dataclasses.replace(dataset, images=tuple(images))


def plain_dlib(dataset: FaceDataset, settings: ErtSettings, output: Path) -> bytes:
    """Return the result of dlib on whole images, without any of our cropping."""
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


def test_the_metadata_say_what_was_done(training_faces: FaceDataset, tmp_path: Path) -> None:
    steps: list[tuple[float | None, str]] = []
    result = train_ert(training_faces, tmp_path / "a.dat", QUICK, lambda *step: steps.append(step))
    written = json.loads(result.metadata_path.read_text())
    closed = str(written["details"]["closed_eyes"])
    assert written["suggested_labels"] == {
        "images": "24", "boxes": "24", "parts": "68", "closed_eyes": closed
    }  # fmt: skip
    assert written["settings"]["tree_depth"] == 2
    assert 0 < written["training_scores"]["mean_error"] < 0.5
    begun = [text for _, text in steps].index(next(t for _, t in steps if "GB of memory" in t))
    assert steps[begun + 1][1] == "reading image 1 of 24"
    assert result.record.warnings == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.dat", "a.dat.training.json"]


def test_some_landmarks_can_be_chosen(training_faces: FaceDataset, tmp_path: Path) -> None:
    eyes = tuple(name for name in part_names(training_faces) if 36 <= int(name) < 48)
    result = train_ert(training_faces, tmp_path / "a.dat", dataclasses.replace(QUICK, parts=eyes))
    model = read_model(result.model_path)
    assert isinstance(model, ShapePredictor)
    assert model.part_count == 12
    assert result.record.data.parts == 12
    grouped = dataclasses.replace(QUICK, parts=("left-eye", "36-41"))
    again = train_ert(training_faces, tmp_path / "b.dat", grouped)
    assert again.model_path.read_bytes() == result.model_path.read_bytes()
    assert again.record.settings["parts"] == eyes
    with pytest.raises(InvalidInputError, match="parts is 'tail'"):
        train_ert(training_faces, tmp_path / "a.dat", dataclasses.replace(QUICK, parts=("tail",)))


def test_training_without_closed_eyes_is_questioned(
    training_faces: FaceDataset, tmp_path: Path
) -> None:
    names = part_names(training_faces)
    shapes = np.stack([parts_array(box, names) for _, box in training_faces.boxes()])
    ratios = mean_eye_aspect_ratio(shapes, names)
    assert ratios is not None
    closed = ratios < CLOSED_EAR
    assert 0 < closed.sum() < len(closed)
    settings = dataclasses.replace(QUICK, parts=FOR_BLINKS.parts)
    result = train_ert(training_faces, tmp_path / "a.dat", settings)
    assert result.record.details["closed_eyes"] == closed.sum()
    assert result.record.warnings == ()

    images = [image for image, shut in zip(training_faces.images, closed, strict=True) if not shut]
    awake = dataclasses.replace(training_faces, images=tuple(images))
    record = train_ert(awake, tmp_path / "a.dat", settings).record
    assert record.suggested_labels["closed_eyes"] == "0"
    assert "no face has closed eyes" in record.warnings[0]
    (doubt,) = model_doubts(tmp_path / "a.dat", None, 12)
    assert "eyes are all open" in doubt


@pytest.mark.slow
def test_incomplete_boxes_are_named(training_faces: FaceDataset, tmp_path: Path) -> None:
    box = training_faces.images[3].boxes[0]
    some = dict(list(box.parts.items())[2:])
    dataset = change_box(training_faces, 3, parts=some)
    with pytest.raises(TrainingDataError, match="has 66 of 68 landmarks; it lacks 00") as caught:
        train_ert(dataset, tmp_path / "a.dat", QUICK)
    assert caught.value.problems[0][0] == box.line
    allowed = dataclasses.replace(QUICK, allow_missing_parts=True)
    # With missing landmarks each level of dlib's takes seconds, however few its trees are.
    low = dataclasses.replace(allowed, cascade_depth=1)
    assert train_ert(dataset, tmp_path / "a.dat", low).record.data.boxes == 24
    dataset = change_box(training_faces, 3, parts={})
    with pytest.raises(TrainingDataError, match="has no landmarks, 68 are expected"):
        train_ert(dataset, tmp_path / "a.dat", allowed)
    dataset = change_box(training_faces, 3, parts={}, ignore=True)
    assert train_ert(dataset, tmp_path / "a.dat", QUICK).record.data.ignored_boxes == 1


def test_data_without_landmarks_or_faces_are_refused(
    training_faces: FaceDataset, tmp_path: Path
) -> None:
    first = training_faces.images[0]
    bare = tuple(
        dataclasses.replace(image, boxes=(FaceBox(1, 2, 80, 80),)) for image in (first,) * 3
    )
    with pytest.raises(TrainingDataError, match="none of them has landmarks"):
        train_ert(dataclasses.replace(training_faces, images=bare), tmp_path / "a.dat", QUICK)
    with pytest.raises(TrainingDataError, match="has 1 boxes to train on, at least 2"):
        train_ert(dataclasses.replace(training_faces, images=(first,)), tmp_path / "a.dat", QUICK)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("nu", 1.1), ("tree_depth", 30), ("feature_pool_region_padding", -0.5), ("parts", ("1", "1"))],
)
def test_settings_out_of_range_are_refused(setting: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=setting):
        ErtSettings(**{setting: value})  # type: ignore[arg-type]
