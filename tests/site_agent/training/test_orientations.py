"""Several orientations in one detector file."""

import dataclasses
from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators.formats import read_model
from aggregators.models import FhogDetector
from site_agent.datasets.records import FaceDataset
from site_agent.errors import TrainingDataError
from site_agent.evaluation.detection import evaluate_detector
from site_agent.pictures.images import read_image
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.hog_svm import plan_views, train_hog_svm

BY_LABEL = HogSvmSettings(epsilon=1.0, threads=2, by_label=True)


def labelled(dataset: FaceDataset, *labels: str | None) -> FaceDataset:
    """Give the images' boxes these labels in turn."""
    images = [
        dataclasses.replace(
            image,
            boxes=tuple(
                dataclasses.replace(box, label=labels[i % len(labels)]) for box in image.boxes
            ),
        )
        for i, image in enumerate(dataset.images)
    ]
    return dataclasses.replace(dataset, images=tuple(images))


@pytest.fixture(scope="module")
def trained(training_faces: FaceDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A detector of two orientations, and the detectors that it was made of."""
    folder = tmp_path_factory.mktemp("orientations")
    dataset = labelled(training_faces, "front", "left")
    for view in plan_views(dataset, BY_LABEL):
        plain = dataclasses.replace(BY_LABEL, by_label=False)
        train_hog_svm(view.dataset, folder / f"{view.label}.svm", plain, training_scores=False)
    steps: list[tuple[float | None, str]] = []
    result = train_hog_svm(
        dataset, folder / "both.svm", BY_LABEL, lambda part, text: steps.append((part, text))
    )
    fractions = [fraction for fraction, _ in steps if fraction is not None]
    assert fractions == sorted(fractions)
    assert {text.split(":")[0] for _, text in steps if ":" in text} == {"front", "left"}
    record = result.record
    assert record.data.boxes == 24
    assert record.data.ignored_boxes == 0
    assert [item["label"] for item in record.details["orientations"]] == ["front", "left"]
    assert record.suggested_labels["orientations"] == "2"
    assert set(record.training_scores) == {"recall", "precision", "average_precision"}
    return result.model_path


def test_the_file_holds_the_detectors_of_all_labels(trained: Path) -> None:
    both = read_model(trained)
    alone = [read_model(trained.with_name(f"{label}.svm")) for label in ("front", "left")]
    assert isinstance(both, FhogDetector)
    assert both.detector_count == 2
    for i, detector in enumerate(alone):
        assert isinstance(detector, FhogDetector)
        np.testing.assert_array_equal(both.weights[i], detector.weights[0])
        assert both.thresholds[i] == detector.thresholds[0]
        assert both.overlap_iou >= detector.overlap_iou


def test_dlib_finds_the_same_with_it_as_with_both(trained: Path, test_faces: FaceDataset) -> None:
    both = dlib.fhog_object_detector(str(trained))
    alone = [
        dlib.fhog_object_detector(str(trained.with_name(f"{label}.svm")))
        for label in ("front", "left")
    ]
    used = set()
    for image in test_faces.images[:6]:
        pixels = read_image(image.path)
        boxes, scores, indices = both.run(pixels, 0, -0.2)
        detections = [detector.run(pixels, 0, -0.2) for detector in alone]
        every = [
            (box.left(), box.top(), box.right(), box.bottom(), round(score, 6), i)
            for i, (rectangles, values, _) in enumerate(detections)
            for box, score in zip(rectangles, values, strict=True)
        ]
        for box, score, index in zip(boxes, scores, indices, strict=True):
            corners = (box.left(), box.top(), box.right(), box.bottom())
            assert (*corners, round(score, 6), index) in every
        used |= set(indices)
    assert used == {0, 1}


def test_a_face_counts_whichever_detector_finds_it(
    trained: Path, training_faces: FaceDataset
) -> None:
    both = evaluate_detector(trained, training_faces, resamples=0)
    for label in ("front", "left"):
        alone = trained.with_name(f"{label}.svm")
        assert both.recall >= evaluate_detector(alone, training_faces, resamples=0).recall
    plain = dlib.test_simple_object_detector(str(training_faces.path), str(trained))
    assert both.recall == pytest.approx(plain.recall)
    assert both.precision == pytest.approx(plain.precision)


def test_boxes_without_a_label_are_named(training_faces: FaceDataset, tmp_path: Path) -> None:
    dataset = labelled(training_faces, "front", None)
    with pytest.raises(TrainingDataError, match="no <label>") as caught:
        train_hog_svm(dataset, tmp_path / "a.svm", BY_LABEL)
    assert len(caught.value.problems) == 12
    line = dataset.images[1].boxes[0].line
    assert caught.value.problems[0][0] == line
    assert "front, left" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_other_labels_are_neither_faces_nor_background(training_faces: FaceDataset) -> None:
    views = plan_views(labelled(training_faces, "b", "a", "c"), BY_LABEL)
    assert [view.label for view in views] == ["a", "b", "c"]
    for view in views:
        assert view.plan.box_count == 8
        assert sum(len(boxes) for boxes in view.plan.ignored) == 16
