"""MWMA: the arithmetic, the parts of the first input, and dlib as an independent reader."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import dlib
import numpy as np
import pytest

from aggregators import encode_model, merge, read_model, write_model
from aggregators.errors import IncompatibleModelsError
from aggregators.models import FhogDetector, UInt8
from tests.aggregators.drawn_faces import draw_faces
from tests.aggregators.small_models import make_detector


def merged_detector(*models: FhogDetector, **arguments: Any) -> FhogDetector:
    merged = merge("mwma", models, **arguments).model
    assert isinstance(merged, FhogDetector)
    return merged


def test_the_mean_is_weighted_and_includes_the_threshold() -> None:
    first, second = make_detector(1), make_detector(2)
    merged = merged_detector(first, second, weights=[1, 3])
    np.testing.assert_allclose(merged.weights, (first.weights + 3 * second.weights) / 4, rtol=1e-15)
    np.testing.assert_allclose(merged.thresholds, (first.thresholds + 3 * second.thresholds) / 4)


def test_equal_weights_give_the_bits_of_adding_up_and_dividing_once() -> None:
    detectors = [make_detector(seed) for seed in range(6)]
    in_order = sorted(detectors, key=digest_input)
    total = in_order[0].weights.copy()
    for detector in in_order[1:]:
        total += detector.weights
    total /= 6
    assert merged_detector(*detectors).weights.tobytes() == total.tobytes()


def digest_input(detector: FhogDetector) -> str:
    return merge("mwma", [detector]).recipe.inputs[0].digest


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"overlap_iou": 0.3}, "overlap tester"),
        ({"upsampling": 1}, "upsampling"),
        ({"min_layer_width_px": 32}, "smallest pyramid layer"),
    ],
)
def test_settings_come_from_the_first_given_with_a_warning(
    change: dict[str, Any], setting: str
) -> None:
    plain, other = make_detector(1), replace(make_detector(2), **change)
    for first, second in ((plain, other), (other, plain)):
        result = merge("mwma", [first, second])
        assert len(result.warnings) == 1
        assert result.warnings[0].startswith(f"{setting} differs: ")
        assert isinstance(result.model, FhogDetector)
        for name in change:
            assert getattr(result.model, name) == getattr(first, name)


def test_another_kind_of_model_is_refused(landmark_files: list[Path], tmp_path: Path) -> None:
    detector = make_detector(1)
    path = tmp_path / "detector.svm"
    path.write_bytes(encode_model(detector))
    with pytest.raises(IncompatibleModelsError, match="merges HOG-SVM detectors") as caught:
        merge("mwma", [path, landmark_files[0]])
    assert str(caught.value).startswith("site-0.dat is a landmark model, and")
    assert caught.value.hint == "a landmark model is merged by wba-cascade or wba-final"


def test_dlib_loads_the_result_and_finds_faces(detector_files: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "merged.svm"
    merge("mwma", detector_files, output=output)
    simple = dlib.simple_object_detector(str(output))
    plain = dlib.fhog_object_detector(str(output))
    assert simple.detection_window_width == plain.detection_window_width
    for face in draw_faces(77, 10):
        left, _, _, bottom = face.box
        for faces in (simple(face.image), plain(face.image, upsample_num_times=0)):
            assert len(faces) == 1
            assert abs(faces[0].left() - left) < 25
            assert abs(faces[0].bottom() - bottom) < 25


def test_dlib_scores_windows_with_the_mean_of_the_sub_models_scores(
    detector_files: list[Path], tmp_path: Path
) -> None:
    """Scores are linear in the weights, so dlib itself shows that the mean is right."""
    image = draw_faces(5, 1)[0].image
    paths = [tmp_path / name for name in ("first.svm", "second.svm", "merged.svm")]
    for source, path in zip(detector_files[:2], paths[:2], strict=True):
        model = read_model(source)
        assert isinstance(model, FhogDetector)
        # No window suppresses another.
        write_model(replace(model, overlap_iou=1.0, overlap_covered=1.0), path)
    merge("mwma", paths[:2], output=paths[2])
    first, second, merged = (_scores(path, image) for path in paths)
    assert len(merged) > 100
    for window, score in merged.items():
        assert score == pytest.approx((first[window] + second[window]) / 2, abs=1e-4)


def _scores(path: Path, image: UInt8) -> dict[tuple[int, int, int, int], float]:
    detector = dlib.fhog_object_detector(str(path))
    boxes, scores, _ = dlib.fhog_object_detector.run(detector, image, 0, -1000.0)
    corners = ((box.left(), box.top(), box.right(), box.bottom()) for box in boxes)
    return dict(zip(corners, scores, strict=True))
