"""``poolctl study``: results, interruptions and refusals, of faces and of gaze."""

import csv
import json
import signal
from pathlib import Path

import pytest

from aggregators.formats import file_digest
from tests.cli.conftest import Run, start_process
from tests.waiting import wait_until

SETTINGS = """
[training]
num_trees_per_cascade_level = 8
cascade_depth = 2
tree_depth = 2
oversampling_amount = 3
feature_pool_size = 60
num_test_splits = 5

[refinement]
rounds = 1
starts = 2
"""


@pytest.fixture
def quick(tmp_path: Path) -> tuple[object, ...]:
    """Options that make a study quick."""
    path = tmp_path / "settings.toml"
    path.write_text(SETTINGS)
    return ("--settings", path, "--set=orders=0", "--set=resamples=20")


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Drawn faces of two persons a picture file, and test faces."""
    from tests.site_agent.face_data import draw_faces

    folder = tmp_path_factory.mktemp("faces")
    return {
        name: draw_faces(folder / name, images, images, seed, first_person=100 * seed)
        for seed, (name, images) in enumerate({"all": 8, "test": 4}.items())
    }


def read_table(study: Path) -> dict[str, dict[str, str]]:
    with (study / "table.csv").open(newline="") as stream:
        return {row["dataset"].partition("-")[2]: row for row in csv.DictReader(stream)}


def digests_in(study: Path) -> dict[str, str]:
    return {name: row["sha256"] for name, row in read_table(study).items()}


def test_an_interrupted_study_goes_on_and_can_be_repeated(
    faces: dict[str, Path],
    quick: tuple[object, ...],
    tmp_path: Path,
    poolctl: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = tmp_path / "study"
    test = f"test={faces['test']}"
    arguments = ("study", "landmarks", faces["all"], "--set", test, "--set=sites=2", *quick)
    records = study / "runs"
    process = start_process(*arguments, "-o", study)
    wait_until(lambda: records.is_dir() and len(list(records.glob("*.json"))) >= 3)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=540)
    assert process.returncode == 130
    assert f"{study}: what is finished is kept" in told
    assert "run the same command again" in told
    assert "Traceback" not in told
    assert not (study / "table.md").exists()
    there = len(list(records.glob("*.json")))

    data = poolctl(*arguments, "-o", study, "--json").data
    assert data["runs"]["kept"] >= there
    assert data["runs"]["done"] >= 1
    rows = read_table(study)
    assert list(rows)[:3] == ["P1", "P2", "Pall"]
    assert "REFINED(P1+P2), round 1, thinned to 8" in rows
    for row in rows.values():
        assert file_digest(study / row["model"]) == row["sha256"]

    repeat = json.loads((study / "study.json").read_text())["repeat"]
    assert "training.tree_depth=2" in repeat
    monkeypatch.chdir(study)
    assert poolctl(*repeat[1:], "-q").out.strip() == "again"
    assert digests_in(study / "again") == digests_in(study)


def test_mistakes_are_told_before_anything_is_done(
    faces: dict[str, Path], tmp_path: Path, poolctl: Run
) -> None:
    study = tmp_path / "study"
    start = ("study", "landmarks", faces["all"], "-o", study, "--json")
    test = (f"--set=test={faces['test']}",)
    for arguments, complaint in (
        ((*test, "--set=sites=99"), "sites is 99"),
        ((*test, "--set=sites=2", "--set=weights=1,2,3"), "weights: 3 for 2 parts"),
        ((), "expected annotations, as in: --set test=test.xml"),
        (("--drawn",), "give data, or --drawn without any"),
        ((*test, "--quick"), "no smaller variant"),
    ):
        poolctl(*start, *arguments).fails(2, complaint)
    missing = poolctl("study", "landmarks", tmp_path / "no.xml", *test, "-o", study)
    assert "no such file" in missing.err
    assert not study.exists()


def test_a_privacy_study_can_be_tried(tmp_path: Path, poolctl: Run) -> None:
    told = poolctl("study", "privacy", "--drawn", "--quick", "--dry-run", "-o", tmp_path / "out")
    assert told.code == 0, told.err
    assert "would do " in told.out
    assert "dualview" in told.out
    assert not (tmp_path / "out").exists()
    poolctl("study", "privacy", "-o", tmp_path / "out").fails(2, "give data, or --drawn")


# A network that is trained once on a few samples learns little: this is about the study.
TINY = (
    "--set=folds=2", "--set=seeds=1", "--set=passes=1",
    *(word for setting in ("individual_passes=1", "drawn_persons=4", "frames=12", "amount=1",
                        "fedavg.epochs=1", "adaptive.epochs=1") for word in ("--set", setting)),
)  # fmt: skip


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_a_study_has_its_tables_and_can_be_repeated(
    tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    persons = ("--set=protocols=persons",)
    arguments = ("study", "gaze", "--drawn", "--quick", *TINY, *persons, "--workers", 1)
    assert poolctl(*arguments, "-o", study, "--json").data["runs"] == {"done": 13, "kept": 0}
    lines = read(study / "methods.csv")
    assert [line["method"] for line in lines] == 2 * [
        "individual", "data-centre", "fedavg", "adaptive",
    ]  # fmt: skip
    for line in lines:
        assert 0 < float(line["error_deg"]) < 90
        assert int(line["passes"]) == 1
        assert float(line["best_person_deg"]) <= float(line["worst_person_deg"])
    assert len(read(study / "matrix.csv")) == 16
    assert (study / "persons.png").stat().st_size > 1000
    assert "| person-independent | adaptive |" in (study / "table.md").read_text()

    assert poolctl(*arguments, "-o", study, "--json").data["runs"] == {"done": 0, "kept": 13}
    repeat = json.loads((study / "study.json").read_text())["repeat"]
    assert repeat[:5] == ["poolctl", "study", "gaze", "--drawn", "--quick"]
    monkeypatch.chdir(study)
    assert len(poolctl(*repeat[1:], "--dry-run", "--json").data["runs"]) == 13
    assert {"drawn.frames=12", "passes=1"} < set(repeat)


def test_a_plan_of_gaze_is_told_and_nothing_written(tmp_path: Path, poolctl: Run) -> None:
    study = tmp_path / "study"
    arguments = ("study", "gaze", "--drawn", "--quick", "-o", study, "--dry-run")
    assert "independent" in poolctl(*arguments).out
    tuned = poolctl(*arguments, "--json").data
    paper = poolctl("study", "gaze-paper", *arguments[2:], "--json").data
    assert tuned["runs"] == paper["runs"]
    training = paper["settings"]["training"].values()
    # The paper sums the losses of yaw and pitch; ours is their mean.
    assert {method["learning_rate"] for method in training} == {2e-5}
    tuning = poolctl("study", "gaze-tuning", *arguments[2:], "--json").data["runs"]
    assert all(run["seed"] >= 1000 for run in tuning)
    assert not study.exists()


OWN = """\
title = "Drawn faces"

