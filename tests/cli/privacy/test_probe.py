"""``poolctl privacy probe``."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

FACES = ("--data", "mine/faces.xml", "--holdout", "others/faces.xml", "--person-pattern", "n-(.*)_")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_usage_is_checked_before_work(poolctl: Run) -> None:
    arguments = ("privacy", "probe", "a.contribution", "--data", "m", "--holdout", "o", "-o", "out")
    for more, problem in (
        (("--mode", "update"), "--mode update: give the --base"),
        (("--mode", "sub-model", "--reference", "p"), "--reference and --long"),
        (("--mode", "update", "--persons", "p.csv"), "go with faces"),
        (("--mode", "sub-model", "--long"), "--reference and --long"),
    ):
        poolctl(*arguments, *more, "--json").fails(2, "usage", problem)


def test_networks_are_no_models_of_faces(poolctl: Run, tmp_path: Path) -> None:
    eyes = tmp_path / "eyes"
    draw = ("dataset", "draw", "eyes")
    few = ("--set=frames_per_person=3",)
    poolctl(*draw, eyes, "--set=persons=1", *few)
    arguments = ("privacy", "probe", "a.safetensors", "--data", eyes, "--holdout", eyes)
    poolctl(*arguments, "--mode", "sub-model", "-o", tmp_path / "out", "--json").fails(
        2, "usage", "--mode update or secure-sum"
    )
    network = tmp_path / "a.safetensors"
    poolctl("federated", "init", "-o", network)
    others = tmp_path / "others"
    poolctl(*draw, others, "--set=persons=2", "--set=first_person=9", *few)
    arguments = ("privacy", "probe", network, "--base", network, "--mode", "update", "--data", eyes)
    refused = poolctl(
        *arguments, "--holdout", tmp_path / "others", "-o", tmp_path / "out", "--json"
    )
    assert "not a contribution of this --mode" in refused.error["message"]
    assert "'poolctl env'" in refused.error["hint"]


@pytest.mark.slow
def test_receipts_of_a_model_and_of_leaf_sums_are_kept(poolctl: Run) -> None:
    for name, first in (("mine", 0), ("others", 60)):
        settings = ("images=24", "persons=8", f"first_person={first}", "size=200x200")
        chosen = [f"--set={setting}" for setting in settings]
        assert poolctl("dataset", "draw", "faces", name, *chosen).code == 0
    small = ("--set=num_trees_per_cascade_level=30", "--set=cascade_depth=4")
    assert poolctl("train", "ert", "mine/faces.xml", "-o", "mine.dat", *small).code == 0
    refining = ("refine", "mine/faces.xml", "--base", "mine.dat", "-o", "refined.dat")
    assert poolctl(*refining).code == 0
    [leaves] = Path("refined.dat.contributions").iterdir()
    for artifact, mode, base in (
        ("mine.dat", "sub-model", ()),
        (leaves, "leaf-sums", ("--base", "mine.dat")),
    ):
        arguments = ("privacy", "probe", artifact, "--mode", mode, *FACES, *base, "-o", mode)
        receipt = poolctl(*arguments, "--json").data["receipt"]
        assert receipt["mode"] == mode
        kept = json.loads(Path(mode, "receipt.json").read_text())
        assert kept["attacks"] == receipt["attacks"]
        assert "<title>Privacy receipt" in Path(mode, "receipt.html").read_text()
        assert poolctl(*arguments).code == 7, "receipts are there, and not replaced"
