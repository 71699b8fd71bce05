"""Scores of detectors, against dlib's."""

from __future__ import annotations

from pathlib import Path

import dlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from site_agent.datasets import FaceDataset
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.evaluation import DetectionScores, evaluate_detector
from site_agent.evaluation.detection import average_precision, match_image


def equals_dlib(scores: DetectionScores, plain: dlib.simple_test_results) -> None:
    assert scores.recall == pytest.approx(plain.recall, abs=1e-12)
    assert scores.precision == pytest.approx(plain.precision, abs=1e-12)
    assert scores.average_precision == pytest.approx(plain.average_precision, abs=1e-12)


def test_scores_on_drawn_faces_equal_those_of_dlib(
    trained_detector: Path, training_faces: FaceDataset, test_faces: FaceDataset
) -> None:
    for dataset in (training_faces, test_faces):
        scores = evaluate_detector(trained_detector, dataset)
        equals_dlib(
            scores, dlib.test_simple_object_detector(str(dataset.path), str(trained_detector))
        )
        assert scores.faces == scores.true_positives + scores.false_negatives


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


def test_each_face_takes_its_best_free_detection() -> None:
    faces = [(0, 0, 99, 99), (10, 10, 109, 109)]
    found = [(5, 5, 104, 104), (0, 0, 99, 99), (300, 300, 399, 399), (500, 0, 599, 99)]
    match = match_image(faces, [(500, 0, 599, 99)], found, [3.0, 2.0, 1.0, 0.5])
    assert match.hits.tolist() == [True, True, False]
    assert match.scores.tolist() == [3.0, 2.0, 1.0]
    assert (match.missed, match.ignored) == (0, 1)
    alone = match_image(faces, [], found[:1], [3.0])
    assert (alone.hits.tolist(), alone.missed) == ([True], 1)


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 10))
def test_average_precision_is_the_mean_of_interpolated_precisions(
    hits: list[bool], missed: int
) -> None:
    precisions = [sum(hits[: i + 1]) / (i + 1) for i, hit in enumerate(hits) if hit]
    best = [max(precisions[i:]) for i in range(len(precisions))]
    relevant = len(precisions) + missed
    expected = sum(best) / relevant if relevant else 1.0
    assert average_precision(np.array(hits, dtype=bool), missed) == pytest.approx(expected)
