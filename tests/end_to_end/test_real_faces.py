"""Two labs with real photographs, from training to merged models that plain dlib runs.

Everything is done by ``poolctl`` processes and a pool started by ``poolctl serve``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dlib
import numpy as np
import pytest

from tests.end_to_end.labs import Lab, PoolProcess, serving_pool

DLIB_ROUNDING_PX = 0.75
DETECTOR_WORDS = ("--upsample", "1", "--flips", "--set", "epsilon=0.05", "--threads", "2")
ERT_WORDS = ("--num-trees-per-cascade-level", "60", "--set", "oversampling_amount=10")


@dataclass(frozen=True)
class Photographs:
    """dlib's example faces."""

    training: Path
    testing: Path


@dataclass(frozen=True)
class Study:
    """What two labs have shared, and the lab that uses it."""

    pool: PoolProcess
    trainers: tuple[Lab, Lab]
    user: Lab
    faces: Photographs


@pytest.fixture(scope="module")
def faces(shared_data: Path) -> Photographs:
    folder = shared_data / "dlib_faces"
    return Photographs(
        folder / "training_with_face_landmarks.xml", folder / "testing_with_face_landmarks.xml"
    )


@pytest.fixture(scope="module")
def study(faces: Photographs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Study]:
    folder = tmp_path_factory.mktemp("study")
    with serving_pool(folder / "pool") as pool:
        trainers = (
            pool.make_lab(folder / "adult", "adult-lab"),
            pool.make_lab(folder / "infant", "infant-lab"),
        )
        for number, lab in enumerate(trainers, 1):
            train_and_upload(lab, faces, number)
        yield Study(pool, trainers, pool.make_lab(folder / "user", "third-lab"), faces)


def train_and_upload(lab: Lab, faces: Photographs, number: int) -> None:
    """Train with settings of the lab's own and share both models with their scores."""
    lab.poolctl(
        "train", "hog-svm", faces.training, "-o", "d.svm", "--set", f"c={number}", *DETECTOR_WORDS
    )
    seed = ("--set", f"random_seed={number}", "--tree-depth", 2 + number)
    lab.poolctl("train", "ert", faces.training, "-o", "l.dat", *ERT_WORDS, *seed)
    lab.poolctl("evaluate", "d.svm", "l.dat", faces.testing, "--save")
    label = f"population={lab.folder.name}"
    lab.poolctl("upload", "d.svm", "--name", "face", "--label", label)
    lab.poolctl("upload", "l.dat", "--name", "face-68", "--label", label)


def addresses(listed: Any) -> set[str]:
    return {item["address"] for item in listed["items"]}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_shared_models_are_found_and_downloaded(study: Study) -> None:
    user = study.user
    both = {"pool://adult-lab/face-68@1", "pool://infant-lab/face-68@1"}
    assert addresses(user.poolctl("models", "ls", "--kind", "ert")) == both
    infant = user.poolctl("models", "ls", "--label", "population=infant", "--metric", "recall>0.5")
    assert addresses(infant) == {"pool://infant-lab/face@1"}
    best = user.poolctl("models", "ls", "--metric", "mean_error<0.3", "--label", "images=4")
    assert addresses(best) == both
    assert not user.poolctl("models", "ls", "--metric", "mean_error<0.001")["items"]

    got = user.poolctl("download", "adult-lab/face", "infant-lab/face-68", "-o", "models/")
    originals = [study.trainers[0].folder / "d.svm", study.trainers[1].folder / "l.dat"]
    for item, original in zip(got["items"], originals, strict=True):
        assert item["received_bytes"] == original.stat().st_size
        assert sha256(user.folder / item["path"]) == item["digest"] == sha256(original)
    fits = user.poolctl("models", "ls", "--mergeable-with", got["items"][1]["path"])
    assert addresses(fits) == both


