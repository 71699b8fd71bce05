"""``poolctl study``: its results, interruptions, and refusals."""

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
    return ("--settings", path, "--set", "orders=0", "--set", "resamples=20")


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Drawn faces of two persons a picture file, and test faces."""
    from site_agent.datasets.synthetic.sites import write_face_dataset

    folder = tmp_path_factory.mktemp("faces")
    return {
        name: write_face_dataset(
            folder / name, images, images, seed, image_size=(160, 160), first_person=100 * seed
        )
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
    arguments = ("study", "landmarks", faces["all"], "--set", test, "--set", "sites=2", *quick)
    records = study / "runs"
    process = start_process(*arguments, "-o", study)
    wait_until(lambda: records.is_dir() and len(list(records.glob("*.json"))) >= 3)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=540)
    assert process.returncode == 130
    assert "Finished runs are kept; run the same command again" in told
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


@pytest.mark.slow
def test_a_study_of_detectors_writes_the_papers_table(
    shared_data: Path, tmp_path: Path, poolctl: Run
) -> None:
    folder = shared_data / "dlib_faces"
    training, testing = folder / "training.xml", folder / "testing.xml"
    study = tmp_path / "study"
    arguments = ("study", "detectors", training, "-o", study)
    settings = (
        f"test={testing}",
        "sites=2",
        "epsilon=2",
        "target_size_px=40x40",
        "orders=0",
        "resamples=20",
        "unions=false",
    )
    quick = [word for setting in settings for word in ("--set", setting)]
    assert poolctl(*arguments, *quick, "--json").data["runs"]["kept"] == 0
    rows = read_table(study)
    assert list(rows)[-1] == "COM(P1+P2+P2)"
    text = (study / "table.md").read_text()
    assert "| Dataset | Recall | Precision |" in text
    assert f"| training-P1 | {float(rows['P1']['recall']):.3f} |" in text


@pytest.mark.slow
def test_workers_die_with_a_killed_study(faces: dict[str, Path], tmp_path: Path) -> None:
    study = tmp_path / "study"
    settings = ("--set", f"test={faces['test']}", "--set", "sites=2")
    arguments = ("study", "landmarks", faces["all"], *settings)
    process = start_process(*arguments, "-o", study, "--workers", "2", "--no-progress")

    def children() -> list[int]:
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        return [int(word) for word in listed.read_text().split()]

    wait_until(lambda: len(children()) == 2)
    workers = children()
    process.kill()
    process.communicate()
    wait_until(lambda: not any(Path(f"/proc/{worker}/exe").exists() for worker in workers))


def test_a_plan_is_told_and_nothing_written(
    faces: dict[str, Path], tmp_path: Path, poolctl: Run
) -> None:
    study = tmp_path / "study"
    settings = ("--set", f"test={faces['test']}", "--set", "sites=2")
    arguments = ("study", "landmarks", faces["all"], *settings, "-o", study, "--dry-run")
    plan = poolctl(*arguments, "--json").data
    assert "CASCADE(P1+P2)" in [run["model"] for run in plan["runs"]]
    assert f"would do {len(plan['runs'])} runs" in poolctl(*arguments).out
    assert not study.exists()


@pytest.mark.slow
def test_a_failed_step_is_code_5(
    faces: dict[str, Path], quick: tuple[object, ...], tmp_path: Path, poolctl: Run
) -> None:
    text = faces["all"].read_text()
    lone = faces["all"].with_name("lone.xml")
    first = text.index("</image>") + len("</image>")
    lone.write_text(text[:first] + text[text.rindex("</images>") :])
    arguments = ("study", "landmarks", faces["all"], lone, "--set", f"test={faces['test']}", *quick)
    shown = poolctl(*arguments, "-o", tmp_path / "study", "--json")
    assert (shown.code, shown.error["code"]) == (5, "study_incomplete")
    assert "train_P2: " in shown.error["message"]
    assert "run it again" in shown.error["hint"]
    assert (tmp_path / "study" / "table.csv").is_file()


def test_mistakes_are_told_before_anything_is_done(
    faces: dict[str, Path], tmp_path: Path, poolctl: Run
) -> None:
    study = tmp_path / "study"
    start = ("study", "landmarks", faces["all"], "-o", study, "--json")
    test = ("--set", f"test={faces['test']}")
    for arguments, complaint in (
        ((*test, "--set", "sites=99"), "sites is 99"),
        ((*test, "--set", "sites=2", "--set", "weights=1,2,3"), "weights: 3 for 2 parts"),
        ((), "expected annotations, as in: --set test=test.xml"),
        (("--drawn",), "give data, or --drawn without any"),
        ((*test, "--quick"), "no smaller variant"),
    ):
        told = poolctl(*start, *arguments)
        assert told.code == 2
        assert complaint in told.error["message"]
    missing = poolctl("study", "landmarks", tmp_path / "no.xml", *test, "-o", study)
    assert "no such file" in missing.err
    assert not study.exists()


def test_a_privacy_study_can_be_tried(tmp_path: Path, poolctl: Run) -> None:
    told = poolctl("study", "privacy", "--drawn", "--quick", "--dry-run", "-o", tmp_path / "out")
    assert told.code == 0, told.err
    assert "would do " in told.out
    assert "dualview" in told.out
    assert not (tmp_path / "out").exists()
    refused = poolctl("study", "privacy", "-o", tmp_path / "out")
    assert refused.code == 2
    assert "give data, or --drawn" in refused.err
