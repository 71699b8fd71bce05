"""Studies on a few drawn faces: the models are those of the single commands, and runs go on."""

import csv
import json
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregators.formats import file_digest, read_model
from aggregators.methods.refitting import RefitSettings
from site_agent.datasets.imglab_xml import read_imglab_xml, write_imglab_xml
from site_agent.datasets.records import FaceDataset
from site_agent.errors import InvalidInputError, SiteAgentError
from site_agent.evaluation.detection import evaluate_detector
from site_agent.evaluation.landmarks import evaluate_landmarks
from site_agent.refinement import RefinementPlan, load_site, refine_sites
from site_agent.settings import with_values
from site_agent.studies.engine import Conduct, StudyResults, _digests, hold_study
from site_agent.studies.faces import plan_runs
from site_agent.studies.parts import open_data, split_into_parts
from site_agent.studies.protocol_file import Step, read_protocol
from site_agent.studies.results import Results
from tests.site_agent.face_data import draw_faces

LANDMARKS, DETECTORS = read_protocol("landmarks"), read_protocol("detectors")
SMALL: dict[str, Any] = {
    "num_trees_per_cascade_level": 8, "cascade_depth": 2, "tree_depth": 2,
    "oversampling_amount": 3, "feature_pool_size": 60, "num_test_splits": 5, "orders": 1,
    "unions": False, "refinement": {"rounds": 2, "starts": 2}, "resamples": 20, "seed": 5,
    "name": "drawn",
}  # fmt: skip
SIX = [f"P{number}" for number in range(1, 7)]
FACES = [30, 10, 20, 20, 20, 20]


def plan(changes: dict[str, Any], parts: list[str] = SIX, *, detectors: bool = False) -> list[Step]:
    settings = with_values((DETECTORS if detectors else LANDMARKS).settings, changes)
    landmarks = () if detectors else ("36", "37")
    return plan_runs(parts, FACES[: len(parts)], settings, landmarks)


def names(steps: list[Step], *groups: str) -> list[str]:
    return [
        step.factors["model"]
        for step in steps
        if step.name == "made" and (not groups or step.factors["group"] in groups)
    ]


def test_detectors_are_combined_as_in_table_two() -> None:
    steps = plan({}, detectors=True)
    assert names(steps, "alone") == SIX
    assert names(steps, "union", "all") == [
        "P1+P2", "P1+P2+P3", "P1+P2+P3+P4", "P1+P2+P3+P4+P5", "Pall",
    ]  # fmt: skip
    assert names(steps, "merged") == [
        "COM(P1+P2)", "COM(P1+P2+P3)", "COM(P1+P2+P3+P4)", "COM(P1+P2+P3+P4+P5)",
        "COM(P1+P2+P3+P4+P5+P6)",
    ]  # fmt: skip
    orders = names(steps, "order")
    assert len(set(orders) - set(names(steps, "merged"))) == 2
    for name in orders:
        assert sorted(name.removeprefix("COM(").removesuffix(")").split("+")) == SIX
    assert names(steps, "weighted")[-1] == "COM(P1+P2+P3+P4+P5+P6+P6)"
    merged = [step.options for step in steps if step.do.endswith(":combine")]
    weights = [options["weights"] for options in merged if options["weights"]]
    assert weights == [tuple(FACES), (1.5, 1, 1, 1, 1, 1)]
    assert {options["method"] for options in merged} == {"mwma"}
    assert len({step.key for step in steps}) == len(steps)


def test_orders_are_other_ones_and_depend_on_the_seed() -> None:
    def orders(seed: int, count: int, parts: list[str]) -> list[str]:
        return names(plan({"seed": seed, "orders": count}, parts, detectors=True), "order")

    assert orders(1, 4, SIX) == orders(1, 4, SIX) != orders(2, 4, SIX)
    assert orders(1, 9, SIX[:2]) == ["COM(P2+P1)"], "there are no more"
    assert len(set(orders(1, 9, SIX[:3]))) == 5
    assert orders(1, 0, SIX) == []


@pytest.mark.parametrize(
    ("changes", "count", "complaint"),
    [
        ({}, 1, "1 parts; expected 2 to 50"),
        ({"weights": [1.0, 2.0]}, 6, "weights: 2 for 6 parts"),
        ({"double": 7}, 6, "part 7 does not exist"),
        ({"weights": [1.0, -1.0]}, 6, "weights is "),
        ({"refinement.step": 3.0}, 6, "step is 3"),
    ],
)
def test_impossible_combinations_are_refused(
    changes: dict[str, Any], count: int, complaint: str
) -> None:
    with pytest.raises(SiteAgentError, match=complaint):
        plan(changes, SIX[:count])


def digests_of(changes: dict[str, Any], *, detectors: bool = False, **data: str) -> dict[str, str]:
    parts = {part: f"digest of {part}" for part in [*SIX, "test"]} | data
    protocol = DETECTORS if detectors else LANDMARKS
    steps = plan(changes, detectors=detectors)
    settings = with_values(protocol.settings, changes)
    return _digests(steps, {"digests": parts}, {"dlib": "20"}, settings)


