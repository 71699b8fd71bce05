"""Training, and several models scored into a report."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from site_agent.datasets.synthetic import sites
from site_agent.training.ert import settings_for_blinks, train_starter
from tests.cli.conftest import Run, run_here

QUICK_ERT = [
    *("--set", "num_trees_per_cascade_level=20"),
    *("--set", "cascade_depth=4"),
    *("--set", "oversampling_amount=10"),
    *("--set", "tree_depth=3"),
]


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faces")
    drawn = run_here(
        "dataset", "draw", "faces", folder, "--set", "images=10", "--set", "size=200x200", "-q"
    )
    assert drawn.code == 0, drawn.err
    return Path(drawn.out.strip())


def test_eyes_are_trained_by_settings_for_blinks(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    model = tmp_path / "eyes.dat"
    data = poolctl("train", "ert", faces, "-o", model, "--for", "blinks", *QUICK_ERT, "--json").data
    assert data["data"]["parts"] == 12
    assert data["settings"]["parts"][0] == "36"
    assert data["settings"]["feature_pool_region_padding"] == 0.08


def test_a_starter_is_marked_and_trained_as_for_few_faces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawing = Mock(wraps=sites.write_face_dataset)
    monkeypatch.setattr(sites, "write_face_dataset", drawing)
    train_starter(tmp_path / "eyes.dat", image_count=20)
    assert drawing.call_args.kwargs["glasses"] == pytest.approx(1 / 3, abs=0.1)
    data = json.loads((tmp_path / "eyes.dat.training.json").read_text())
    assert data["suggested_labels"]["population"] == "synthetic"
    few, many = settings_for_blinks(20), settings_for_blinks(10_000)
    assert (data["settings"]["nu"], few.nu, many.nu) == (0.05, 0.05, 0.1)
    assert few.parts == many.parts


def test_unknown_landmarks_are_named_before_training(
    faces: Path, tmp_path: Path, poolctl: Run
) -> None:
    arguments = ("train", "ert", faces, "-o", tmp_path / "a.dat", *QUICK_ERT, "--json")
    shown = poolctl(*arguments, "--set", "parts=ears").error
    assert shown["code"] == "invalid_input"
    assert "eyes, mouth" in shown["message"]
    assert not (tmp_path / "a.dat").exists()


@pytest.mark.slow
def test_several_models_make_a_report(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    models = [tmp_path / "a.dat", tmp_path / "b.dat"]
    for trees, model in zip((20, 40), models, strict=True):
        arguments = ("train", "ert", faces, "-o", model, *QUICK_ERT[2:], "-q")
        run = poolctl(*arguments, "--set", f"num_trees_per_cascade_level={trees}")
        assert run.out == f"{model}\n"
    out = tmp_path / "report"
    data = poolctl(
        "evaluate", *models, faces, "--output", out, "--set", "resamples=50", "--json"
    ).data
    assert {Path(file).name for file in data["files"]} == {
        *("scores.json", "scores.csv", "scores.md", "cumulative_error.png"),
        "landmark_error.csv",
    }
    again = poolctl(
        "evaluate", *models, faces, "--workers", 1, "--set", "resamples=50", "--json"
    ).data
    assert again["items"] == data["items"]
    assert set(data["items"][0]["intervals"]) >= {"mean_error", "auc", "eye_error", "ear_error"}
    none = poolctl("evaluate", models[0], faces, "--set", "resamples=0").out
    assert "[" not in none
    assert "EAR error" in none
