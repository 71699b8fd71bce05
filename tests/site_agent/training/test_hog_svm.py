"""Detectors: the same bytes as dlib's, windows, several labels."""

import dataclasses
import json
import random
from pathlib import Path

import dlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregators.formats import read_model
from aggregators.models import FhogDetector
from site_agent.datasets.check import Finding
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset, dataset_digest
from site_agent.errors import InvalidInputError, TrainingDataError, TrainingFailedError
from site_agent.evaluation.detection import evaluate_detector
from site_agent.training.detector_plan import HogSvmSettings, plan_detector
from site_agent.training.ert import unlearnable_boxes
from site_agent.training.hog_svm import plan_views, train_hog_svm
from site_agent.training.windows import (
    Corners,
    DetectionWindow,
    area_for_window,
    picked_window,
    unreachable_boxes,
    upsampled,
    with_window_shape,
)
from site_agent.training_record import read_training_metadata

QUICK = HogSvmSettings(epsilon=2.0, threads=1)


def with_boxes(dataset: FaceDataset, change: dict[int, FaceBox]) -> FaceDataset:
    """Replace the first box of some images."""
    images = [
        dataclasses.replace(image, boxes=(change[i], *image.boxes[1:])) if i in change else image
        for i, image in enumerate(dataset.images)
    ]
    return dataclasses.replace(dataset, images=tuple(images))


def test_photographs_give_the_same_bytes_as_plain_dlib(shared_data: Path, tmp_path: Path) -> None:
    xml = shared_data / "dlib_faces" / "training.xml"
    result = train_hog_svm(
        read_imglab_xml(xml), tmp_path / "ours.svm", HogSvmSettings(upsample=1, epsilon=1.0)
    )
    options = dlib.simple_object_detector_training_options()
    options.C, options.epsilon, options.upsample_limit = 5.0, 1.0, 1
    dlib.train_simple_object_detector(str(xml), str(tmp_path / "plain.svm"), options)
    assert result.model_path.read_bytes() == (tmp_path / "plain.svm").read_bytes()
    assert result.record.details["upsampling"] == 1
    assert result.record.training_scores["recall"] > 0.9


def test_faces_too_small_for_the_window_are_named_with_a_way_out(shared_data: Path) -> None:
    dataset = read_imglab_xml(shared_data / "dlib_faces" / "training.xml")
    with pytest.raises(TrainingDataError) as caught:
        plan_detector(dataset, HogSvmSettings())
    assert caught.value.problems[0] == (
        8,
        "box 1 of 2007_007763.jpg is too small (37 x 37 px): "
        "the 80 x 80 px window covers it to 0.26, more than 0.5 is needed",
    )
    assert "12 of 18 boxes" in str(caught.value)
    assert "upsample=1" in caught.value.hint


def test_unreachable_boxes_can_be_ignored(training_faces: FaceDataset) -> None:
    hidden = dataclasses.replace(training_faces.images[1].boxes[0], ignore=True)
    dataset = with_boxes(training_faces, {1: hidden, 2: FaceBox(5, 5, 12, 12)})
    with pytest.raises(TrainingDataError, match="too small"):
        plan_detector(dataset, QUICK)
    plan = plan_detector(dataset, dataclasses.replace(QUICK, ignore_unreachable=True))
    assert plan.box_count == 22
    assert [len(boxes) for boxes in plan.ignored[:4]] == [0, 1, 1, 0]
    assert len(plan.left_out) == 1


