"""Refining a real landmark model on drawn faces, all sites on one machine."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aggregators import file_digest, merge, read_model
from aggregators.errors import ConversionError, IncompatibleModelsError, OptionError
from aggregators.methods import read_recipe, recipe_path, replay
from aggregators.methods.refitting import RefitSettings
from aggregators.models import ShapePredictor
from site_agent.datasets.records import FaceDataset
from site_agent.errors import TrainingDataError
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.refinement import RefinementPlan, SiteSource, load_site, read_base, refine_sites

SETTINGS = RefitSettings(starts=6)


@pytest.fixture(scope="module")
def sources(training_faces: FaceDataset) -> list[SiteSource]:
    """Two sites with half of the faces each."""
    halves = [replace(training_faces, images=training_faces.images[k::2]) for k in range(2)]
    return [SiteSource(f"site-{k}", load_site(half, 68)) for k, half in enumerate(halves)]


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
    sources: list[SiteSource], trained_landmarks: Path, training_faces: FaceDataset, tmp_path: Path
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
    sources: list[SiteSource], trained_landmarks: Path, tmp_path: Path
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
    sources: list[SiteSource], trained_landmarks: Path, trained_detector: Path, tmp_path: Path
) -> None:
    plan = RefinementPlan(SETTINGS)
    with pytest.raises(ConversionError, match="cannot hold"):
        refine_sites(trained_landmarks, sources, tmp_path / "refined.svm", plan)
    with pytest.raises(OptionError, match="one of the inputs"):
        refine_sites(trained_landmarks, sources, trained_landmarks, plan)
    with pytest.raises(OptionError, match="different names"):
        refine_sites(trained_landmarks, sources[:1] * 2, tmp_path / "refined.dat", plan)
    with pytest.raises(FileNotFoundError):
        refine_sites(trained_landmarks, sources, tmp_path / "no" / "refined.dat", plan)
    with pytest.raises(IncompatibleModelsError, match="wba-cascade"):
        read_base(trained_detector)
    assert list(tmp_path.iterdir()) == []
