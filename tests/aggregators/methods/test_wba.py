"""MWMA and WBA: their arithmetic, and dlib as an independent reader."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import dlib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregators import LandmarkPredictor, encode_model, merge, read_model, write_model
from aggregators.errors import ConversionError, IncompatibleModelsError, OptionError
from aggregators.methods.joined_cascades import distribute_trees, measure_trees, thin_level
from aggregators.methods.wba import reanchor
from aggregators.models import FhogDetector, Float64, ForestEnsemble, ShapePredictor, UInt8
from tests.aggregators.drawn_faces import DrawnFace, draw_faces
from tests.aggregators.small_models import make_detector, make_ensemble, make_predictor


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
    assert dlib.simple_object_detector(str(path)).detection_window_width > 0
    boxes, scores, _ = dlib.fhog_object_detector.run(detector, image, 0, -1000.0)
    corners = ((box.left(), box.top(), box.right(), box.bottom()) for box in boxes)
    return dict(zip(corners, scores, strict=True))


def pool_pixels(predictor: ShapePredictor) -> Float64:
    return predictor.initial_shape.astype(np.float64)[predictor.anchors] + predictor.deltas


def mean_error_px(model: ShapePredictor | ForestEnsemble, faces: list[DrawnFace]) -> float:
    predictor = LandmarkPredictor(model)
    errors = [predictor.predict(face.image, [face.box])[0] - face.parts for face in faces]
    return float(np.mean(np.linalg.norm(errors, axis=-1)))


def merged_cascade(*models: ShapePredictor | Path, **options: float) -> ShapePredictor:
    merged = merge("wba-cascade", models, options=options).model
    assert isinstance(merged, ShapePredictor)
    return merged


@pytest.mark.parametrize("method", ["wba-final", "wba-cascade"])
def test_landmarks_in_another_order_give_a_warning(method: str, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shape = random.uniform(0.1, 0.9, (20, 2))
    paths = []
    for seed in range(3):
        site_shape = shape + random.normal(0, 0.02, shape.shape)
        if seed == 1:
            site_shape = site_shape[sorted(range(20), key=str)]
        model = make_predictor(seed, parts=20, initial_shape=site_shape.astype(np.float32))
        paths.append(tmp_path / f"{'abc'[seed]}.dat")
        write_model(model, paths[-1])
    for order in (paths, paths[::-1]):
        (warning,) = merge(method, order).warnings
        assert re.search(
            r"the landmarks of \S*b\.dat seem to be in another order than those of \S*[ac]\.dat;",
            warning,
        )
    assert merge(method, [paths[0], paths[2]]).warnings == ()


def test_two_eyes_with_sides_exchanged_give_a_warning() -> None:
    eye = np.array([(-10, 0), (-5, -3), (5, -3), (10, 0), (5, 3), (-5, 3)]) / 100
    eyes = np.concatenate([np.add(eye, (0.3, 0.4)), np.add(eye, (0.7, 0.4))]).astype(np.float32)
    mirrored = eyes * np.float32([-1, 1]) + np.float32([1, 0])
    for other, count in ((eyes, 0), (mirrored, 1), (np.roll(eyes, 6, axis=0), 1)):
        models = [
            make_predictor(seed, parts=12, initial_shape=shape)
            for seed, shape in enumerate((eyes, other))
        ]
        assert len(merge("wba-final", models).warnings) == count


class TestReanchoring:
    def test_pixels_stay_where_they_were(self) -> None:
        predictor = make_predictor(1)
        moved = reanchor(predictor, make_predictor(2).initial_shape)
        np.testing.assert_allclose(pool_pixels(moved), pool_pixels(predictor), atol=1e-6)

    def test_each_pixel_is_anchored_to_the_nearest_landmark(self) -> None:
        moved = reanchor(make_predictor(1), make_predictor(2).initial_shape)
        offsets = pool_pixels(moved)[:, np.newaxis] - moved.initial_shape
        nearest = np.linalg.norm(offsets, axis=2).min(axis=1)
        np.testing.assert_allclose(np.linalg.norm(moved.deltas, axis=1), nearest, atol=1e-6)


class TestFinal:
    def test_members_share_the_unweighted_mean_shape(self) -> None:
        first, second = make_predictor(1), make_predictor(2)
        merged = merge("wba-final", [first, second], weights=[1, 9]).model
        assert isinstance(merged, ForestEnsemble)
        expected = (first.initial_shape.astype(np.float64) + second.initial_shape) / 2
        for member in merged.members:
            np.testing.assert_allclose(member.initial_shape, expected, atol=1e-7)
        assert sorted(merged.weights / merged.weights.sum()) == [0.1, 0.9]

    def test_ensembles_are_split_into_members(self) -> None:
        merged = merge("wba-final", [make_ensemble(1), make_predictor(2)], weights=[1, 1]).model
        assert isinstance(merged, ForestEnsemble)
        assert sorted(merged.weights / merged.weights.sum()) == [0.125, 0.375, 0.5]

    def test_a_dat_file_is_refused_with_advice(self, tmp_path: Path) -> None:
        output = tmp_path / "merged.dat"
        with pytest.raises(ConversionError, match="wba-cascade makes one ordinary"):
            merge("wba-final", [make_predictor(1), make_predictor(2)], output=output)
        assert list(tmp_path.iterdir()) == []


class TestCascade:
    def test_trees_lie_side_by_side_with_scaled_leaves(self) -> None:
        first, second = make_predictor(1), make_predictor(2)
        second = replace(second, initial_shape=first.initial_shape)
        merged = merge("wba-cascade", [first, second], weights=[3, 1], options={"step": 1.2}).model
        assert isinstance(merged, ShapePredictor)
        expected_shares = {"3": 0.9, "1": 0.3}
        for level, one, two in zip(merged.levels(), first.levels(), second.levels(), strict=True):
            assert level.tree_count == one.tree_count + two.tree_count
            assert level.pool_size == one.pool_size + two.pool_size
            blocks = [(one, expected_shares["3"]), (two, expected_shares["1"])]
            if not np.array_equal(level.deltas[: one.pool_size], one.deltas):
                blocks.reverse()
            leaves = [np.float32(1) * block.leaves * np.float64(share) for block, share in blocks]
            np.testing.assert_allclose(level.leaves, np.concatenate(leaves), rtol=1e-6)
            offset = blocks[0][0].pool_size
            for name, moved in (("split_idx1", offset), ("split_idx2", offset), ("anchors", 0)):
                indices = [getattr(block, name) for block, _ in blocks]
                indices[1] = indices[1] + np.uint32(moved)
                assert np.array_equal(getattr(level, name), np.concatenate(indices))

    def test_dlib_runs_the_result_as_we_do(
        self, landmark_files: list[Path], tmp_path: Path
    ) -> None:
        output = tmp_path / "merged.dat"
        merged = merge("wba-cascade", landmark_files, output=output).model
        assert isinstance(merged, ShapePredictor)
        theirs, ours = dlib.shape_predictor(str(output)), LandmarkPredictor(merged)
        same = total = 0
        for face in draw_faces(2000, 50):
            expected = theirs(face.image, dlib.rectangle(*face.box)).parts()
            points = ours.predict(face.image, [face.box])[0]
            rounded = np.array([(point.x, point.y) for point in expected])
            same += int((np.floor(points + 0.5) == rounded).all(axis=1).sum())
            total += len(expected)
            assert np.abs(points - rounded).max() < 0.75
        assert same > 0.999 * total

    def test_merging_is_better_than_the_sub_models_are_on_average(
        self, landmark_files: list[Path]
    ) -> None:
        faces = draw_faces(1000, 60)
        models = [read_model(path) for path in landmark_files]
        alone = np.mean([mean_error_px(m, faces) for m in models if isinstance(m, ShapePredictor)])
        # Over seven training seeds: 0.74 to 0.80, thinned 0.83 to 1.00.
        assert mean_error_px(merged_cascade(*landmark_files), faces) < 0.95 * alone
        thinned = merged_cascade(*landmark_files, thin=40)
        assert thinned.trees_per_level.tolist() == [40] * 5
        assert mean_error_px(thinned, faces) < 1.2 * alone

    def test_thinning_to_all_trees_or_more_changes_nothing(self) -> None:
        models = [make_predictor(1), make_predictor(2)]
        for thin in (6, 1000):
            whole, thinned = merged_cascade(*models), merged_cascade(*models, thin=thin)
            assert thinned.leaves.tobytes() == whole.leaves.tobytes()

    @pytest.mark.parametrize(
        ("name", "value"), [("step", 0), ("step", 2.5), ("step", float("nan")), ("thin", 0)]
    )
    def test_bad_options_are_named(self, name: str, value: float) -> None:
        with pytest.raises(OptionError, match=f"option '{name}' of wba-cascade is "):
            merged_cascade(make_predictor(1), **{name: value})


class TestThinning:
    @given(
        trees=st.lists(st.integers(0, 50), min_size=1, max_size=6),
        kept=st.integers(1, 400),
        data=st.data(),
    )
    def test_no_more_and_no_fewer_trees_than_asked_for(
        self, trees: list[int], kept: int, data: st.DataObject
    ) -> None:
        weight = st.floats(1e-6, 1e6)
        weights = data.draw(st.lists(weight, min_size=len(trees), max_size=len(trees)))
        counts = distribute_trees(trees, weights, kept)
        assert sum(counts) == min(kept, sum(trees))
        assert all(0 <= count <= most for count, most in zip(counts, trees, strict=True))

    @given(seed=st.integers(0, 1000), kept=st.integers(1, 7))
    def test_kept_trees_have_the_size_of_the_level(self, seed: int, kept: int) -> None:
        level = next(make_predictor(seed, depths=((3, 2, 1, 4, 2, 2, 1, 3),)).levels())
        thinned, sizes = thin_level(level, kept), measure_trees(level)
        assert len(set(thinned.trees.tolist())) == kept
        assert thinned.trees.tolist() == sorted(thinned.trees.tolist())
        assert (thinned.factors >= 1).all()
        total = float((sizes[thinned.trees] * thinned.factors).sum())
        assert total == pytest.approx(float(sizes.sum()))
