"""Refining a landmark model on drawn faces, and bases that photograph them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import file_digest, merge, read_model
from aggregators.errors import ConversionError, IncompatibleModelsError, OptionError
from aggregators.methods import read_recipe, recipe_path, replay
from aggregators.methods.refitting import (
    RefitSettings,
    contribute,
    find_untrained_features,
    thin_base,
)
from aggregators.models import ShapePredictor
from site_agent.attacks.receipt.leaf_sums import build_camera, develop, photograph
from site_agent.datasets.records import FaceDataset
from site_agent.errors import TrainingDataError
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.refinement import LoadedSite, RefinementPlan, load_site, read_base, refine_sites
from site_agent.training.ert import ErtSettings, train_ert

SETTINGS = RefitSettings(starts=6)


@pytest.fixture(scope="module")
def sources(training_faces: FaceDataset) -> dict[str, LoadedSite]:
    """Two sites with half of the faces each."""
    halves = [replace(training_faces, images=training_faces.images[k::2]) for k in range(2)]
    return {f"site-{k}": load_site(half, 68) for k, half in enumerate(halves)}


def error_of(model: Path, faces: FaceDataset) -> float:
    return evaluate_landmarks(model, faces, resamples=1).metrics["mean_error"]


def test_faces_are_cut_out_with_their_landmarks(training_faces: FaceDataset) -> None:
    site = load_site(training_faces, 68)
    assert site.faces.face_count == 24
    assert site.left_out == ()
    assert site.faces.shapes.min() > -0.3
    assert site.faces.shapes.max() < 1.4
    full = load_site(training_faces, 68, margin=10.0)
    np.testing.assert_allclose(full.faces.shapes, site.faces.shapes, atol=1e-12)
    assert site.faces.pixels.size <= full.faces.pixels.size == 24 * 200 * 200


def test_refinement_comes_nearer_to_the_sites_faces(
    sources: dict[str, LoadedSite],
    trained_landmarks: Path,
    training_faces: FaceDataset,
    tmp_path: Path,
) -> None:
    # Leaves that are as good as forgotten; the trees still know where to look.
    trained = read_model(trained_landmarks)
    assert isinstance(trained, ShapePredictor)
    base = tmp_path / "base.dat"
    merge("wba-cascade", [trained], options={"step": 0.3}, output=base)
    output = tmp_path / "refined.dat"
    refine_sites(base, sources, output, RefinementPlan(SETTINGS))
    assert error_of(output, training_faces) < 0.7 * error_of(base, training_faces)
    assert output.stat().st_size < 1.02 * base.stat().st_size


def test_kept_contributions_make_the_same_model_again(
    sources: dict[str, LoadedSite], trained_landmarks: Path, tmp_path: Path
) -> None:
    output, kept = tmp_path / "refined.dat", tmp_path / "sent"
    settings = SETTINGS.model_copy(update={"thin": 10})
    plan = RefinementPlan(settings, rounds=2, keep_in=kept)
    refined = refine_sites(trained_landmarks, sources, output, plan)
    assert [path.name for path in refined.contributions] == [
        f"site-{site}.round-{number}.contribution" for number in (1, 2) for site in (0, 1)
    ]
    assert refined.model.trees_per_level.tolist() == [10] * 6

    recipe = read_recipe(recipe_path(output))
    assert recipe.method.name == "leaf-refit"
    files = {file_digest(path): path for path in [trained_landmarks, *refined.contributions]}
    replay(recipe, files.__getitem__, tmp_path / "again.dat")
    assert (tmp_path / "again.dat").read_bytes() == output.read_bytes()

    merge("leaf-refit", list(files.values()), output=tmp_path / "merged.dat")
    assert (tmp_path / "merged.dat").read_bytes() == output.read_bytes()


def test_faces_without_all_landmarks_are_left_out(training_faces: FaceDataset) -> None:
    first = training_faces.images[0]
    poor = replace(first.boxes[0], parts=dict(list(first.boxes[0].parts.items())[:60]), line=7)
    images = (replace(first, boxes=(poor,)), *training_faces.images[1:])
    site = load_site(replace(training_faces, images=images), 68)
    assert site.faces.face_count == 23
    assert site.left_out == ((7, f"a face of {first.path.name} lacks 8 of 68 landmarks"),)


def test_unfit_data_are_refused_by_line(training_faces: FaceDataset) -> None:
    with pytest.raises(TrainingDataError, match=r"has 68 landmarks, the model 5"):
        load_site(training_faces, 5)
    with pytest.raises(TrainingDataError, match="no landmarks named chin"):
        load_site(training_faces, 68, parts=["chin"])
    with pytest.raises(TrainingDataError, match="has 9 landmarks, the model 68"):
        load_site(training_faces, 68, parts=["nose"])
    with pytest.raises(TrainingDataError, match=r"has 1 faces .*2 are needed"):
        load_site(replace(training_faces, images=training_faces.images[:1]), 68)
    image = training_faces.images[0]
    for change, phrase in (
        ({"left": 5000}, "lies outside the image"),
        ({"width": 1}, "1 x .* too small"),
    ):
        boxes = (replace(image.boxes[0], line=9, **change),)
        images = (replace(image, boxes=boxes), *training_faces.images[1:])
        with pytest.raises(TrainingDataError, match=f"line 9: .*{phrase}"):
            load_site(replace(training_faces, images=images), 68)


def test_some_landmarks_of_more_can_be_refined(training_faces: FaceDataset) -> None:
    eyes = [f"{number}" for number in range(36, 48)]
    site = load_site(training_faces, 12, parts=eyes)
    assert site.faces.part_count == 12
    told_by = ({"parts": ["eyes"]}, {"parts": ["36-47"]},
               {"initial_shape": site.faces.shapes.mean(axis=0)})  # fmt: skip
    for told in told_by:
        again = load_site(training_faces, 12, **told)
        assert np.array_equal(again.faces.shapes, site.faces.shapes)


def test_impossible_wishes_are_refused_at_once(
    sources: dict[str, LoadedSite], trained_landmarks: Path, trained_detector: Path, tmp_path: Path
) -> None:
    plan = RefinementPlan(SETTINGS)
    with pytest.raises(ConversionError, match="cannot hold"):
        refine_sites(trained_landmarks, sources, tmp_path / "refined.svm", plan)
    with pytest.raises(OptionError, match="one of the inputs"):
        refine_sites(trained_landmarks, sources, trained_landmarks, plan)
    with pytest.raises(FileNotFoundError):
        refine_sites(trained_landmarks, sources, tmp_path / "no" / "refined.dat", plan)
    with pytest.raises(IncompatibleModelsError, match="wba-cascade"):
        read_base(trained_detector)
    assert list(tmp_path.iterdir()) == []


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