def test_the_window_is_what_was_asked_for_whatever_the_shape_of_the_boxes(
    training_faces: FaceDataset, tmp_path: Path
) -> None:
    size = (72, 96)
    tall = {
        i: dataclasses.replace(image.boxes[0], height=image.boxes[0].height * 5 // 4, parts={})
        for i, image in enumerate(training_faces.images)
    }
    dataset = with_boxes(training_faces, tall)
    settings = dataclasses.replace(QUICK, target_size_px=size)
    result = train_hog_svm(dataset, tmp_path / "a.svm", settings, training_scores=False)
    model = read_model(result.model_path)
    assert isinstance(model, FhogDetector)
    assert (model.window_width_px, model.window_height_px) == size
    assert result.record.details["boxes_reshaped"]


def test_the_metadata_say_what_was_done(training_faces: FaceDataset, tmp_path: Path) -> None:
    steps: list[tuple[float | None, str]] = []
    result = train_hog_svm(
        training_faces,
        tmp_path / "a.svm",
        QUICK,
        lambda fraction, text: steps.append((fraction, text)),
    )
    written = json.loads(result.metadata_path.read_text())
    assert written == json.loads(json.dumps(result.record.to_dict()))
    assert read_training_metadata(result.model_path) == written
    assert result.metadata_path.name == "a.svm.training.json"
    assert written["data"]["digest"] == dataset_digest(training_faces)
    assert written["suggested_labels"] == {"images": "24", "boxes": "24"}
    assert written["settings"]["c"] == 5.0
    assert written["versions"]["dlib"] == dlib.__version__
    assert str(tmp_path) not in result.metadata_path.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.svm", "a.svm.training.json"]
    fractions = [fraction for fraction, _ in steps if fraction is not None]
    assert fractions == sorted(fractions)
    texts = [text for _, text in steps if text != "checking the data"]
    assert "GB of memory" in texts[0]
    assert texts[1] == "reading image 1 of 24"
    more = dataclasses.replace(QUICK, threads=2)
    again = train_hog_svm(training_faces, tmp_path / "b.svm", more, training_scores=False)
    assert again.record.model_digest == result.record.model_digest, "whatever the threads"
    result.model_path.write_bytes(b"another model")
    assert read_training_metadata(result.model_path) is None


class StoppedError(Exception):
    pass


def test_a_stopped_training_leaves_nothing(training_faces: FaceDataset, tmp_path: Path) -> None:
    def stop(_fraction: float | None, text: str) -> None:
        if text.startswith("iteration 2"):
            raise StoppedError

    (tmp_path / "a.svm").write_bytes(b"the old one")
    with pytest.raises(StoppedError):
        train_hog_svm(training_faces, tmp_path / "a.svm", QUICK, stop)
    assert [path.name for path in tmp_path.iterdir()] == ["a.svm"]
    assert (tmp_path / "a.svm").read_bytes() == b"the old one"


def test_data_without_faces_are_refused(training_faces: FaceDataset) -> None:
    empty = dataclasses.replace(
        training_faces,
        images=tuple(dataclasses.replace(image, boxes=()) for image in training_faces.images),
    )
    with pytest.raises(TrainingDataError, match="no face boxes"):
        plan_detector(empty, QUICK)


def test_the_output_folder_is_checked_first(training_faces: FaceDataset, tmp_path: Path) -> None:
    with pytest.raises(TrainingFailedError, match="does not exist"):
        train_hog_svm(training_faces, tmp_path / "no" / "a.svm")
    with pytest.raises(TrainingFailedError, match="is a folder"):
        train_hog_svm(training_faces, tmp_path)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("c", 0.0),
        ("c", float("nan")),
        ("epsilon", -1),
        ("target_size_px", (80,)),
        ("target_size_px", (80, 2)),
        ("upsample", -1),
        ("upsample", 1.5),
        ("threads", True),
        ("max_runtime_s", 0.0),
    ],
)
def test_settings_out_of_range_are_refused(setting: str, value: object) -> None:
    with pytest.raises(InvalidInputError, match=setting):
        HogSvmSettings(**{setting: value})  # type: ignore[arg-type]


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


sides = st.integers(1, 2000)

boxes = st.tuples(st.integers(-500, 500), st.integers(-500, 500), sides, sides).map(
    lambda box: (box[0], box[1], box[0] + box[2] - 1, box[1] + box[3] - 1)
)


def dlib_accepts(boxes: list[Corners], area_px: int, upsample: int) -> bool:
    options = dlib.simple_object_detector_training_options()
    options.detection_window_size = area_px
    options.upsample_limit = upsample
    options.max_runtime_seconds = 0.001
    options.num_threads = 1
    rectangles = [dlib.rectangle(*box) for box in boxes]
    image = np.zeros((100, 100), dtype=np.uint8)
    try:
        dlib.train_simple_object_detector([image], [rectangles], options)
    except RuntimeError as error:
        if "impossible set of object boxes" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("seed", range(3))
def test_the_same_boxes_are_refused_as_by_dlib(seed: int) -> None:
    dice = random.Random(seed)
    accepted = 0
    for _ in range(150):
        accepted_px = []
        for _ in range(dice.choice([1, 1, 2, 3])):
            left, top = dice.randint(-200, 200), dice.randint(-200, 200)
            width = int(20 * 2 ** dice.uniform(0, 4))
            height = int(width * 2 ** dice.uniform(-1.2, 1.2))
            accepted_px.append((left, top, left + width - 1, top + height - 1))
        area_px, most = dice.choice([720, 3000, 6400]), dice.choice([0, 0, 1, 2])
        window = DetectionWindow(*picked_window(accepted_px, area_px))
        expected = dlib_accepts(accepted_px, area_px, most)
        tries = [not unreachable_boxes(accepted_px, window, times) for times in range(most + 1)]
        assert any(tries) == expected, (accepted_px, area_px, most)
        accepted += expected
    assert 0 < accepted < 150


