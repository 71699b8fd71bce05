"""Detectors and landmark models of files, and faces of still images."""

import shutil
from pathlib import Path

import dlib
import numpy as np
import pytest
from PIL import Image

from aggregators.formats import write_model
from aggregators.models import FhogDetector, ShapePredictor
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.landmark_schemes import IBUG_PARTS, ibug_mean_face
from site_agent.datasets.records import FaceDataset, part_names, parts_array
from site_agent.errors import FaceModelError, ImageFileError, InvalidInputError
from site_agent.faces.models import open_detector, open_landmarks
from site_agent.faces.prediction import find_images, predict_images, predictions_to_dataset
from site_agent.pictures.images import read_image
from tests.site_agent.pictures.turned import save_turned


def small_detector(upsampling: int | None) -> FhogDetector:
    """Return two filters over a 32 by 32 window, with weights that never fire."""
    return FhogDetector(
        window_width_px=32,
        window_height_px=32,
        cell_size_px=8,
        padding_cells=1,
        max_pyramid_levels=1000,
        min_layer_width_px=32,
        min_layer_height_px=32,
        nuclear_norm_strength=0.0,
        overlap_iou=0.5,
        overlap_covered=0.5,
        weights=np.zeros((2, 31 * 6 * 6)),
        thresholds=np.array([1.0, 1.0]),
        upsampling=upsampling,
    )


def small_predictor(parts: int = 68) -> ShapePredictor:
    """Return a predictor of one level with one tree that changes nothing; of 68 parts, a face."""
    shape = np.random.default_rng(0).random((parts, 2), dtype=np.float32)
    if parts == IBUG_PARTS:
        shape = (0.5 + ibug_mean_face() / 250.0).astype(np.float32)
    return ShapePredictor(
        initial_shape=shape,
        trees_per_level=np.array([1]),
        pool_per_level=np.array([2]),
        tree_depths=np.array([1], dtype=np.uint8),
        split_idx1=np.array([0], dtype=np.uint32),
        split_idx2=np.array([1], dtype=np.uint32),
        split_thresholds=np.zeros(1, dtype=np.float32),
        leaves=np.zeros((2, parts, 2), dtype=np.float32),
        anchors=np.zeros(2, dtype=np.uint32),
        deltas=np.zeros((2, 2), dtype=np.float32),
    )


def test_stock_detector_on_photographs(shared_data: Path) -> None:
    detector = open_detector()
    assert detector.detector_count == 5
    assert detector.smallest_face_px == 80
    image = read_image(shared_data / "dlib_faces" / "bald_guys.jpg")
    detections = detector.detect(image)
    assert len(detections) > 2
    assert [detection.score for detection in detections] == sorted(
        (detection.score for detection in detections), reverse=True
    )
    assert all(0 <= detection.detector_index < 5 for detection in detections)
    assert len(detector.detect(image, threshold=1.0)) < len(detections)
    assert len(detector.detect(image, upsample=1)) >= len(detections)


@pytest.mark.parametrize("upsampling", [None, 2])
def test_both_kinds_of_file(tmp_path: Path, upsampling: int | None) -> None:
    path = tmp_path / "own.svm"
    write_model(small_detector(upsampling), path)
    detector = open_detector(path)
    assert detector.detector_count == 2
    assert detector.smallest_face_px == 32
    assert detector.default_upsample == (upsampling or 0)
    assert detector.detect(np.zeros((64, 64, 3), dtype=np.uint8)) == []


def test_a_landmark_model_is_no_detector_and_the_other_way_round(tmp_path: Path) -> None:
    detector, predictor = tmp_path / "faces.svm", tmp_path / "points.dat"
    write_model(small_detector(None), detector)
    write_model(small_predictor(), predictor)
    with pytest.raises(FaceModelError, match=r"points\.dat: found .*expected a face detector"):
        open_detector(predictor)
    with pytest.raises(FaceModelError, match=r"faces\.svm: found .*expected a landmark model"):
        open_landmarks(detector)


