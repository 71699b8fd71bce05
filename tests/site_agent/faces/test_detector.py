"""Detectors: dlib's stock one, files of both kinds, and files that are none."""

from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import write_model
from aggregators.models import FhogDetector, ShapePredictor
from site_agent.datasets.landmark_schemes import IBUG_PARTS, ibug_mean_face
from site_agent.errors import FaceModelError
from site_agent.faces.models import open_detector, open_landmarks
from site_agent.pictures.images import read_image


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
