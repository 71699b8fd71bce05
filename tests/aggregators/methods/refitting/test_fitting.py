"""A site's faces and sums, against plain numpy and against the predictor."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aggregators import LandmarkPredictor
from aggregators.errors import (
    FaceBoxError,
    ImageArrayError,
    IncompatibleModelsError,
    InconsistentModelError,
)
from aggregators.methods.refitting import RefitSettings, SiteFaces, SiteFit, contribute, thin_base
from aggregators.methods.refitting.faces import Samples, draw_samples
from aggregators.models import CascadeLevel, Float32, LeafContribution, ShapePredictor
from tests.aggregators.methods.refitting.small_sites import PARTS, make_base, make_faces

IMAGES = [np.zeros((20, 30), dtype=np.uint8), np.ones((10, 12), dtype=np.uint8)]

BOXES = [[0, 0, 9, 9], [1.0, 2.0, 8.0, 7.0]]

POINTS = np.full((2, 3, 2), 4.0)


def test_faces_are_packed() -> None:
    faces = SiteFaces.from_arrays(IMAGES, BOXES, POINTS)
    assert faces.face_count == 2
    assert faces.part_count == 3
    assert faces.image_starts.tolist() == [0, 600]
    np.testing.assert_allclose(faces.shapes[1, 0], [3 / 7, 2 / 5])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"images": [IMAGES[0], IMAGES[1].astype(float)]}, ImageArrayError, "image 1 must be"),
        ({"images": IMAGES[:1]}, FaceBoxError, "1 images for 2 faces"),
        ({"boxes": [[0, 0, 9, 9]]}, FaceBoxError, "1 boxes for the landmarks of 2"),
        ({"boxes": [[0, 0, 9, 9], [5, 5, 5, 9]]}, FaceBoxError, "box 1 "),
        ({"points": np.full((2, 3, 2), np.nan)}, FaceBoxError, "face 0 has landmarks"),
        ({"images": IMAGES[:1], "boxes": BOXES[:1], "points": POINTS[:1]}, FaceBoxError, "1 faces"),
    ],
)
def test_bad_faces_are_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    arguments: dict[str, Any] = {"images": IMAGES, "boxes": BOXES, "points": POINTS} | change
    with pytest.raises(error, match=message):
        SiteFaces.from_arrays(**arguments)


SETTINGS = RefitSettings(starts=5, nu=0.3, seed=3)


def assert_same(first: LeafContribution, second: LeafContribution) -> None:
    np.testing.assert_array_equal(first.changes, second.changes)
    np.testing.assert_array_equal(first.counts, second.counts)
    assert first.base_digest == second.base_digest
    assert first.settings == second.settings


def samples_of(faces: SiteFaces, base: ShapePredictor, settings: RefitSettings) -> Samples:
    return draw_samples(
        faces,
        base.initial_shape,
        starts=settings.starts,
        jitter=settings.jitter,
        seed=settings.seed,
    )


def reached_by_predictor(
    base: ShapePredictor, level: CascadeLevel, faces: SiteFaces, samples: Samples, shapes: Float32
) -> np.ndarray:
    """Return the leaf rows that samples reach, (samples, trees): each leaf holds its number."""
    reached = np.empty((len(shapes), level.tree_count), dtype=np.int64)
    ends = np.cumsum(1 << level.tree_depths.astype(np.int64))
    starts = np.concatenate([[0], ends[:-1]])
    for tree in range(level.tree_count):
        leaves = np.zeros_like(level.leaves)
        leaves[starts[tree] : ends[tree]] = np.arange(starts[tree], ends[tree])[:, None, None]
        numbered = ShapePredictor.from_levels(base.initial_shape, [replace(level, leaves=leaves)])
        predictor = LandmarkPredictor(numbered)
        for number, shape in enumerate(shapes):
            image = samples.image_of_sample[number]
            height, width = faces.image_sizes[image]
            first = faces.image_starts[image]
            grey = faces.pixels[first : first + height * width].reshape(height, width)
            box = samples.boxes[number]
            moved = predictor.move(grey, box[np.newaxis], shape[np.newaxis].astype(np.float32))[0]
            reached[number, tree] = round(float((moved - shape)[0, 0]))
    return reached


def test_a_level_is_fitted_as_the_formula_says() -> None:
    base, faces = make_base(), make_faces(1, count=4)
    settings = SETTINGS.model_copy(update={"min_faces": 1})
    samples = samples_of(faces, base, settings)
    fit = SiteFit(base, faces, settings)
    level = next(base.levels())
    fitted = fit.fit(level)

    reached = reached_by_predictor(base, level, faces, samples, samples.starts)
    shapes = samples.starts.astype(np.float64)
    shapes += level.leaves.astype(np.float64)[reached].sum(axis=1)
    residuals = samples.targets - shapes
    expected = np.zeros(level.leaves.shape)
    for tree in range(level.tree_count):
        for leaf in np.unique(reached[:, tree]):
            inside = reached[:, tree] == leaf
            expected[leaf] = 0.3 * residuals[inside].sum(axis=0) / (inside.sum() + 1)
            residuals[inside] -= expected[leaf]
    np.testing.assert_allclose(fitted.changes, expected, atol=1e-6)
    counts = np.bincount(reached.reshape(-1), minlength=len(level.leaves))
    np.testing.assert_array_equal(fitted.counts, counts)


@pytest.mark.parametrize("jitter", [0.0, 0.1])
def test_samples_go_where_the_predictor_would_take_them(jitter: float) -> None:
    base, faces = make_base(), make_faces(2)
    settings = SETTINGS.model_copy(update={"jitter": jitter})
    fit = SiteFit(base, faces, settings)
    for level in base.levels():
        fit.fit(level)
        fit.move(level.leaves)
    samples = samples_of(faces, base, settings)
    predictor = LandmarkPredictor(base)
    for number, image in enumerate(samples.image_of_sample):
        height, width = faces.image_sizes[image]
        first = faces.image_starts[image]
        grey = faces.pixels[first : first + height * width].reshape(height, width)
        box = samples.boxes[number]
        moved = predictor.move(grey, box[np.newaxis], samples.starts[number : number + 1])[0]
        np.testing.assert_allclose(fit.shapes[number], moved, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode_share", [0.0, 0.5, 1.0])
def test_the_number_of_threads_changes_no_bit(mode_share: float) -> None:
    base, faces = make_base(), make_faces(3, count=60)
    settings = SETTINGS.model_copy(update={"own_share": mode_share})
    one = contribute(base, faces, settings, threads=1)
    for threads in (2, 3, 7):
        assert_same(one, contribute(base, faces, settings, threads=threads))


def test_the_seed_decides_the_starting_shapes() -> None:
    base, faces = make_base(), make_faces(4)
    first, again = contribute(base, faces, SETTINGS), contribute(base, faces, SETTINGS)
    other = contribute(base, faces, SETTINGS.model_copy(update={"seed": 4}))
    assert_same(first, again)
    assert not np.array_equal(first.changes, other.changes)
    assert "seed" not in other.settings


@pytest.mark.parametrize("least", [1, 3, 6, 13])
def test_what_a_tree_sends_and_what_it_keeps_back_belongs_to_several_faces(least: int) -> None:
    base, faces = make_base(), make_faces(6)
    settings = SETTINGS.model_copy(update={"min_faces": least})
    samples = samples_of(faces, base, settings)
    level = next(base.levels())
    reached = reached_by_predictor(base, level, faces, samples, samples.starts)
    fitted = SiteFit(base, faces, settings).fit(level)
    assert not fitted.changes[fitted.counts == 0].any()
    face_of_sample = np.arange(len(reached)) // settings.starts
    for leaves in reached.T:
        sent = fitted.counts[leaves] > 0
        for leaf in np.unique(leaves[sent]):
            assert len(np.unique(face_of_sample[leaves == leaf])) >= least
        kept_back = len(np.unique(face_of_sample[~sent]))
        assert kept_back == 0 or kept_back >= min(least, faces.face_count)
    assert fitted.counts.any() == (least <= faces.face_count)


def test_a_base_that_moves_landmarks_away_is_refused() -> None:
    base = make_base()
    away = replace(base, leaves=base.leaves + np.float32(0.5))
    with pytest.raises(InconsistentModelError, match=r"level \d of the base moves landmarks"):
        contribute(away, make_faces(6), SETTINGS)


def test_starting_shapes_are_drawn_as_in_training() -> None:
    base, faces = make_base(), make_faces(8)
    samples = draw_samples(faces, base.initial_shape, starts=6, jitter=0.0, seed=1)
    starts = samples.starts.reshape(faces.face_count, 6, PARTS, 2)
    np.testing.assert_array_equal(starts[:, 0], np.tile(base.initial_shape, (12, 1, 1)))
    # Every other one lies between two faces of the site.
    low, high = faces.shapes.min(axis=0), faces.shapes.max(axis=0)
    assert (starts[:, 1:] >= low - 1e-6).all()
    assert (starts[:, 1:] <= high + 1e-6).all()
    assert len(np.unique(starts[:, 1:].reshape(60, -1), axis=0)) == 60
    np.testing.assert_array_equal(samples.boxes, np.repeat(faces.boxes, 6, axis=0))


def test_jitter_shifts_boxes_and_keeps_landmarks_in_the_image() -> None:
    base, faces = make_base(), make_faces(9)
    samples = draw_samples(faces, base.initial_shape, starts=8, jitter=0.1, seed=1)
    sides = np.repeat(faces.boxes[:, 2:] - faces.boxes[:, :2], 8, axis=0)
    shifts = (samples.boxes[:, :2] - np.repeat(faces.boxes[:, :2], 8, axis=0)) / sides
    assert (shifts[::8] == 0).all()
    assert 0.05 < np.abs(shifts).max() <= 0.1
    np.testing.assert_allclose(samples.boxes[:, 2:] - samples.boxes[:, :2], sides)
    pixels = samples.targets * sides[:, None] + samples.boxes[:, None, :2]
    true = np.repeat(faces.shapes, 8, axis=0) * sides[:, None]
    np.testing.assert_allclose(
        pixels, true + np.repeat(faces.boxes[:, None, :2], 8, axis=0), atol=1e-4
    )


def test_nu_has_a_default() -> None:
    sizes = {3000: 0.0167, 1000: 0.05, 500: 0.1, 10: 0.3}
    for trees, nu in sizes.items():
        forest = replace(make_base(), trees_per_level=np.array([1, trees]))
        assert RefitSettings().resolved(forest).nu == nu
        assert RefitSettings(nu=0.7).resolved(forest).nu == 0.7


def test_thinning_keeps_trees_of_the_whole_level() -> None:
    base = make_base()
    assert thin_base(base, None) is base
    assert thin_base(base, 4) is base
    thinned = thin_base(base, 2)
    assert thinned.trees_per_level.tolist() == [2, 2, 2]
    made = contribute(base, make_faces(1), SETTINGS.model_copy(update={"thin": 2}))
    assert made.changes.shape == thinned.leaves.shape


def test_faces_of_another_scheme_are_refused() -> None:
    with pytest.raises(
        IncompatibleModelsError, match=r"parts 10 against 7 .*the model's landmarks"
    ):
        contribute(make_base(), make_faces(1, parts=7))