def test_damaged_and_foreign_files(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.svm", tmp_path / "cut.svm"
    write_model(small_detector(None), whole)
    cut.write_bytes(whole.read_bytes()[:-100])
    foreign = tmp_path / "foreign.svm"
    foreign.write_text("no model at all")
    for path in (cut, foreign, tmp_path / "missing.svm"):
        with pytest.raises(FaceModelError, match=path.name):
            open_detector(path)
        with pytest.raises(FaceModelError, match=path.name):
            open_landmarks(path)


def test_landmarks_are_placed_without_rounding(tmp_path: Path) -> None:
    path = tmp_path / "points.dat"
    model = small_predictor()
    write_model(model, path)
    predictor = open_landmarks(path)
    assert predictor.part_count == 68
    placed = predictor.predict(np.zeros((100, 100), np.uint8), np.array([[10.0, 10, 59, 59]]))
    np.testing.assert_allclose(placed[0], 10.0 + 49.0 * model.initial_shape, rtol=1e-5)


def paths_of(dataset: FaceDataset) -> list[Path]:
    return [image.path for image in dataset.images]


def test_a_detector_and_a_landmark_model_agree_with_dlib(
    trained_detector: Path, trained_landmarks: Path, test_faces: FaceDataset
) -> None:
    paths = paths_of(test_faces)
    predictions = list(
        predict_images(paths, detector=trained_detector, landmarks=trained_landmarks)
    )
    assert [prediction.path for prediction in predictions] == paths
    plain_detector = dlib.fhog_object_detector(str(trained_detector))
    plain_landmarks = dlib.shape_predictor(str(trained_landmarks))
    faces = 0
    for prediction in predictions:
        image = read_image(prediction.path)
        assert (prediction.width_px, prediction.height_px) == (200, 200)
        _, scores, _ = plain_detector.run(image, 0, 0.0)
        assert sorted(face.score for face in prediction.faces) == sorted(scores)
        for face in prediction.faces:
            faces += 1
            assert face.landmarks is not None
            expected = plain_landmarks(image, dlib.rectangle(*(int(edge) for edge in face.box)))
            points = np.array([(point.x, point.y) for point in expected.parts()])
            assert np.abs(face.landmarks - points).max() <= 0.51
    assert faces >= 6


def test_predictions_can_be_read_back_as_a_data_set(
    trained_detector: Path, trained_landmarks: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    models = {"detector": trained_detector, "landmarks": trained_landmarks}
    predictions = list(predict_images(paths_of(test_faces), **models))
    write_imglab_xml(predictions_to_dataset(predictions), tmp_path / "found.xml")
    again = read_imglab_xml(tmp_path / "found.xml")
    assert [image.path.resolve() for image in again.images] == [
        image.path.resolve() for image in test_faces.images
    ]
    names = part_names(again)
    assert names == part_names(test_faces)
    for image, prediction in zip(again.images, predictions, strict=True):
        for box, face in zip(image.boxes, prediction.faces, strict=True):
            assert box.corners == face.box
            assert face.landmarks is not None
            assert np.abs(parts_array(box, names) - face.landmarks).max() <= 0.5


def test_what_cannot_be_done_is_said_at_once(
    trained_detector: Path, trained_landmarks: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    paths = paths_of(test_faces)
    with pytest.raises(InvalidInputError, match="no images"):
        predict_images([], detector=trained_detector)
    with pytest.raises(FaceModelError):
        predict_images(paths, detector=trained_landmarks)
    with pytest.raises(FaceModelError):
        predict_images(paths, detector=trained_detector, landmarks=trained_detector)
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    with pytest.raises(ImageFileError, match=r"broken\.png"):
        list(predict_images([broken], detector=trained_detector))


def test_images_are_found_in_files_and_folders(test_faces: FaceDataset, tmp_path: Path) -> None:
    first, second = paths_of(test_faces)[:2]
    shutil.copy(first, tmp_path / "b.png")
    shutil.copy(second, tmp_path / "a.png")
    (tmp_path / "notes.txt").write_text("no image")
    assert find_images([first, tmp_path, first]) == [first, tmp_path / "a.png", tmp_path / "b.png"]
    with pytest.raises(InvalidInputError, match="no images were given"):
        find_images([])
    with pytest.raises(ImageFileError, match="no such file"):
        find_images([tmp_path / "gone"])


def test_a_broken_photograph_costs_only_itself(
    trained_detector: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    whole = paths_of(test_faces)
    paths = [whole[0], broken, whole[1]]
    alone = list(predict_images([paths[0], paths[2]], detector=trained_detector))
    predictions = list(predict_images(paths, detector=trained_detector, skip_unreadable=True))
    assert [bool(prediction.problem) for prediction in predictions] == [False, True, False]
    assert "broken.png" in predictions[1].problem
    assert [prediction.to_dict() for prediction in (predictions[0], predictions[2])] == [
        e.to_dict() for e in alone
    ]
    assert len(predictions_to_dataset(predictions).images) == 2


@pytest.mark.parametrize("orientation", [1, 2, 6, 8])
def test_annotations_are_of_the_picture_as_it_is_stored(
    orientation: int, trained_detector: Path, test_faces: FaceDataset, tmp_path: Path
) -> None:
    """Annotation tools ignore EXIF, so written annotations must hold without it."""
    with Image.open(test_faces.images[0].path) as upright:
        narrow = upright.convert("RGB").crop((0, 0, 190, 200))
    stored = save_turned(narrow, tmp_path / "stored.jpg", orientation)

    [prediction] = predict_images([stored], detector=trained_detector)
    assert (prediction.width_px, prediction.height_px) == (190, 200)
    [image] = predictions_to_dataset([prediction]).images
    as_stored, turned = read_image(stored, apply_orientation=False), read_image(stored)
    assert (image.height_px, image.width_px) == as_stored.shape[:2]
    for box, face in zip(image.boxes, prediction.faces, strict=True):
        left, top, right, bottom = (round(edge) for edge in box.corners)
        seen = as_stored[top : bottom + 1, left : right + 1]
        left, top, right, bottom = (round(edge) for edge in face.box)
        cut = turned[top : bottom + 1, left : right + 1]
        assert np.sort(seen, axis=None).tolist() == np.sort(cut, axis=None).tolist()
    assert prediction.faces, "a face was found"