def test_a_merged_detector_runs_in_plain_dlib(study: Study) -> None:
    user, faces = study.user, study.faces
    user.poolctl("download", "infant-lab/face", "-o", "infant.svm")
    inputs = ("adult-lab/face", "infant.svm")
    made = user.poolctl("merge", "mwma", *inputs, "--weight-by", "boxes", "-o", "merged.svm")
    assert [entry["weight"] for entry in made["recipe"]["inputs"]] == [18, 18]
    scores = user.poolctl("evaluate", "merged.svm", "adult-lab/face", faces.testing)["items"]
    assert scores[0]["recall"] >= 0.8
    assert scores[0]["precision"] >= 0.8

    # Without labels in the XML nobody is told where the faces are.
    images = sorted({image.path for image in annotated(faces.testing)})
    found = user.poolctl("predict", *images, "--detector", "merged.svm")["items"]
    detector = dlib.simple_object_detector(str(user.folder / "merged.svm"))
    for item in found:
        # A file of Python's kind says how often dlib doubles the image: once, as in training.
        boxes = detector(dlib.load_rgb_image(item["image"]))
        expected = sorted((box.left(), box.top(), box.right(), box.bottom()) for box in boxes)
        faces_found = sorted(
            tuple(face[edge] for edge in ("left", "top", "right", "bottom"))
            for face in item["faces"]
        )
        assert faces_found == expected
    assert sum(len(item["faces"]) for item in found) >= 20


@pytest.mark.parametrize("step", [1.0, 1.1])
def test_merged_landmarks_run_in_plain_dlib(study: Study, step: float) -> None:
    user, faces = study.user, study.faces
    inputs = ("adult-lab/face-68", "infant-lab/face-68@1")
    name = f"step-{step}.dat"
    words = ("merge", "wba-cascade", *inputs, "--step", step, "--weight", "1.5,1", "-o", name)
    user.poolctl(*words)
    predicted = user.poolctl("predict", faces.testing, "--landmarks", name)["items"]
    predictor = dlib.shape_predictor(str(user.folder / name))
    worst_px, compared = 0.0, 0
    for item in predicted:
        image = dlib.load_rgb_image(item["image"])
        for face in item["faces"]:
            edges = (face["left"], face["top"], face["right"], face["bottom"])
            shape = predictor(image, dlib.rectangle(*edges))
            expected = np.array([[point.x, point.y] for point in shape.parts()])
            worst_px = max(worst_px, float(np.abs(face["landmarks"] - expected).max()))
            compared += 1
    assert compared == 25
    assert worst_px < DLIB_ROUNDING_PX


def test_merged_landmarks_are_no_worse_than_their_worst_part(study: Study) -> None:
    user, faces = study.user, study.faces
    inputs = ("adult-lab/face-68", "infant-lab/face-68")
    user.poolctl("merge", "wba-cascade", *inputs, "-o", "cascade.dat")
    user.poolctl("merge", "wba-final", *inputs, "-o", "final.forest")
    models = (*inputs, "cascade.dat", "final.forest")
    scores = user.poolctl("evaluate", *models, faces.testing)["items"]
    errors = [item["mean_error"] for item in scores]
    assert all(item["faces"] == 25 for item in scores)
    assert max(errors[2:]) < max(errors[:2])

    for name in ("cascade.dat", "final.forest"):
        seen = user.poolctl("inspect", name, "--picture", f"{name}.png")
        assert seen["fingerprint"]["parts"] == 68
        assert (user.folder / f"{name}.png").stat().st_size > 1000


def test_lineage_and_replay_of_a_shared_merge(study: Study) -> None:
    user = study.user
    inputs = ("adult-lab/face-68", "infant-lab/face-68")
    made = user.poolctl("merge", "wba-cascade", *inputs, "--step", "1.1", "-o", "shared.dat")
    version = user.poolctl("upload", "shared.dat", "--name", "merged-68")["version"]
    assert version["digest"] == made["digest"]
    assert len(version["parent_digests"]) == 2
    tree = study.trainers[0].poolctl("models", "lineage", "adult-lab/face-68")
    assert made["digest"] in {node["digest"] for node in tree["nodes"]}

    other = study.trainers[0]
    (other.folder / "recipe.json").write_bytes(
        (user.folder / "shared.dat.recipe.json").read_bytes()
    )
    again = other.poolctl("merge", "--replay", "recipe.json", "-o", "again.dat")
    assert again["digest"] == made["digest"]
    alone = ("--replay", "recipe.json", "--without", "infant-lab/face-68@1", "-o", "alone.dat")
    # One model stays what it is only with a step of 1; with 1.1 its leaves are larger.
    left = other.poolctl("merge", *alone)["recipe"]["inputs"]
    assert [entry["address"] for entry in left] == ["pool://adult-lab/face-68@1"]


def annotated(xml: Path) -> tuple[Any, ...]:
    from site_agent.datasets import read_imglab_xml

    return read_imglab_xml(xml).images
