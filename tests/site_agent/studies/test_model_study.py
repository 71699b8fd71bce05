"""Studies on a few drawn faces: the models are those of the single commands, and runs go on."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from aggregators.formats import file_digest
from aggregators.methods import read_recipe, recipe_path, replay
from site_agent.datasets import FaceDataset
from site_agent.datasets.imglab_xml import read_imglab_xml
from site_agent.datasets.synthetic import write_face_dataset
from site_agent.errors import InvalidInputError
from site_agent.evaluation import EvaluationSettings, evaluate_landmarks
from site_agent.studies import (
    StepOutcome,
    StudyOutcome,
    conduct_study,
    named_parts,
    split_into_parts,
)
from site_agent.studies.protocol import CombinationSettings, RefinementSettings, StudySettings
from site_agent.training import ErtSettings

ERT = ErtSettings(
    num_trees_per_cascade_level=8, cascade_depth=2, tree_depth=2, oversampling_amount=3,
    feature_pool_size=60, num_test_splits=5,
)  # fmt: skip
LANDMARKS = StudySettings(
    ERT,
    CombinationSettings(orders=1, unions=False),
    RefinementSettings(rounds=2, starts=2),
    EvaluationSettings(resamples=20),
    seed=5,
)


@dataclass(frozen=True)
class Faces:
    """Drawn faces of two sites, and those that models are tested on."""

    parts: dict[str, FaceDataset]
    test: FaceDataset


def drawn(folder: Path, images: int, seed: int) -> FaceDataset:
    xml = write_face_dataset(
        folder, images, images, seed, image_size=(160, 160), first_person=100 * seed
    )
    return read_imglab_xml(xml)


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Faces:
    folder = tmp_path_factory.mktemp("faces")
    return Faces(
        named_parts([drawn(folder / "a", 4, 1), drawn(folder / "b", 5, 2)]),
        drawn(folder / "test", 4, 3),
    )


@pytest.fixture(scope="module")
def finished(faces: Faces, tmp_path_factory: pytest.TempPathFactory) -> StudyOutcome:
    """A study that is done; copy its folder before changing anything."""
    told: list[float | None] = []
    done = conduct_study(
        tmp_path_factory.mktemp("finished") / "study",
        "drawn",
        faces.parts,
        faces.test,
        LANDMARKS,
        repeat=["poolctl", "study"],
        progress=lambda share, _text: told.append(share),
    )
    assert done.run.failed == []
    assert told[-1] == pytest.approx(1.0)
    assert all(share is not None for share in told)
    return done


def again(
    folder: Path, faces: Faces, settings: StudySettings = LANDMARKS, **more: object
) -> tuple[StudyOutcome, list[StepOutcome]]:
    ended: list[StepOutcome] = []
    done = conduct_study(
        folder, "drawn", faces.parts, faces.test, settings,
        on_outcome=ended.append, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return done, ended


@pytest.fixture
def study(finished: StudyOutcome, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished.run.folder.path, tmp_path / "study"))


def test_every_model_has_its_line_its_file_and_its_scores(finished: StudyOutcome) -> None:
    folder = finished.run.folder.path
    content = json.loads((folder / "table.json").read_text())
    rows = {row["name"]: row for row in content["rows"]}
    assert list(rows)[:3] == ["P1", "P2", "Pall"]
    assert {"COM(P1+P2)", "COM(P2+P1)", "COM(P1+P2+P2)", "CASCADE(P1+P2)"} <= set(rows)
    test = read_imglab_xml(finished.run.data.test.file)
    for row in rows.values():
        assert file_digest(folder / row["model"]) == row["digest"]
        scores = evaluate_landmarks(folder / row["model"], test, resamples=0)
        assert row["metrics"]["mean_error"] == pytest.approx(scores.mean_error, abs=1e-12)
        low, high = row["intervals"]["mean_error"]
        assert low <= row["metrics"]["mean_error"] <= high
    assert rows["COM(P2+P1)"]["digest"] == rows["COM(P1+P2)"]["digest"]
    assert any("their files are equal" in remark for remark in content["remarks"])
    best = min(rows["P1"]["metrics"]["mean_error"], rows["P2"]["metrics"]["mean_error"])
    merged = rows["COM(P1+P2)"]
    expected = 100 * (merged["metrics"]["mean_error"] / best - 1)
    assert merged["against_best_alone_percent"] == pytest.approx(expected)
    with (folder / "table.csv").open(newline="") as stream:
        listed = list(csv.DictReader(stream))
    assert [row["dataset"] for row in listed] == [f"drawn-{name}" for name in rows]
    assert float(listed[0]["mean_error"]) == rows["P1"]["metrics"]["mean_error"]
    text = (folder / "table.md").read_text()
    assert f"| drawn-COM(P1+P2) | {merged['metrics']['mean_error']:.4f} |" in text
    for name in ("growing.png", "cumulative_error.png"):
        assert (folder / name).stat().st_size > 10_000


def test_recipes_make_the_same_bytes_again(finished: StudyOutcome, tmp_path: Path) -> None:
    models = finished.run.folder.path / "models"
    by_digest = {file_digest(path): path for path in models.glob("*.dat")}
    recipe = read_recipe(recipe_path(models / "COM-P1+P2-by-faces.forest"))
    assert [entry.weight for entry in recipe.inputs] == [4.0, 5.0]
    made = replay(recipe, by_digest.__getitem__, tmp_path / "again.forest")
    assert made.digest == file_digest(models / "COM-P1+P2-by-faces.forest")
    described = json.loads((finished.run.folder.path / "study.json").read_text())
    assert described["settings"]["training"]["num_trees_per_cascade_level"] == 8
    assert described["seed"] == 5
    assert [len(part["digest"]) for part in described["parts"]] == [64, 64]
    assert set(described["versions"]) == {"poolctl", "dlib", "numpy", "python"}


def test_other_settings_repeat_only_what_they_touch(study: Path, faces: Faces) -> None:
    refinement = replace(LANDMARKS.refinement, rounds=1)
    done, ended = again(study, faces, replace(LANDMARKS, refinement=refinement))
    assert ended == []
    assert sorted(done.leftovers) == [
        "models/REFINED-P1+P2-round-2-thinned-to-8.dat", "models/REFINED-P1+P2-round-2.dat",
        "scores/REFINED-P1+P2-round-2-thinned-to-8.json", "scores/REFINED-P1+P2-round-2.json",
    ]  # fmt: skip
    assert len(done.table.lines) == len(again(study, faces)[0].table.lines) - 2
    evaluation = EvaluationSettings(resamples=20, normaliser="box")
    _, ended = again(study, faces, replace(LANDMARKS, evaluation=evaluation))
    assert {outcome.step.verb for outcome in ended} == {"score"}


def test_a_failing_step_is_named_and_stops_no_other(faces: Faces, tmp_path: Path) -> None:
    part = faces.parts["P2"]
    lone = replace(part, images=part.images[:1])
    three = {**faces.parts, "P3": lone}
    done, ended = again(tmp_path / "study", Faces(three, faces.test))
    [failed] = done.run.failed
    assert failed.title == "train P3"
    assert "1 boxes to train on" in failed.reason
    rows = {line.row.name: line for line in done.table.lines}
    assert rows["COM(P1+P2)"].scores is not None
    assert rows["Pall"].scores is not None
    assert rows["COM(P1+P2+P3)"].scores is None
    assert rows["COM(P1+P2+P3)"].reason == "needs the result of: train P3"
    text = (tmp_path / "study" / "table.md").read_text()
    assert "| drawn-COM(P1+P2+P3) | - |" in text
    assert "P3 has no scores: " in text
    assert "1 picture is in P2 and P3" in text
    _, ended = again(tmp_path / "study", Faces(three, faces.test))
    assert [outcome.title for outcome in ended] == ["train P3"], "it is tried again"


def test_a_split_keeps_what_belongs_together(faces: Faces) -> None:
    whole = FaceDataset(None, images=tuple(i for p in faces.parts.values() for i in p.images))
    parts = split_into_parts(whole, 3, group_of=lambda image: image.path.name[-5], seed=1)
    assert list(parts) == ["P1", "P2", "P3"]
    assert sum(len(part.images) for part in parts.values()) == 9
    owners = [{image.path.name[-5] for image in part.images} for part in parts.values()]
    assert not owners[0] & owners[1]
    with pytest.raises(InvalidInputError, match="at least 2 parts"):
        split_into_parts(whole, 1)
