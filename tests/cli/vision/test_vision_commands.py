"""Commands that draw, train, score, predict and find blinks, on drawn faces."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from aggregators.formats import file_digest
from tests.cli.conftest import Run, run_here
from tests.conftest import PROJECT_ROOT

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
        "dataset", "draw", "faces", folder, "--set", "images=12", "--set", "size=200x200", "-q"
    )
    assert drawn.code == 0, drawn.err
    return Path(drawn.out.strip())


@pytest.fixture(scope="module")
def landmarks(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("models") / "face.dat"
    trained = run_here("train", "ert", faces, "-o", model, *QUICK_ERT, "-q")
    assert (trained.code, trained.out.strip()) == (0, str(model)), trained.err
    return model


def test_what_is_wrong_with_a_data_set_is_code_5(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    broken = tmp_path / "broken.xml"
    broken.write_text(faces.read_text())
    shown = poolctl("dataset", "check", broken, "--json")
    assert shown.code == 5
    assert "broken.xml, line" in shown.error["message"]
    broken.write_text("<dataset><images>")
    assert poolctl("dataset", "check", broken, "--json").error["code"] == "annotation_file"


def test_training_says_what_it_did(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("train", "hog-svm", faces, "-o", tmp_path / "face.svm", "--set", "epsilon=0.5")
    arguments = (*arguments, "--json")
    data = poolctl(*arguments).data
    assert data["settings"]["target_size_px"] == [80, 80]
    assert data["model_digest"] == file_digest(tmp_path / "face.svm")
    assert (tmp_path / "face.svm.training.json").exists()
    refused = poolctl(*arguments, "--set", "target_size_px=abc")
    assert (refused.code, refused.error["code"]) == (2, "settings")
    refused = poolctl(*arguments, "--set", "c=-1")
    assert (refused.code, refused.error["code"]) == (2, "invalid_input")
    assert refused.error["message"].startswith("c is -1")
    assert not list(tmp_path.glob(".*")), "no temporary files are left"


def test_scores_of_several_models_and_what_is_kept(
    faces: Path, landmarks: Path, tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy.dat"
    copy.write_bytes(landmarks.read_bytes())
    data = poolctl("evaluate", landmarks, copy, faces, "--save", "--json").data
    first, second = data["items"]
    assert first["mean_error"] == second["mean_error"]
    assert 0 < first["mean_error"] < 0.5
    kept = json.loads((tmp_path / "copy.dat.evaluation.json").read_text())
    assert kept["metrics"]["mean_error"] == first["mean_error"]
    assert kept["model_digest"] == file_digest(copy)
    monkeypatch.chdir(tmp_path)
    shown = poolctl("evaluate", "copy.dat", faces)
    assert shown.out.startswith("copy.dat is off by ")
    assert max(map(len, shown.out.splitlines())) <= 100
    assert poolctl("evaluate", landmarks, "--json").code == 2
    assert poolctl("evaluate", landmarks, tmp_path / "no.xml", "--json").code == 4
    wrong = poolctl("evaluate", landmarks, faces, "--set", "normaliser=nonsense", "--json")
    assert wrong.code == 6


def test_a_model_scored_on_what_it_was_trained_on_is_said_to_be(
    faces: Path, landmarks: Path, tmp_path: Path, poolctl: Run
) -> None:
    model = tmp_path / "a.dat"
    for end in ("", ".training.json"):
        (tmp_path / f"a.dat{end}").write_bytes(landmarks.with_name(f"face.dat{end}").read_bytes())
    shown = poolctl("evaluate", model, faces, "--save", "--json")
    assert shown.data["items"][0]["training_images"] == 12
    assert "all 12 images are those that a.dat was trained on" in shown.err
    kept = json.loads((tmp_path / "a.dat.evaluation.json").read_text())
    assert kept["training_images"] == 12


def test_predicting_with_boxes_of_a_data_set_and_with_a_detector(
    faces: Path, landmarks: Path, tmp_path: Path, poolctl: Run
) -> None:
    predictions = tmp_path / "found.xml"
    arguments = ("predict", faces, "--landmarks", landmarks)
    data = poolctl(*arguments, "--output", predictions, "--json").data
    assert len(data["items"]) == 12
    [face] = data["items"][0]["faces"]
    assert len(face["landmarks"]) == 68
    assert any(x != round(x) for x, _ in face["landmarks"])
    assert poolctl("dataset", "check", predictions).code == 0
    refused = poolctl(*arguments, "--pictures", tmp_path / "seen", "--json")
    assert "dataset preview" in refused.error["message"]
    image = next((faces.parent / "faces").glob("*.png"))
    by_detector = poolctl("predict", image, "--detector", "stock", "--json").data
    assert len(by_detector["items"]) == 1
    assert poolctl("predict", image, "--landmarks", landmarks, "--json").code == 2
    assert poolctl("predict", tmp_path / "none.png", "--detector", "stock", "--json").code == 4
    assert poolctl("predict", image, faces, "--detector", "stock", "--json").code == 2


def test_progress_is_drawn_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli", "dataset", "draw", "faces", str(tmp_path / "f")]
    environment = os.environ | {"TERM": "xterm"}
    process = subprocess.Popen(
        [*command, "--set", "images=6", "--json"],
        cwd=PROJECT_ROOT,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=environment,
    )
    os.close(theirs)
    drawn = b""
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        drawn += chunk
    out, _ = process.communicate(timeout=540)
    os.close(ours)
    assert b"draw faces" in drawn
    assert json.loads(out)["success"]
