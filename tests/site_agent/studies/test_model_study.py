"""Studies on a few drawn faces: the models are those of the single commands, and runs go on."""

import csv
import fcntl
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import file_digest, read_model
from aggregators.methods import read_recipe, recipe_path, replay
from aggregators.methods.refitting import RefitSettings
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.records import FaceDataset
from site_agent.datasets.synthetic.sites import write_face_dataset
from site_agent.errors import BusyError, InvalidInputError
from site_agent.evaluation.detection import evaluate_detector
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.evaluation.model_runs import EvaluationSettings
from site_agent.refinement import RefinementPlan, SiteSource, load_site, refine_sites
from site_agent.studies.conducting import StudyOutcome, conduct_study
from site_agent.studies.model_study import StepOutcome
from site_agent.studies.parts import named_parts, split_into_parts
from site_agent.studies.protocol import CombinationSettings, RefinementSettings, StudySettings
from site_agent.studies.table import read_scores, write_scores
from site_agent.training.detector_plan import HogSvmSettings
from site_agent.training.ert import ErtSettings
from site_agent.work.measurements import workers_that_fit

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
DETECTORS = StudySettings(
    HogSvmSettings(epsilon=1.0),
    CombinationSettings(orders=0, unions=False),
    evaluation=EvaluationSettings(resamples=0),
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
    outcome = conduct_study(
        tmp_path_factory.mktemp("finished") / "study",
        "drawn",
        faces.parts,
        faces.test,
        LANDMARKS,
        repeat=["poolctl", "study"],
        progress=lambda share, _text: told.append(share),
    )
    assert outcome.run.failed == []
    assert told[-1] == pytest.approx(1.0)
    assert all(share is not None for share in told)
    return outcome


def again(
    folder: Path, faces: Faces, settings: StudySettings = LANDMARKS, **more: object
) -> tuple[StudyOutcome, list[StepOutcome]]:
    ended: list[StepOutcome] = []
    outcome = conduct_study(
        folder, "drawn", faces.parts, faces.test, settings,
        on_outcome=ended.append, **more,  # type: ignore[arg-type]
    )  # fmt: skip
    return outcome, ended


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
    named = [name for name, row in rows.items() if row["group"] in {"merged", "cascade", "refined"}]
    assert any(text.startswith(f"The mean error of {name} is 0.") for name in named)
    assert text.split("\n\n")[0].replace("\n", " ") == content["remarks"][0]
    assert f"| drawn-COM(P1+P2) | {merged['metrics']['mean_error']:.4f} |" in text
    for name in ("growing.png", "cumulative_error.png"):
        assert (folder / name).stat().st_size > 10_000


def test_refined_models_are_those_of_rounds_through_a_pool(
    finished: StudyOutcome, faces: Faces, tmp_path: Path
) -> None:
    folder = finished.run.folder.path
    base = folder / "models" / "CASCADE-P1+P2.dat"
    files = {part.name: part.file for part in finished.run.data.parts}
    sources = [SiteSource(n, load_site(read_imglab_xml(f), 68)) for n, f in files.items()]
    for thin, name in ((None, "round-2"), (8, "round-2-thinned-to-8")):
        plan = RefinementPlan(RefitSettings(starts=2, thin=thin, seed=5, jitter=0.0), rounds=2)
        refined = refine_sites(base, sources, tmp_path / f"{name}.dat", plan)
        assert refined.digest == file_digest(folder / "models" / f"REFINED-P1+P2-{name}.dat")
    assert list((folder / ".study" / "contributions").iterdir()) == []


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


def test_a_second_run_does_nothing(study: Path, faces: Faces) -> None:
    before = {path: path.stat().st_mtime_ns for path in (study / "models").iterdir()}
    outcome, ended = again(study, faces)
    assert ended == []
    assert outcome.run.count("kept") == len(outcome.run.outcomes)
    assert before == {path: path.stat().st_mtime_ns for path in (study / "models").iterdir()}


@pytest.mark.slow
def test_what_is_gone_or_damaged_is_made_again(
    study: Path, faces: Faces, finished: StudyOutcome
) -> None:
    (study / "models" / "REFINED-P1+P2-round-2.dat").unlink()
    merged = study / "models" / "COM-P2+P1.forest"
    merged.write_bytes(merged.read_bytes()[:-9])
    (study / ".study" / "steps" / "score-P2.json").write_text("{half")
    (study / ".study" / "work" / "P1").mkdir()
    (study / ".study" / "work" / "P1" / ".P1.dat.7.part").write_text("half")
    result, ended = again(study, faces)
    assert {outcome.title for outcome in ended} == {
        "refit REFINED-P1+P2-round-2-by-P1",
        "refit REFINED-P1+P2-round-2-by-P2",
        "merge REFINED-P1+P2-round-2",
        "merge COM-P2+P1",
        "score P2",
    }
    assert [line.digest for line in result.table.lines] == [
        line.digest for line in finished.table.lines
    ]
    assert not list((study / ".study" / "work").iterdir())


@pytest.mark.slow
def test_other_settings_repeat_only_what_they_touch(study: Path, faces: Faces) -> None:
    refinement = replace(LANDMARKS.refinement, rounds=1)
    result, ended = again(study, faces, replace(LANDMARKS, refinement=refinement))
    assert ended == []
    assert sorted(result.leftovers) == [
        "models/REFINED-P1+P2-round-2-thinned-to-8.dat", "models/REFINED-P1+P2-round-2.dat",
        "scores/REFINED-P1+P2-round-2-thinned-to-8.json", "scores/REFINED-P1+P2-round-2.json",
    ]  # fmt: skip
    assert len(result.table.lines) == len(again(study, faces)[0].table.lines) - 2
    evaluation = EvaluationSettings(resamples=20, normaliser="box")
    _, ended = again(study, faces, replace(LANDMARKS, evaluation=evaluation))
    assert {outcome.step.verb for outcome in ended} == {"score"}


def test_a_folder_with_another_study_is_left_alone(study: Path, faces: Faces) -> None:
    other = Faces({"P1": faces.parts["P2"], "P2": faces.parts["P1"]}, faces.test)
    before = (study / "parts" / "P1.xml").read_bytes()
    with pytest.raises(InvalidInputError, match="holds a study of landmarks with 2 other parts"):
        again(study, other)
    assert (study / "parts" / "P1.xml").read_bytes() == before
    with (study / ".study" / "lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(BusyError, match="another study is at work"):
            again(study, faces)
    (study / "file").write_text("")
    with pytest.raises(InvalidInputError, match="is a file"):
        again(study / "file", faces)


def test_a_failing_step_is_named_and_stops_no_other(faces: Faces, tmp_path: Path) -> None:
    part = faces.parts["P2"]
    lone = replace(part, images=part.images[:1])
    three = {**faces.parts, "P3": lone}
    result, ended = again(tmp_path / "study", Faces(three, faces.test))
    [failed] = result.run.failed
    assert failed.title == "train P3"
    assert "1 boxes to train on" in failed.reason
    rows = {line.row.name: line for line in result.table.lines}
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


@pytest.mark.slow
def test_detectors_are_merged_by_mwma(faces: Faces, tmp_path: Path) -> None:
    outcome, _ = again(tmp_path / "study", faces, DETECTORS)
    assert outcome.run.failed == []
    folder = tmp_path / "study"
    weights = [read_model(folder / "models" / f"{name}.svm").weights  # type: ignore[union-attr]
               for name in ("P1", "P2", "COM-P1+P2+P2")]  # fmt: skip
    assert np.allclose((weights[0] + 2 * weights[1]) / 3, weights[2])
    for line in outcome.table.lines:
        scores = evaluate_detector(folder / line.model, faces.test, resamples=0)
        assert line.value("recall") == scores.recall
        assert line.value("precision") == scores.precision
    assert (folder / "precision_recall.png").stat().st_size > 10_000


def test_scores_are_read_back_whole(finished: StudyOutcome, faces: Faces, tmp_path: Path) -> None:
    model = finished.run.folder.path / "models" / "P1.dat"
    scores = evaluate_landmarks(model, faces.test, resamples=5)
    write_scores(scores, tmp_path / "scores.json")
    scores_read = read_scores(tmp_path / "scores.json")
    assert scores_read.metrics == scores.metrics
    assert scores_read.intervals == scores.intervals
    assert scores_read.to_dict() == scores.to_dict()
    assert np.allclose(scores_read.cumulative_errors()[0], scores.cumulative_errors()[0])  # type: ignore[union-attr]
    text = (tmp_path / "scores.json").read_text()
    assert all(image.path.name not in text for image in faces.test.images)
    (tmp_path / "scores.json").write_text('{"schema": "other"}')
    with pytest.raises(InvalidInputError, match="found 'other'"):
        read_scores(tmp_path / "scores.json")


def test_a_split_keeps_what_belongs_together(faces: Faces) -> None:
    whole = FaceDataset(None, images=tuple(i for p in faces.parts.values() for i in p.images))
    parts = split_into_parts(whole, 3, group_of=lambda image: image.path.name[-5], seed=1)
    assert list(parts) == ["P1", "P2", "P3"]
    assert sum(len(part.images) for part in parts.values()) == 9
    owners = [{image.path.name[-5] for image in part.images} for part in parts.values()]
    assert not owners[0] & owners[1]
    with pytest.raises(InvalidInputError, match="at least 2 parts"):
        split_into_parts(whole, 1)


def test_data_that_cannot_be_studied(faces: Faces, tmp_path: Path) -> None:
    bare = replace(
        faces.test,
        images=tuple(
            replace(image, boxes=tuple(replace(box, parts={}) for box in image.boxes))
            for image in faces.test.images
        ),
    )
    write_imglab_xml(bare, tmp_path / "bare.xml")
    without = read_imglab_xml(tmp_path / "bare.xml")
    with pytest.raises(InvalidInputError, match=r"bare\.xml has no landmarks named 00, 01"):
        again(tmp_path / "study", Faces(faces.parts, without))
    with pytest.raises(InvalidInputError, match="the parts have no landmarks"):
        again(tmp_path / "study", Faces({"P1": without, "P2": without}, faces.test))
    empty = replace(faces.parts["P1"], images=())
    with pytest.raises(InvalidInputError, match=r"P2 .* has no faces"):
        again(tmp_path / "study", Faces({**faces.parts, "P2": empty}, faces.test))
    unknown = replace(LANDMARKS, training=replace(ERT, parts=("ears",)))
    with pytest.raises(InvalidInputError, match="no landmarks named ears"):
        again(tmp_path / "study", faces, unknown)
    assert not (tmp_path / "study").exists(), "nothing was begun"


def test_workers_are_as_many_as_memory_allows() -> None:
    assert workers_that_fit(4, [1000] * 9) == 4
    assert workers_that_fit(4, []) == 4
    assert workers_that_fit(4, [10**18, 1000]) == 1
