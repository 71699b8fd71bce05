"""``poolctl privacy probe``."""

import json
from pathlib import Path

import numpy as np
import pytest

from aggregators.formats import file_digest, write_model
from aggregators.methods.networks.round_files import write_network_contribution
from aggregators.methods.refitting import RefitSettings, contribute, write_contribution
from aggregators.methods.round_options import LocalTraining
from aggregators.models import NetworkContribution, StateDict
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
        refused = poolctl(*arguments, *more, "--json")
        assert (refused.code, refused.error["code"]) == (2, "usage")
        assert problem in refused.error["message"]


def test_networks_are_no_models_of_faces(poolctl: Run, tmp_path: Path) -> None:
    eyes = tmp_path / "eyes"
    draw = ("dataset", "draw", "eyes")
    few = ("--set", "frames_per_person=3")
    poolctl(*draw, eyes, "--set", "persons=1", *few)
    arguments = ("privacy", "probe", "a.safetensors", "--data", eyes, "--holdout", eyes)
    refused = poolctl(*arguments, "--mode", "sub-model", "-o", tmp_path / "out", "--json")
    assert (refused.code, refused.error["code"]) == (2, "usage")
    assert "--mode update or secure-sum" in refused.error["message"]
    network = tmp_path / "a.safetensors"
    poolctl("federated", "init", "-o", network)
    others = tmp_path / "others"
    poolctl(*draw, others, "--set", "persons=2", "--set", "first_person=9", *few)
    arguments = ("privacy", "probe", network, "--base", network, "--mode", "update", "--data", eyes)
    refused = poolctl(
        *arguments, "--holdout", tmp_path / "others", "-o", tmp_path / "out", "--json"
    )
    assert "not a contribution of this --mode" in refused.error["message"]
    assert "'poolctl env'" in refused.error["hint"]


def draw_faces(poolctl: Run) -> None:
    for name, first in (("mine", 0), ("others", 60)):
        made = poolctl(
            "dataset", "draw", "faces", name, "--set", "images=24", "--set", "persons=8",
            "--set", f"first_person={first}", "--set", "size=200x200",
        )  # fmt: skip
        assert made.code == 0, made.err


def draw_eyes(poolctl: Run) -> None:
    for name, first in (("eyes", 0), ("eyes-others", 50), ("eyes-public", 90)):
        made = poolctl(
            "dataset", "draw", "eyes", name, "--set", "persons=4",
            "--set", "frames_per_person=60",
            "--set", f"first_person={first}", "--set", "sessions=1,1",
        )  # fmt: skip
        assert made.code == 0, made.err


def contribute_networks() -> None:
    """Write a base, an update of all persons, and the sum of one update a person."""
    from site_agent.datasets.gaze.check import open_gaze
    from site_agent.federated.local_training import train_contribution
    from site_agent.networks.modules import new_network

    network, data = new_network("gaze-lenet", 5), open_gaze(Path("eyes"))
    write_model(network, Path("base.safetensors"))
    digest = file_digest(Path("base.safetensors"))
    training = LocalTraining(epochs=5, batch_size=16)

    def train(name: str, persons: list[str]) -> NetworkContribution:
        return train_contribution(
            network, digest, data.read(persons), training, site=name, round_number=1
        )

    write_network_contribution(train("all", list(data.persons)), Path("update.contribution"))
    single = [train(name, [name]) for name in data.persons]
    means = {
        name: np.mean(
            [contribution.network.tensors[name] for contribution in single],
            axis=0,
            dtype=np.float32,
        )
        for name in network.infos
    }
    summed = NetworkContribution(
        StateDict(means, dict(network.infos)), "differences",
        sum(contribution.samples for contribution in single), digest, single[0].settings,
    )  # fmt: skip
    write_network_contribution(summed, Path("sum.contribution"))


@pytest.mark.slow
def test_all_modes_end_to_end(poolctl: Run) -> None:
    from site_agent.datasets.imglab_xml import read_imglab_xml
    from site_agent.refinement import load_site, read_base

    draw_faces(poolctl)
    draw_eyes(poolctl)
    assert poolctl("train", "hog-svm", "mine/faces.xml", "-o", "mine.svm").code == 0
    small = ("--set", "num_trees_per_cascade_level=30", "--set", "cascade_depth=4")
    assert poolctl("train", "ert", "mine/faces.xml", "-o", "mine.dat", *small).code == 0
    faces = load_site(read_imglab_xml(Path("mine/faces.xml")), 68).faces
    leaves = contribute(read_base(Path("mine.dat")), faces, RefitSettings(starts=5))
    write_contribution(leaves, Path("leaf.contribution"))
    contribute_networks()
    gaze = ("--data", "eyes", "--holdout", "eyes-others", "--base", "base.safetensors")
    seconds = 0.0
    for artifact, mode, more in (
        ("mine.svm", "sub-model", FACES),
        ("mine.dat", "sub-model", FACES),
        ("leaf.contribution", "leaf-sums", (*FACES, "--base", "mine.dat")),
        ("update.contribution", "update", (*gaze, "--reference", "eyes-public")),
        ("sum.contribution", "secure-sum", gaze),
    ):
        folder = Path(f"receipt-{artifact}")
        arguments = ("privacy", "probe", artifact, "--mode", mode, *more, "-o", folder, "--json")
        receipt = poolctl(*arguments).data["receipt"]
        seconds += receipt["seconds"]
        assert receipt["mode"] == mode
        assert json.loads((folder / "receipt.json").read_text())["attacks"] == receipt["attacks"]
        assert "<title>Privacy receipt" in (folder / "receipt.html").read_text()
        assert poolctl(*arguments).code == 7, "receipts are there, and not replaced"
        attacks = {attack["name"]: attack for attack in receipt["attacks"]}
        if mode == "update":
            assert attacks["membership: loss now"]["control"]["value"] > 0.9
            assert attacks["re-identification by updates"]["control"]["value"] > 0.9
    print(f"all modes: {seconds:.0f} s")
