"""Faces and landmarks of still images."""

from __future__ import annotations

from pathlib import Path

import dlib
import numpy as np

from site_agent.datasets import FaceDataset, part_names, parts_array
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.faces.prediction import (
    predict_images,
    predictions_to_dataset,
    write_predictions_xml,
)
from site_agent.pictures.images import read_image


def paths_of(dataset: FaceDataset) -> list[Path]:
    return [image.path for image in dataset.images]


def test_a_detector_and_a_landmark_model_agree_with_dlib(
    trained_detector: Path, trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    paths = paths_of(test_faces)
    found = list(predict_images(paths, detector=trained_detector, landmarks=trained_landmarks))
    assert [prediction.path for prediction in found] == paths
    plain_detector = dlib.fhog_object_detector(str(trained_detector))
    plain_landmarks = dlib.shape_predictor(str(trained_landmarks))
    faces = 0
    for prediction in found:
        image = read_image(prediction.path)
        assert (prediction.width_px, prediction.height_px) == (200, 200)
        _, scores, _ = plain_detector.run(image, 0, 0.0)
        assert sorted(face.score or 0.0 for face in prediction.faces) == sorted(scores)
        for face in prediction.faces:
            faces += 1
            assert face.landmarks is not None
            expected = plain_landmarks(image, dlib.rectangle(*(int(edge) for edge in face.box)))
            points = np.array([(point.x, point.y) for point in expected.parts()])
            assert np.abs(face.landmarks - points).max() <= 0.51
    assert faces >= 6


def test_predictions_can_be_read_back_as_a_data_set(
    trained_landmarks: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    found = list(predict_images(test_faces, landmarks=trained_landmarks))
    write_predictions_xml(found, tmp_path / "found.xml")
    again = read_imglab_xml(tmp_path / "found.xml")
    assert [image.path.resolve() for image in again.images] == [
        image.path.resolve() for image in test_faces.images
    ]
    names = part_names(again)
    assert names == part_names(test_faces)
    for image, prediction in zip(again.images, found, strict=True):
        assert image.boxes[0].corners == prediction.faces[0].box
        points = prediction.faces[0].landmarks
        assert points is not None
        assert np.abs(parts_array(image.boxes[0], names) - points).max() <= 0.5
    assert predictions_to_dataset(found).images[0].boxes[0].detection_score == 0