def test_a_digest_changes_with_whatever_the_result_depends_on() -> None:
    before = digests_of({})

    def changed(after: dict[str, str]) -> set[str]:
        assert before.keys() == after.keys()
        return {key for key in before if before[key] != after[key]}

    scores = {key for key in before if key.startswith("score")}
    assert changed(digests_of({"resamples": 10})) == scores
    assert changed(digests_of({}, test="another")) == scores
    spared = set(before) - changed(digests_of({}, P6="another"))
    assert {"train_P1", "train_P5", "combine_COM-P1+P2", "score_P1"} <= spared
    assert not {"train_P6", "train_Pall", "score_Pall"} & spared
    moved = changed(digests_of({"refinement.step": 1.0}))
    assert moved
    assert all("CASCADE" in key or "REFINED" in key for key in moved)
    assert changed(digests_of({"nu": 0.2})) == set(before)
    threads = digests_of({"threads": 7}, detectors=True)
    assert digests_of({}, detectors=True) == threads, "the result does not depend on it"


def test_a_best_part_that_finds_nothing_is_no_base_of_per_cent() -> None:
    models = {"P1": ("alone", 0.0), "COM(P1+P2)": ("merged", 0.5)}
    steps = [
        Step(f"{name}_{model}", name, "", {"model": model, "group": group, "parts": 1})
        for name in ("made", "scored") for model, (group, _) in models.items()
    ]  # fmt: skip
    scores = {
        f"scored_{model}": {"recall": recall, "precision": recall, "faces": 200, "images": 90}
        for model, (_, recall) in models.items()
    }
    findings = Results(DETECTORS.content, steps, scores, DETECTORS.settings).findings()
    assert "COM(P1+P2): recall 0.500 against 0.000 of the best alone (P1)" in findings


# Studies of drawn faces.
@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Annotations of the drawn faces of two sites, and of test faces."""
    folder = tmp_path_factory.mktemp("faces")
    return {
        name: draw_faces(folder / name, images, images, seed, first_person=100 * seed)
        for seed, (name, images) in enumerate((("a", 4), ("b", 5), ("test", 4)), 1)
    }


def hold(
    folder: Path, faces: dict[str, Path], changes: dict[str, Any] | None = None, **more: Path
) -> tuple[StudyResults, set[str]]:
    """Hold a study of landmarks; return its results, and the keys of its new runs."""
    files = {**faces, **more}
    test = str(files.pop("test"))
    settings = with_values(LANDMARKS.settings, {**SMALL, "test": test, **(changes or {})})
    keys: set[str] = set()
    conduct = Conduct(repeat=["poolctl"], on_run=lambda key, _: keys.add(key))
    return hold_study(LANDMARKS, folder, open_data([*files.values()]), settings, conduct), keys


@pytest.fixture(scope="module")
def finished(faces: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that is done; copy its folder before changing anything."""
    folder = tmp_path_factory.mktemp("finished") / "study"
    outcome, _ = hold(folder, faces)
    assert outcome.failed == {}
    return folder


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "study"))


def rows_of(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "table.csv").open(newline="") as stream:
        return {row["dataset"].removeprefix("drawn-"): row for row in csv.DictReader(stream)}


def test_every_model_has_its_line_its_file_and_its_scores(
    finished: Path, faces: dict[str, Path]
) -> None:
    rows = rows_of(finished)
    assert list(rows)[:3] == ["P1", "P2", "Pall"]
    assert {"COM(P1+P2)", "COM(P2+P1)", "COM(P1+P2+P2)", "CASCADE(P1+P2)"} <= set(rows)
    test = read_imglab_xml(faces["test"])
    for row in rows.values():
        assert file_digest(finished / row["model"]) == row["sha256"]
        scores = evaluate_landmarks(finished / row["model"], test, resamples=0)
        assert float(row["mean_error"]) == pytest.approx(scores.mean_error, abs=1e-12)
        assert float(row["mean_error_low"]) <= scores.mean_error <= float(row["mean_error_high"])
    assert rows["COM(P2+P1)"]["sha256"] == rows["COM(P1+P2)"]["sha256"]
    best = min(float(rows[name]["mean_error"]) for name in ("P1", "P2"))
    merged = rows["COM(P1+P2)"]
    expected = 100 * (float(merged["mean_error"]) / best - 1)
    assert float(merged["against_best_alone_percent"]) == pytest.approx(expected)
    text = (finished / "table.md").read_text()
    assert "their files are equal" in text
    assert "errors of landmarks are divided by: inter-ocular" in text
    versions = json.loads((finished / "study.json").read_text())["versions"]
    assert versions["dlib-bin"] == metadata.version("dlib-bin"), "another may make other models"
    named = [name for name, row in rows.items() if row["group"] in {"merged", "cascade", "refined"}]
    assert any(text.startswith(f"The mean error of {name} is 0.") for name in named)
    assert f"| drawn-COM(P1+P2) | {float(merged['mean_error']):.4f} |" in text
    for name in ("growing.png", "cumulative_error.png"):
        assert (finished / name).stat().st_size > 10_000
    pictures = [image.path.name for image in test.images]
    records = [path.read_text() for path in (finished / "runs").iterdir()]
    assert not [name for name in pictures if any(name in record for record in records)]


