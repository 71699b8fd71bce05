"""What one site computes, against plain numpy and against the predictor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aggregators import LandmarkPredictor
from aggregators.methods.refitting import RefitSettings, SiteFaces, SiteFit, contribute
from aggregators.methods.refitting.faces import Samples, draw_samples
from aggregators.models import CascadeLevel, Float32, LeafContribution, ShapePredictor
from tests.aggregators.methods.refitting.small_sites import make_base, make_faces

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
    """Leaf rows that samples reach, (samples, trees): forests whose leaves hold their number."""
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
            placed = predictor.predict_from(grey, [box], shape[np.newaxis])[0]
            moved = (placed - box[:2]) / (box[2:] - box[:2]) - shape
            reached[number, tree] = round(float(moved[0, 0]))
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
        placed = predictor.predict_from(grey, [box], samples.starts[number : number + 1])[0]
        moved = fit.shapes[number] * (box[2:] - box[:2]) + box[:2]
        np.testing.assert_allclose(moved, placed, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode_share", [0.0, 0.5, 1.0])
def test_the_number_of_threads_changes_no_bit(mode_share: float) -> None:
    base, faces = make_base(), make_faces(3, count=60)
    settings = SETTINGS.model_copy(update={"own_share": mode_share})
    one = contribute(base, faces, settings, threads=1)
    for threads in (2, 3, 7):
        assert_same(one, contribute(base, faces, settings, threads=threads))


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
