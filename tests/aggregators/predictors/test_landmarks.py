"""The landmark predictor agrees with dlib, for any image and any box."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import dlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregators import LandmarkPredictor, read_model
from aggregators.errors import InconsistentModelError
from aggregators.models import Float64, ForestEnsemble, ShapePredictor, UInt8
from tests.aggregators.drawn_faces import draw_faces
from tests.aggregators.small_models import make_ensemble, make_predictor

GREY = draw_faces(3, 1)[0].image
BOX = [20, 30, 120, 140]


def load(path: Path) -> ShapePredictor:
    model = read_model(path)
    assert isinstance(model, ShapePredictor)
    return model


def dlib_landmarks(
    predictor: dlib.shape_predictor, image: UInt8, box: tuple[int, int, int, int]
) -> Float64:
    found = predictor(image, dlib.rectangle(*box))
    return np.array([(point.x, point.y) for point in found.parts()], dtype=np.float64)


class TestAgainstDlib:
    def test_the_same_points_but_not_rounded(self, landmark_files: list[Path]) -> None:
        same = total = 0
        for path in landmark_files:
            theirs, ours = dlib.shape_predictor(str(path)), LandmarkPredictor(load(path))
            for face in draw_faces(4000, 50):
                expected = dlib_landmarks(theirs, face.image, face.box)
                found = ours.predict(face.image, [face.box])[0]
                assert np.abs(found - expected).max() < 0.75
                same += int((np.floor(found + 0.5) == expected).sum())
                total += expected.size
        assert same > 0.999 * total

    @settings(max_examples=60, deadline=None)
    @given(
        left=st.integers(-200, 200),
        top=st.integers(-200, 200),
        width=st.integers(1, 400),
        height=st.integers(1, 400),
    )
    def test_boxes_of_any_size_and_place(
        self, landmark_files: list[Path], left: int, top: int, width: int, height: int
    ) -> None:
        box = (left, top, left + width, top + height)
        path = landmark_files[0]
        expected = dlib_landmarks(dlib.shape_predictor(str(path)), GREY, box)
        found = LandmarkPredictor(load(path)).predict(GREY, [box])[0]
        # One pixel read at the very edge of rounding may send a tree another way.
        assert (np.floor(found + 0.5) == expected).mean() > 0.9

    def test_colour_images_are_read_as_dlib_reads_them(self, landmark_files: list[Path]) -> None:
        random = np.random.default_rng(1)
        theirs = dlib.shape_predictor(str(landmark_files[0]))
        ours = LandmarkPredictor(load(landmark_files[0]))
        for face in draw_faces(11, 10):
            colour = np.stack([face.image, np.roll(face.image, 3), face.image // 2], axis=2)
            colour += random.integers(0, 40, colour.shape, dtype=np.uint8)
            expected = dlib_landmarks(theirs, colour, face.box)
            found = ours.predict(colour, [face.box])[0]
            assert np.floor(found + 0.5).tolist() == expected.tolist()


class TestManyFaces:
    def test_threads_do_not_disturb_one_another(self, landmark_files: list[Path]) -> None:
        predictor = LandmarkPredictor(load(landmark_files[0]))
        faces = draw_faces(21, 40)
        alone = [predictor.predict(face.image, [face.box]) for face in faces]
        with ThreadPoolExecutor(4) as pool:
            together = pool.map(lambda face: predictor.predict(face.image, [face.box]), faces)
        assert all(np.array_equal(one, other) for one, other in zip(alone, together, strict=True))


class TestEnsembles:
    def test_the_weighted_mean_of_unrounded_results(self) -> None:
        ensemble = make_ensemble(1)
        one, two = (LandmarkPredictor(m).predict(GREY, [BOX]) for m in ensemble.members)
        mean = LandmarkPredictor(ensemble).predict(GREY, [BOX])
        np.testing.assert_allclose(mean, 0.25 * one + 0.75 * two, rtol=1e-12)


class TestRefusals:
    def test_models_that_would_read_beyond_their_arrays(self) -> None:
        model = make_predictor(1)
        broken = replace(model, split_idx1=model.split_idx1 + np.uint32(1000))
        with pytest.raises(InconsistentModelError, match="split_idx1"):
            LandmarkPredictor(broken)
        with pytest.raises(InconsistentModelError, match="member 2: split_idx1"):
            LandmarkPredictor(ForestEnsemble((model, broken), np.ones(2)))