def test_refined_models_are_those_of_rounds_through_a_pool(finished: Path, tmp_path: Path) -> None:
    base = finished / "models" / "CASCADE-P1+P2.dat"
    files = {name: finished / "parts" / f"{name}.xml" for name in ("P1", "P2")}
    sources = {n: load_site(read_imglab_xml(f), 68) for n, f in files.items()}
    for thin, name in ((None, "round-2"), (8, "round-2-thinned-to-8")):
        plan = RefinementPlan(RefitSettings(starts=2, thin=thin, seed=5, jitter=0.0), rounds=2)
        refined = refine_sites(base, sources, tmp_path / f"{name}.dat", plan)
        assert refined.digest == file_digest(finished / "models" / f"REFINED-P1+P2-{name}.dat")
    assert not list((finished / "models").glob("*.contribution"))


@pytest.mark.slow
def test_files_that_are_gone_or_damaged_are_made_again(study: Path, faces: dict[str, Path]) -> None:
    before = {name: row["sha256"] for name, row in rows_of(study).items()}
    (study / "models" / "REFINED-P1+P2-round-2.dat").unlink()
    merged = study / "models" / "COM-P2+P1.forest"
    merged.write_bytes(merged.read_bytes()[:-9])
    (study / "runs" / "score_P2.json").write_text("{half")
    _, keys = hold(study, faces)
    assert keys == {"refine_REFINED-P1+P2-round-2", "combine_COM-P2+P1", "score_P2"}
    assert before == {name: row["sha256"] for name, row in rows_of(study).items()}


@pytest.mark.slow
def test_detectors_are_merged_by_mwma(faces: dict[str, Path], tmp_path: Path) -> None:
    changes = {
        "epsilon": 1.0, "orders": 0, "unions": False, "resamples": 0, "name": "drawn",
        "test": str(faces["test"]),
    }  # fmt: skip
    settings = with_values(DETECTORS.settings, changes)
    data = open_data([faces["a"], faces["b"]])
    outcome = hold_study(DETECTORS, tmp_path, data, settings, Conduct())
    assert outcome.failed == {}
    weights = [read_model(tmp_path / "models" / f"{name}.svm").weights  # type: ignore[union-attr]
               for name in ("P1", "P2", "COM-P1+P2+P2")]  # fmt: skip
    assert np.allclose((weights[0] + 2 * weights[1]) / 3, weights[2])
    test = read_imglab_xml(faces["test"])
    for row in rows_of(tmp_path).values():
        scores = evaluate_detector(tmp_path / row["model"], test, resamples=0)
        assert float(row["recall"]) == scores.recall
        assert float(row["precision"]) == scores.precision
    assert (tmp_path / "precision_recall.png").stat().st_size > 10_000


def test_one_data_set_is_dealt_to_parts(faces: dict[str, Path]) -> None:
    images = [*read_imglab_xml(faces["a"]).images, *read_imglab_xml(faces["b"]).images]
    whole = FaceDataset(None, images=tuple(images))
    parts = split_into_parts(whole, 3, seed=1)
    assert list(parts) == ["P1", "P2", "P3"]
    assert sum(len(part.images) for part in parts.values()) == 9
    with pytest.raises(InvalidInputError, match="at least 2 parts"):
        split_into_parts(whole, 1)


def test_data_that_cannot_be_studied_are_refused(faces: dict[str, Path], tmp_path: Path) -> None:
    test = read_imglab_xml(faces["test"])
    bare = test.with_boxes(lambda box: replace(box, parts={}))
    write_imglab_xml(bare, tmp_path / "bare.xml")
    without, study = tmp_path / "bare.xml", tmp_path / "study"
    with pytest.raises(InvalidInputError, match=r"bare\.xml has no landmarks named 00, 01"):
        hold(study, faces, test=without)
    with pytest.raises(InvalidInputError, match="the parts have no landmarks"):
        hold(study, faces, a=without, b=without)
    write_imglab_xml(replace(test, images=()), tmp_path / "empty.xml")
    with pytest.raises(InvalidInputError, match=r"P1 .* has no faces"):
        hold(study, faces, a=tmp_path / "empty.xml")
    with pytest.raises(InvalidInputError, match="no landmarks named ears"):
        hold(study, faces, {"training.parts": ["ears"]})
    with pytest.raises(InvalidInputError, match=r"test is 'none\.xml', expected annotations"):
        hold(study, faces, test=Path("none.xml"))
    assert not study.exists(), "nothing was begun"
