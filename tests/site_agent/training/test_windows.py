"""The arithmetic of windows, against dlib itself."""

from __future__ import annotations

import random

import dlib
import numpy as np
import pytest
from hypothesis import strategies as st

from site_agent.training.windows import Corners, DetectionWindow, picked_window, unreachable_boxes

sides = st.integers(1, 2000)
boxes = st.tuples(st.integers(-500, 500), st.integers(-500, 500), sides, sides).map(
    lambda box: (box[0], box[1], box[0] + box[2] - 1, box[1] + box[3] - 1)
)


def dlib_accepts(found: list[Corners], area_px: int, upsample: int) -> bool:
    options = dlib.simple_object_detector_training_options()
    options.detection_window_size = area_px
    options.upsample_limit = upsample
    options.max_runtime_seconds = 0.001
    options.num_threads = 1
    rectangles = [dlib.rectangle(*box) for box in found]
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
        found = []
        for _ in range(dice.choice([1, 1, 2, 3])):
            left, top = dice.randint(-200, 200), dice.randint(-200, 200)
            width = int(20 * 2 ** dice.uniform(0, 4))
            height = int(width * 2 ** dice.uniform(-1.2, 1.2))
            found.append((left, top, left + width - 1, top + height - 1))
        area_px, most = dice.choice([720, 3000, 6400]), dice.choice([0, 0, 1, 2])
        window = DetectionWindow(*picked_window(found, area_px))
        expected = dlib_accepts(found, area_px, most)
        tries = [not unreachable_boxes(found, window, times) for times in range(most + 1)]
        assert any(tries) == expected, (found, area_px, most)
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
    found = [(0, 0, 29, 29), (0, 0, 159, 59), (0, 0, 59, 159), (0, 0, 99, 99)]
    reasons = [box.reason for box in unreachable_boxes(found, window)]
    assert "too small (30 x 30 px)" in reasons[0]
    assert "wider than the window (160 x 60 px)" in reasons[1]
    assert "narrower than the window (60 x 160 px)" in reasons[2]
    assert len(reasons) == 3
