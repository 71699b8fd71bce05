"""Scores of detectors, against dlib's."""

import dataclasses
import json
from pathlib import Path

import dlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.records import FaceBox, FaceDataset
from site_agent.errors import EvaluationError, ImageFileError
from site_agent.evaluation.detection import (
    DetectionScores,
    average_precision,
    evaluate_detector,
    match_image,
    overlap_scores,
    summarise_detections,
)


def equals_dlib(scores: DetectionScores, plain: dlib.simple_test_results) -> None:
    assert scores.recall == pytest.approx(plain.recall, abs=1e-12)
    assert scores.precision == pytest.approx(plain.precision, abs=1e-12)
    assert scores.average_precision == pytest.approx(plain.average_precision, abs=1e-12)


def test_ignored_boxes_count_as_in_dlib(
    trained_detector: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    images = [
        dataclasses.replace(
            image,
            boxes=tuple(dataclasses.replace(box, ignore=i % 3 == 0) for box in image.boxes)
            + ((FaceBox(3, 5, 40, 40),) if i % 4 == 1 else ()),
        )
        for i, image in enumerate(test_faces.images)
    ]
    xml = tmp_path / "ignored.xml"
    write_imglab_xml(dataclasses.replace(test_faces, images=tuple(images)), xml)
    scores = evaluate_detector(trained_detector, read_imglab_xml(xml))
    equals_dlib(scores, dlib.test_simple_object_detector(str(xml), str(trained_detector)))
    assert scores.ignored_detections > 0
    assert scores.false_negatives >= 3


def test_scores_on_photographs_equal_those_of_dlib(shared_data: Path) -> None:
    xml = shared_data / "dlib_faces" / "testing.xml"
    images, boxes = [], []
    dataset = read_imglab_xml(xml)
    from site_agent.faces.models import open_detector
    from site_agent.pictures.images import read_image

    for image in dataset.images:
        images.append(read_image(image.path, apply_orientation=False))
        boxes.append([dlib.rectangle(*box.corners) for box in image.boxes])
    stock = dlib.get_frontal_face_detector()
    for upsample in (0, 1):
        scores = evaluate_detector(open_detector(None), dataset, upsample=upsample)
        plain = dlib.test_simple_object_detector(images, boxes, stock, upsample)
        equals_dlib(scores, plain)
        assert scores.upsample == upsample


def test_results_are_plain_data_without_names(
    trained_detector: Path, test_faces: FaceDataset
) -> None:
    seen: list[tuple[float | None, str]] = []
    scores = evaluate_detector(
        trained_detector, test_faces, progress=lambda *step: seen.append(step)
    )
    plain = scores.to_dict()
    assert "person" not in json.dumps(plain, allow_nan=False)
    assert len(scores.to_dict(per_image=True)["per_image"]) == 12
    assert seen[-1] == (1.0, "image 12 of 12")
    assert set(scores.metrics) == {"recall", "precision", "f1", "average_precision"}
    for name, (low, high) in scores.intervals.items():
        assert low <= scores.metrics[name] <= high
    assert scores.intervals == evaluate_detector(trained_detector, test_faces).intervals


@pytest.mark.slow
def test_several_processes_give_the_same(
    trained_detector: Path, test_faces: FaceDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    from site_agent.faces import models as image_workers

    monkeypatch.setattr(image_workers, "_PROCESS_START_S", 0.0)
    one = evaluate_detector(trained_detector, test_faces, resamples=0)
    two = evaluate_detector(trained_detector, test_faces, resamples=0, workers=2)
    assert one.to_dict(per_image=True) == two.to_dict(per_image=True)


def test_each_face_takes_its_best_free_detection() -> None:
    faces = [(0, 0, 99, 99), (10, 10, 109, 109)]
    boxes = [(5, 5, 104, 104), (0, 0, 99, 99), (300, 300, 399, 399), (500, 0, 599, 99)]
    match = match_image(faces, [(500, 0, 599, 99)], boxes, [3.0, 2.0, 1.0, 0.5])
    assert match.hits.tolist() == [True, True, False]
    assert match.scores.tolist() == [3.0, 2.0, 1.0]
    assert (match.missed, match.ignored) == (0, 1)
    alone = match_image(faces, [], boxes[:1], [3.0])
    assert (alone.hits.tolist(), alone.missed) == ([True], 1)


def test_overlap_is_measured_against_the_rectangle_around_both() -> None:
    # Shifted by half a side both ways: union 7/4, but the rectangle around both is 9/4.
    assert overlap_scores([(0, 0, 9, 9)], [(5, 5, 14, 14)])[0, 0] == 25 / 225
    assert overlap_scores([(0, 0, 9, 9)], [(20, 0, 29, 9)])[0, 0] == 0
    assert overlap_scores([], [(0, 0, 1, 1)]).shape == (0, 1)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 10))
def test_average_precision_is_the_mean_of_interpolated_precisions(
    hits: list[bool], missed: int
) -> None:
    precisions = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
    best = [max(precisions[i:]) for i in range(len(precisions))]
    relevant = len(precisions) + missed
    expected = sum(best) / relevant if relevant else 1.0
    assert average_precision(np.array(hits, dtype=bool), missed) == pytest.approx(expected)


def test_nothing_found_and_nothing_to_find() -> None:
    nothing = match_image([], [], [], [])
    assert summarise_detections([nothing, nothing]).metrics == {
        "recall": 1.0,
        "precision": 1.0,
        "f1": 1.0,
        "average_precision": 1.0,
    }
    missed = match_image([(0, 0, 9, 9)], [], [], [])
    assert summarise_detections([missed]).recall == 0
    assert summarise_detections([missed]).f1 == 0
    assert summarise_detections([missed]).intervals == {}


def test_a_data_set_without_faces_is_refused(
    trained_detector: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    with pytest.raises(EvaluationError, match="no face boxes"):
        evaluate_detector(trained_detector, dataclasses.replace(test_faces, images=()))
    gone = dataclasses.replace(test_faces.images[0], path=tmp_path / "gone.png")
    with pytest.raises(ImageFileError, match=r"gone\.png"):
        evaluate_detector(trained_detector, dataclasses.replace(test_faces, images=(gone,)))