def test_two_boxes_on_one_window_are_refused_as_by_dlib() -> None:
    twice = [(20, 20, 99, 99), (20, 20, 99, 99)]
    refused = unreachable_boxes(twice, DetectionWindow(80, 80))
    assert [box.index for box in refused] == [0]
    assert "same window position as box 2" in refused[0].reason
    assert not dlib_accepts(twice, 6400, 0)


def test_reasons_say_what_is_wrong() -> None:
    window = DetectionWindow(80, 80)
    boxes = [(0, 0, 29, 29), (0, 0, 159, 59), (0, 0, 59, 159), (0, 0, 99, 99)]
    reasons = [box.reason for box in unreachable_boxes(boxes, window)]
    assert "too small (30 x 30 px)" in reasons[0]
    assert "wider than the window (160 x 60 px)" in reasons[1]
    assert "narrower than the window (60 x 160 px)" in reasons[2]
    assert len(reasons) == 3


@settings(deadline=None)
@given(st.lists(boxes, min_size=1, max_size=5), st.integers(20, 200), st.integers(20, 200))
def test_boxes_in_the_windows_shape_give_that_window(
    corners: list[Corners], width: int, height: int
) -> None:
    large = [(left, top, left + 400 + right % 9, top + 300) for left, top, right, _ in corners]
    shaped = [with_window_shape(box, (width, height)) for box in large]
    area_px = area_for_window(shaped, (width, height))
    if area_px is not None:
        assert picked_window(shaped, area_px) == (width, height)
    assert area_px is not None or min(width, height) / max(width, height) < 0.3


@given(boxes)
def test_a_box_keeps_its_centre_in_the_windows_shape(box: Corners) -> None:
    shaped = with_window_shape(box, (80, 80))
    assert shaped[2] - shaped[0] == shaped[3] - shaped[1]
    assert abs((shaped[0] + shaped[2]) - (box[0] + box[2])) <= 1
    assert abs((shaped[1] + shaped[3]) - (box[1] + box[3])) <= 1


def test_doubled_boxes_lie_where_dlib_puts_them() -> None:
    doubling = dlib.pyramid_down(2)
    for box in [(0, 0, 36, 36), (101, 57, 180, 140)]:
        up = doubling.rect_up(dlib.rectangle(*box))
        assert upsampled(box, 1) == (up.left(), up.top(), up.right(), up.bottom())


@pytest.mark.parametrize("size", [(80, 80), (60, 90)])
def test_the_same_boxes_as_training_leaves_out(size: tuple[int, int], shared_data: Path) -> None:
    for name in ("training", "testing"):
        dataset = read_imglab_xml(shared_data / "dlib_faces" / f"{name}.xml")
        settings = HogSvmSettings(target_size_px=size, ignore_unreachable=True)
        findings = unlearnable_boxes(dataset, settings)
        left_out = plan_detector(dataset, settings).left_out
        assert [finding.line for finding in findings] == [line for line, _ in left_out]
        assert all("upsample=" in finding.text for finding in findings)
        assert unlearnable_boxes(dataset, dataclasses.replace(settings, upsample=2)) == []


def test_doublings_are_advised_only_where_they_help(tmp_path: Path) -> None:
    def found(boxes: list[FaceBox], upsample: int = 0) -> list[Finding]:
        images = [AnnotatedImage(tmp_path / "a.png"), AnnotatedImage(tmp_path / "b.png", (*boxes,))]
        return unlearnable_boxes(
            FaceDataset(None, images=tuple(images)), HogSvmSettings(upsample=upsample)
        )

    [small] = found([FaceBox(10, 10, 44, 44)])
    assert small.file == tmp_path / "b.png"
    assert small.text.endswith("; with upsample=1 it is reached")
    [twice] = found([FaceBox(10, 10, 100, 100)] * 2)
    assert "falls on the same window position" in twice.text
    [tiny] = found([FaceBox(10, 10, 3, 3)], 4)
    assert not any("upsample" in finding.text for finding in (twice, tiny))


def test_data_without_any_box_to_learn(training_faces: FaceDataset) -> None:
    findings = unlearnable_boxes(training_faces, HogSvmSettings(target_size_px=(300, 300)))
    assert len(findings) == 24
    assert {finding.severity for finding in findings} == {"warning"}
    assert unlearnable_boxes(FaceDataset(None)) == []