[settings]
counts = { value = [1, 2], ge = 1, text = "Numbers of pictures." }

[[steps]]
name = "drawn"
command = "poolctl dataset draw faces {folder}/{count} --set images={count}"
factors = { count = "counts" }
measures = ["images"]

[[tables]]
name = "drawings"
sql = "SELECT count, images FROM drawn"

[[verdicts]]
sql = "SELECT * FROM drawings"
bound = "images = count"
outcomes = ["are", "are not"]
text = "{count} {verdict} drawn"
"""


def test_a_study_of_ones_own_is_a_file(
    tmp_path: Path, poolctl: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(OWN)
    arguments = ("study", "own.toml", "-o", "study", "--set=counts=2")
    assert poolctl(*arguments, "--json").data["findings"] == ["2 are drawn"]
    assert Path("study/drawings.csv").read_text() == "count,images\n2,2\n"
    assert poolctl(*arguments, "--json").data["runs"] == {"done": 0, "kept": 1}
    assert json.loads(Path("study/study.json").read_text())["repeat"][2:] == [
        str(tmp_path / "own.toml"), "-o", "again/", "--set", "counts=2",
    ]  # fmt: skip
    poolctl(*arguments, "faces.xml").fails(2, "takes no data")
    poolctl(*arguments, "--set=counts=0").fails(2, "counts")
