"""Annotations of every format, wherever a command reads faces."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from site_agent.datasets.conversion import read_faces
from tests.cli.conftest import Run, run_here
from tests.site_agent.datasets.other_layouts import write_coco_keypoints, write_pts_folder
from tests.site_agent.face_data import draw_faces

QUICK = (
    *("--set=num_trees_per_cascade_level=8", "--set=cascade_depth=2", "--set=tree_depth=2"),
    *("--set=oversampling_amount=3", "--set=feature_pool_size=60"),
)


@dataclass(frozen=True)
class Faces:
    """The same faces in three formats, and the arguments that read each."""

    xml: Path
    pts: Path
    coco: Path

    def of_each(self) -> list[tuple[object, ...]]:
        return [(self.xml,), (self.pts,), (self.coco, "--images", self.pts)]


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Faces:
    folder = tmp_path_factory.mktemp("faces")
    drawn = draw_faces(folder / "drawn", 6, 6, 1)
    made = Faces(folder / "same.xml", folder / "pts", folder / "coco" / "faces.json")
    write_pts_folder(read_faces(drawn), made.pts)
    outcome = run_here("dataset", "convert", made.pts, "-o", made.xml)
    assert outcome.code == 0, outcome.err
    write_coco_keypoints(read_faces(made.xml), made.coco)
    content = json.loads(made.coco.read_text())
    for image in content["images"]:
        image["file_name"] = Path(image["file_name"]).name
    made.coco.write_text(json.dumps(content))
    return made


@pytest.fixture(scope="module")
def model(faces: Faces, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "face.dat"
    trained = run_here("train", "ert", faces.pts, "-o", path, *QUICK, "-q")
    assert trained.code == 0, trained.err
    return path


def same(values: list[Any]) -> Any:
    assert all(value == values[0] for value in values), values
    return values[0]


def test_scores_trainings_and_refinements_are_the_same_from_every_format(
    poolctl: Run, faces: Faces, model: Path, tmp_path: Path
) -> None:
    scored = [
        poolctl("evaluate", model, *arguments, "--json").data for arguments in faces.of_each()
    ]
    digest = same([data["dataset_digest"] for data in scored])
    same([data["items"][0]["mean_error"] for data in scored])

    record = json.loads((model.parent / "face.dat.training.json").read_text())
    assert record["data"]["digest"] == digest
    refined = []
    for number, (path, *options) in enumerate(faces.of_each()):
        output = tmp_path / f"refined-{number}.dat"
        arguments = ("refine", path, "--base", model, "-o", output, "--set=starts=2")
        data = poolctl(*arguments, *options, "--json").data
        assert data["sites"][0]["dataset_digest"] == digest
        refined.append(output.read_bytes())
    same(refined)


def test_several_data_sets_are_used_as_one(
    poolctl: Run, faces: Faces, model: Path, tmp_path: Path
) -> None:
    split = poolctl("dataset", "split", faces.xml, "--site-count", 2, "-o", tmp_path, "--json")
    parts = [item["dataset"] for item in split.data["items"]]
    whole = poolctl("evaluate", model, faces.xml, "--json").data
    joined = poolctl("evaluate", model, model, *parts, "--json").data
    assert joined["dataset_digest"] == whole["dataset_digest"]
    assert [item["mean_error"] for item in joined["items"]] == [whole["items"][0]["mean_error"]] * 2
    twice = poolctl("train", "hog-svm", faces.xml, parts[1], "--json")
    assert "both have the image" in twice.error["message"]
    eyes = tmp_path / "eyes.xml"
    assert poolctl("dataset", "convert", parts[1], "-o", eyes, "--parts", "eyes", "-q").code == 0
    mixed = poolctl("train", "ert", parts[0], eyes, "--json")
    assert "has 68 (00 to 67)" in mixed.error["message"]
    assert "has 12 (36 to 47)" in mixed.error["message"]
