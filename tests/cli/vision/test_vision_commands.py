"""Commands that draw, train, score and predict, on drawn faces, eyes and clips."""

import csv
import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import av
import pytest

from aggregators.formats import file_digest, write_model
from site_agent.datasets.egocentric import open_egocentric
from site_agent.datasets.soundness import Soundness
from site_agent.datasets.synthetic import sites
from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from site_agent.networks.modules import new_network
from site_agent.rounds.kinds import NetworkPart
from site_agent.training.ert import settings_for_blinks, train_starter
from site_agent.training_record import remember_learned
from tests.cli.conftest import Run, run_here
from tests.conftest import PROJECT_ROOT

QUICK_ERT = [
    "--set=num_trees_per_cascade_level=20",
    "--set=cascade_depth=4",
    "--set=oversampling_amount=10",
    "--set=tree_depth=3",
]


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faces")
    drawn = run_here(
        "dataset", "draw", "faces", folder, "--set=images=12", "--set=size=200x200", "-q"
    )
    assert drawn.code == 0, drawn.err
    return Path(drawn.out.strip())


@pytest.fixture(scope="module")
def landmarks(faces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = tmp_path_factory.mktemp("models") / "face.dat"
    trained = run_here("train", "ert", faces, "-o", model, *QUICK_ERT, "-q")
    assert (trained.code, trained.out.strip()) == (0, str(model)), trained.err
    return model


def test_training_says_what_it_did(faces: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("train", "hog-svm", faces, "-o", tmp_path / "face.svm", "--set=epsilon=0.5")
    arguments = (*arguments, "--json")
    data = poolctl(*arguments).data
    assert data["settings"]["target_size_px"] == [80, 80]
    assert data["model_digest"] == file_digest(tmp_path / "face.svm")
    assert (tmp_path / "face.svm.training.json").exists()
    poolctl(*arguments, "--set=target_size_px=abc").fails(2, "settings")
    refused = poolctl(*arguments, "--set=c=-1")
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
    wrong = poolctl("evaluate", landmarks, faces, "--set=normaliser=nonsense", "--json")
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


def test_predicting(faces: Path, landmarks: Path, tmp_path: Path, poolctl: Run) -> None:
    predictions, images = tmp_path / "found.xml", faces.parent / "faces"
    arguments = ("predict", images, "--landmarks", landmarks, "--detector", "stock")
    data = poolctl(*arguments, "--output", predictions, "--json").data
    assert len(data["items"]) == 12
    predicted = [face for item in data["items"] for face in item["faces"]]
    assert all(len(face["landmarks"]) == 68 for face in predicted)
    assert any(x != round(x) for face in predicted for x, _ in face["landmarks"])
    assert poolctl("dataset", "check", predictions, "-q").code in (0, 5)
    refused = poolctl(*arguments, "--pictures", tmp_path / "seen", "--json")
    assert "dataset preview" in refused.error["message"]
    image = next(images.glob("*.png"))
    shown = poolctl("predict", image, "--landmarks", landmarks, "--detector", "stock").out
    assert re.match(r"(no faces|\d+ faces?) in 1 image\.", shown)
    assert poolctl("predict", image, "--landmarks", landmarks, "--json").code == 2
    assert poolctl("predict", tmp_path / "none.png", "--detector", "stock", "--json").code == 4
    refused = poolctl("predict", image, faces, "--detector", "stock", "--json")
    assert (refused.code, "evaluate" in refused.error["message"]) == (2, True)


def test_progress_is_drawn_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "cli", "dataset", "draw", "faces", str(tmp_path / "f")]
    environment = os.environ | {"TERM": "xterm"}
    process = subprocess.Popen(
        [*command, "--set=images=6", "--json"],
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
    assert drawing.call_args.args[1].glasses == pytest.approx(1 / 3, abs=0.1)
    data = json.loads((tmp_path / "eyes.dat.training.json").read_text())
    assert data["suggested_labels"]["population"] == "synthetic"
    few, many = settings_for_blinks(20), settings_for_blinks(10_000)
    assert (data["settings"]["nu"], few.nu, many.nu) == (0.05, 0.05, 0.1)
    assert few.parts == many.parts


def test_unknown_landmarks_are_named_before_training(
    faces: Path, tmp_path: Path, poolctl: Run
) -> None:
    arguments = ("train", "ert", faces, "-o", tmp_path / "a.dat", *QUICK_ERT, "--json")
    shown = poolctl(*arguments, "--set=parts=ears").error
    assert shown["code"] == "invalid_input"
    assert "eyes, mouth" in shown["message"]
    assert not (tmp_path / "a.dat").exists()


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross") / "eyes"
    settings = RenderSettings(
        persons=2, frames_per_person=20, sessions=(2, 2), both_eyes=True, skews=Skews(amount=1)
    )
    write_eye_dataset(folder, settings)
    return folder


def test_from_eyes_without_labels_to_a_gaze_network(
    poolctl: Run, eyes: Path, tmp_path: Path
) -> None:
    encoder, mine = tmp_path / "encoder.safetensors", tmp_path / "mine.safetensors"
    training = ("train", "network", "cross-encoder", eyes, "-o", encoder)
    shown = poolctl(*training, "--set=persons=p00", "--set=epochs=2")
    assert shown.code == 0, shown.err
    assert "cross-encoder-small, 40 patches of 1 person, 2 epochs" in shown.out
    head = ("train", "network", "gaze-head", eyes, "--base", encoder, "-o", mine)
    shown = poolctl(*head, "--set=persons=p01", "--set=shots=10")
    assert shown.code == 0, shown.err
    assert " degrees, " in shown.out.splitlines()[0]
    assert "PCA-12" in shown.out
    # A gaze network like any other: and its shots are known as what it has learned.
    tested = poolctl("evaluate", mine, eyes, "--persons", "p01", "--json")
    assert 0 < tested.data["items"][0]["mean_error_deg"] < 90
    assert tested.data["items"][0]["training_images"] == 10
    refused = poolctl("evaluate", encoder, eyes)
    assert refused.code != 0
    assert "cross-encoder-small is a representation network" in refused.err


def test_what_a_study_of_encoders_refuses(poolctl: Run, eyes: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    assert poolctl("study", "cross-encoder", "-o", study).code == 2
    few = poolctl("study", "cross-encoder", eyes, "-o", study, "--json")
    assert "2 persons; expected at least 5" in few.error["message"]
    plan = poolctl(
        "study", "cross-encoder", "--drawn", "--quick", "-o", study, "--dry-run", "--json"
    )
    assert len(plan.data["runs"]) == 30


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli-clips") / "clips"
    arguments = ("--set=persons=2", "--set=videos=5", "--set=seconds=1.5")
    assert run_here("dataset", "draw", "clips", folder, *arguments).code == 0
    splits = Counter(clip.split for clip in open_egocentric(folder).clips)
    assert splits == {"train": 6, "validation": 2, "test": 2}
    return folder


@pytest.fixture(scope="module")
def saliency(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saliency") / "look.safetensors"
    write_model(new_network("glc-tiny"), path)
    return path


def test_maps_are_scored_beside_those_that_know_no_picture(
    poolctl: Run, clips: Path, saliency: Path
) -> None:
    shown = poolctl("evaluate", saliency, clips)
    assert shown.code == 0, shown.err
    assert "maps that know no picture" in shown.out.splitlines()[0]
    evaluated = poolctl("evaluate", saliency, clips, "--persons", "P02", "--json").data["items"][0]
    assert evaluated["scores"]["oracle"]["f1"] > evaluated["scores"]["network"]["f1"]
    assert list(evaluated["f1_by_person"]) == ["P02"]
    poolctl("evaluate", saliency, clips, "--save").fails(2, "not for clips")


def test_clips_that_a_network_learned_are_told(
    poolctl: Run, clips: Path, saliency: Path, tmp_path: Path
) -> None:
    nothing: Any = None
    part = NetworkPart(nothing, "site-a", open_egocentric(clips), (), nothing, Soundness())
    remember_learned(file_digest(saliency), {"name": "look", **part.learned(saliency)})
    assert "was trained on" not in poolctl("evaluate", saliency, clips).err
    changed = shutil.copytree(clips, tmp_path / "changed")
    table = changed / "clips.csv"
    text = table.read_text()
    table.write_text(text.replace("P01,test", "P01,train").replace("P01,train", "P01,test", 2))
    scored = poolctl("evaluate", saliency, changed, "--json")
    assert "8 of the 12 images are those that look was trained on" in scored.err
    assert scored.data["items"][0]["training_images"] == 8
    table.write_text(text.replace("videos/P01-04.mp4", "videos/P01-00.mp4"))
    simulate = ["federated", "simulate", changed, "--architecture", "glc-tiny", "--rounds=1"]
    for command in (
        ["evaluate", saliency, changed],
        [*simulate, "--method=fedavg", "-o", tmp_path / "run"],
    ):
        poolctl(*command, "--json").fails(5, "is the same video as P01-00 (P01, train)")


def test_videos_are_written_with_the_maps_in_them(
    poolctl: Run, clips: Path, saliency: Path, tmp_path: Path
) -> None:
    video = clips / "videos" / "P01-04.mp4"
    arguments = ["predict", video, "--network", saliency, "-o", tmp_path / "looks.csv"]
    shown = poolctl(*arguments, "--pictures", tmp_path / "seen")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[0] == "looked at 36 frames of 1 video"
    with av.open(str(tmp_path / "seen" / "P01-04.mp4")) as made:
        assert sum(1 for _ in made.decode(video=0)) == 36
    with (tmp_path / "looks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["frame"] for row in rows] == [str(number) for number in range(36)]
    assert all(0 < float(row["x"]) < 1 and 0 < float(row["y"]) < 1 for row in rows)
    poolctl(*arguments, "--pictures", tmp_path / "seen").fails(7, "--force")
