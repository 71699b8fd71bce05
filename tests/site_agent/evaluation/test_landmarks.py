"""Scores of landmark models, against dlib's."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import dlib
import numpy as np
import pytest

from aggregators.formats import read_model
from aggregators.predictors import LandmarkPredictor, to_grey
from site_agent.datasets import FaceDataset, part_names
from site_agent.evaluation import evaluate_landmarks, normaliser_for
from site_agent.evaluation.landmark_scores import FaceErrors, summarise_landmarks
from site_agent.pictures.images import read_image


class RoundingPredictor(LandmarkPredictor):
    """Rounds to whole pixels as dlib does."""

    def predict(self, grey: object, boxes: object) -> object:  # type: ignore[override]
        return np.floor(super().predict(grey, boxes) + 0.5)  # type: ignore[arg-type]


def test_errors_equal_those_of_dlib(trained_landmarks: Path, test_faces: FaceDataset) -> None:
    whole = whole_pixels(test_faces)
    names = part_names(whole)
    eyes = normaliser_for(names)
    images, detections, scales = [], [], []
    for image in whole.images:
        images.append(to_grey(read_image(image.path)))
        box = image.boxes[0]
        points = np.array([box.parts[name] for name in names])
        parts = [dlib.point(int(x), int(y)) for x, y in points]
        detections.append([dlib.full_object_detection(dlib.rectangle(*box.corners), parts)])
        scales.append([eyes.scale(points, box.corners)])
    plain = dlib.shape_predictor(str(trained_landmarks))
    expected = dlib.test_shape_predictor(images, detections, scales, plain)
    model = read_model(trained_landmarks)
    rounded = evaluate_landmarks(RoundingPredictor(model), whole)  # type: ignore[arg-type]
    assert rounded.mean_error == pytest.approx(expected, abs=1e-12)
    exact = evaluate_landmarks(trained_landmarks, whole)
    assert exact.mean_error == pytest.approx(expected, rel=0.03)
    assert exact.normaliser == "inter-ocular"


def whole_pixels(dataset: FaceDataset) -> FaceDataset:
    images = [
        dataclasses.replace(
            image,
            boxes=tuple(
                dataclasses.replace(
                    box, parts={name: (round(x), round(y)) for name, (x, y) in box.parts.items()}
                )
                for box in image.boxes
            ),
        )
        for image in dataset.images
    ]
    return dataclasses.replace(dataset, images=tuple(images))


def face(image: int, *errors: float) -> FaceErrors:
    return FaceErrors(f"{image}.png", image, 0, 50.0, np.array(errors))


def test_means_medians_and_failures_are_over_faces() -> None:
    faces = [face(0, 0.02, 0.04), face(0, 0.09, 0.09), face(4, 0.2, 0.4), face(7, 0.01, np.nan)]
    scores = summarise_landmarks(faces, ("a", "b"), normaliser_for(("a", "b")), resamples=50)
    assert scores.mean_error == pytest.approx((0.02 + 0.04 + 0.18 + 0.6 + 0.01) / 7)
    assert scores.median_error == pytest.approx((0.03 + 0.09) / 2)
    assert (scores.failure_rate, scores.failure_rate_at_10) == (0.5, 0.25)
    assert scores.auc == pytest.approx((5 / 8 + 7 / 8) / 4)
    assert scores.mean_error_px == pytest.approx(scores.mean_error * 50)
    assert scores.per_landmark.tolist() == pytest.approx([0.08, 0.53 / 3])
    assert scores.images == 3
    assert scores.eye_error is None
    assert json.dumps(scores.to_dict(), allow_nan=False)
