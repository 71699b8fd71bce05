"""A round with a base that was built to photograph the faces of the others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import merge, read_model
from aggregators.methods.refitting import (
    RefitSettings,
    contribute,
    find_untrained_features,
    thin_base,
)
from aggregators.models import ShapePredictor
from site_agent.attacks.receipt.leaf_sums import build_camera, develop, photograph
from site_agent.datasets.records import FaceDataset
from site_agent.refinement import LoadedSite, load_site
from site_agent.training.ert import ErtSettings, train_ert

OUTSIDE, CHEEK = (-40.0, -40.0), (0.3, 0.6)


@pytest.fixture(scope="module")
def site(training_faces: FaceDataset) -> LoadedSite:
    """The victim, with five faces."""
    return load_site(replace(training_faces, images=training_faces.images[::5]), 68)


@pytest.fixture(scope="module")
def trained(trained_landmarks: Path) -> ShapePredictor:
    model = read_model(trained_landmarks)
    assert isinstance(model, ShapePredictor)
    return model


def test_without_rules_leaf_sums_are_pictures_and_landmarks(
    site: LoadedSite, trained: ShapePredictor
) -> None:
    camera = build_camera(trained.initial_shape, OUTSIDE)
    settings = RefitSettings(starts=1, min_faces=1, nu=0.001)
    pictures, residuals = develop(contribute(camera, site.faces, settings))
    seen = photograph(site.faces)
    for residual, picture in zip(residuals, pictures, strict=True):
        landmarks = trained.initial_shape + residual.reshape(-1, 2)
        errors = np.abs(site.faces.shapes - landmarks).max(axis=(1, 2))
        there = np.isfinite(picture)
        assert errors.min() < 0.05
        assert there.mean() > 0.5
        face = seen[errors.argmin()]
        assert np.corrcoef(picture[there], face[there])[0, 1] > 0.95


def test_sums_over_several_faces_show_no_single_one(
    site: LoadedSite, trained: ShapePredictor
) -> None:
    camera = build_camera(trained.initial_shape, OUTSIDE)
    _, residuals = develop(contribute(camera, site.faces, RefitSettings(starts=5, nu=0.001)))
    assert len(residuals) == 0


def test_a_camera_does_not_look_like_a_trained_model(trained: ShapePredictor) -> None:
    camera = build_camera(trained.initial_shape, OUTSIDE)
    warnings = " ".join(find_untrained_features(camera))
    for phrase in (
        "farther than 0.5 box widths", "thresholds beyond 64", "apart", "one pixel is in more",
        "equal leaves",
    ):  # fmt: skip
        assert phrase in warnings
    noise = np.random.default_rng(1).normal(0, 0.01, camera.leaves.shape).astype(np.float32)
    near = replace(
        build_camera(trained.initial_shape, CHEEK), leaves=noise,
        split_thresholds=camera.split_thresholds / 4,
    )  # fmt: skip
    assert "one pixel is in more" in " ".join(find_untrained_features(near))
    turned = replace(near, split_idx1=near.split_idx2, split_idx2=near.split_idx1)
    assert "one pixel is in more" in " ".join(find_untrained_features(turned))
    displaced = replace(near, anchors=near.anchors[::-1].copy())
    assert "nearest landmark" in " ".join(find_untrained_features(displaced))
    disguised = build_camera(trained.initial_shape, None)
    assert find_untrained_features(disguised) == [], "only its origin gives it away"
    hidden = merge("wba-cascade", [trained, replace(camera, **_levels_of(trained, camera))])
    assert isinstance(hidden.model, ShapePredictor)
    assert find_untrained_features(hidden.model) != []


def test_models_that_were_trained_pass(
    trained: ShapePredictor, training_faces: FaceDataset, site: LoadedSite, tmp_path: Path
) -> None:
    settings = ErtSettings(
        num_trees_per_cascade_level=30, cascade_depth=6, tree_depth=3, seed=7,
        oversampling_translation_jitter=0.1,
    )  # fmt: skip
    other = train_ert(training_faces, tmp_path / "other.dat", settings, training_scores=False)
    merged = merge("wba-cascade", [trained, read_model(other.model_path)]).model
    assert isinstance(merged, ShapePredictor)
    eyes = replace(settings, parts=("eyes",), cascade_depth=2)
    small = train_ert(training_faces, tmp_path / "eyes.dat", eyes, training_scores=False)
    sent = contribute(merged, site.faces, RefitSettings(starts=5))
    for model in (
        trained, merged, thin_base(merged, 20), merge("leaf-refit", [merged, sent]).model,
        read_model(small.model_path),
    ):  # fmt: skip
        assert isinstance(model, ShapePredictor)
        assert find_untrained_features(model) == []


def _levels_of(model: ShapePredictor, camera: ShapePredictor) -> dict[str, np.ndarray]:
    """Return the camera's arrays, repeated for every level of the model."""
    levels = model.level_count
    names = ("trees_per_level", "pool_per_level", "tree_depths", "split_idx1", "split_idx2",
             "split_thresholds", "leaves", "anchors", "deltas")  # fmt: skip
    return {name: np.concatenate([getattr(camera, name)] * levels) for name in names}
