"""The landmark predictor agrees with dlib, for any image and any box."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import dlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregators import LandmarkPredictor, read_model, to_grey
from aggregators.errors import FaceBoxError, ImageArrayError, InconsistentModelError
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
    face = predictor(image, dlib.rectangle(*box))
    return np.array([(point.x, point.y) for point in face.parts()], dtype=np.float64)


class TestAgainstDlib:
    def test_the_same_points_but_not_rounded(self, landmark_files: list[Path]) -> None:
        same = total = 0
        for path in landmark_files:
            theirs, ours = dlib.shape_predictor(str(path)), LandmarkPredictor(load(path))
            for face in draw_faces(4000, 50):
                expected = dlib_landmarks(theirs, face.image, face.box)
                points = ours.predict(face.image, [face.box])[0]
                assert np.abs(points - expected).max() < 0.75
                same += int((np.floor(points + 0.5) == expected).sum())
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
        points = LandmarkPredictor(load(path)).predict(GREY, [box])[0]
        # One pixel read at the very edge of rounding may send a tree another way.
        assert (np.floor(points + 0.5) == expected).mean() > 0.9

    def test_colour_images_are_read_as_dlib_reads_them(self, landmark_files: list[Path]) -> None:
        random = np.random.default_rng(1)
        theirs = dlib.shape_predictor(str(landmark_files[0]))
        ours = LandmarkPredictor(load(landmark_files[0]))
        for face in draw_faces(11, 10):
            colour = np.stack([face.image, np.roll(face.image, 3), face.image // 2], axis=2)
            colour += random.integers(0, 40, colour.shape, dtype=np.uint8)
            expected = dlib_landmarks(theirs, colour, face.box)
            points = ours.predict(colour, [face.box])[0]
            assert np.floor(points + 0.5).tolist() == expected.tolist()

    def test_random_models_of_mixed_depths(self, tmp_path: Path) -> None:
        from aggregators import write_model

        for seed in range(20):
            # A single landmark has no rotation.
            model, path = make_predictor(seed, parts=1 + seed % 5), tmp_path / f"{seed}.dat"
            write_model(model, path)
            expected = dlib_landmarks(dlib.shape_predictor(str(path)), GREY, (20, 30, 120, 140))
            assert np.abs(LandmarkPredictor(model).predict(GREY, [BOX])[0] - expected).max() <= 0.5


class TestManyFaces:
    def test_each_face_is_predicted_by_itself(self) -> None:
        predictor = LandmarkPredictor(make_predictor(1))
        boxes = np.array([BOX, [0, 0, 50, 60], [-40, -40, 300, 300.5]])
        together = predictor.predict(GREY, boxes)
        assert together.shape == (3, predictor.part_count, 2)
        for number, box in enumerate(boxes):
            assert np.array_equal(predictor.predict(GREY, [box])[0], together[number])

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
    @pytest.mark.parametrize(
        "box", [[5, 5, 5, 9], [9, 5, 5, 9], [5, 9, 9, 5], [0, 0, np.nan, 9], [0, 0, np.inf, 9]]
    )
    def test_boxes_without_area(self, box: list[float]) -> None:
        with pytest.raises(FaceBoxError, match="box 1 "):
            LandmarkPredictor(make_predictor(1)).predict(GREY, [BOX, box])

    def test_models_that_would_read_beyond_their_arrays(self) -> None:
        model = make_predictor(1)
        broken = replace(model, split_idx1=model.split_idx1 + np.uint32(1000))
        with pytest.raises(InconsistentModelError, match="split_idx1"):
            LandmarkPredictor(broken)
        with pytest.raises(InconsistentModelError, match="member 2: split_idx1"):
            LandmarkPredictor(ForestEnsemble((model, broken), np.ones(2)))


class TestGrey:
    def test_grey_images_pass_without_a_copy(self) -> None:
        assert to_grey(GREY) is GREY

    def test_colour_is_the_truncated_mean(self) -> None:
        pixels = np.array([[[255, 255, 255], [1, 1, 0], [10, 20, 31]]], dtype=np.uint8)
        assert to_grey(pixels).tolist() == [[255, 0, 20]]

    def test_views_in_any_layout(self) -> None:
        view = np.asfortranarray(GREY)[::-1, ::2]
        grey = to_grey(view)
        assert grey.flags.c_contiguous
        assert np.array_equal(grey, view)
        predictor = LandmarkPredictor(make_predictor(1))
        expected = predictor.predict(np.ascontiguousarray(view), [BOX])
        assert np.array_equal(predictor.predict(view, [BOX]), expected)

    @pytest.mark.parametrize(
        "image",
        [GREY.astype(np.float32), np.zeros((4, 4, 4), np.uint8), np.zeros(4, np.uint8), "face.png"],
    )
    def test_other_arrays_are_refused(self, image: UInt8) -> None:
        with pytest.raises(ImageArrayError, match="an image must"):
            to_grey(image)
