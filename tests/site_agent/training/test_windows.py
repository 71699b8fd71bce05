"""The arithmetic of windows against dlib, and boxes that no window reaches."""

import dataclasses
import random
from pathlib import Path

import dlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from site_agent.datasets.check import Finding
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.records import AnnotatedImage, FaceBox, FaceDataset
from site_agent.training.detector_plan import HogSvmSettings, plan_detector
from site_agent.training.ert import unlearnable_boxes
from site_agent.training.windows import (
    Corners,
    DetectionWindow,
    area_for_window,
    picked_window,
    unreachable_boxes,
    upsampled,
    with_window_shape,
)

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
