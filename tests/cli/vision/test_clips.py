"""Evaluating and predicting with a saliency network, and rounds with it on one machine."""

import csv
from collections import Counter
from pathlib import Path

import av
import pytest

from aggregators.formats import write_model
from site_agent.datasets.egocentric import open_egocentric
from site_agent.networks.modules import new_network
from tests.cli.conftest import Run, run_here


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli-clips") / "clips"
    arguments = ("--set", "persons=2", "--set", "videos=5", "--set", "seconds=1.5")
    assert run_here("dataset", "draw", "clips", folder, *arguments).code == 0
    splits = Counter(clip.split for clip in open_egocentric(folder).clips)
    assert splits == {"train": 6, "validation": 2, "test": 2}
    return folder


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "look.safetensors"
    write_model(new_network("glc-tiny"), path)
    return path


def test_maps_are_scored_beside_those_that_know_no_picture(
    poolctl: Run, clips: Path, network: Path
) -> None:
    shown = poolctl("evaluate", network, clips)
    assert shown.code == 0, shown.err
    assert "maps that know no picture" in shown.out.splitlines()[0]
    evaluated = poolctl("evaluate", network, clips, "--persons", "P02", "--json").data["items"][0]
    assert evaluated["scores"]["oracle"]["f1"] > evaluated["scores"]["network"]["f1"]
    assert list(evaluated["f1_by_person"]) == ["P02"]
    refused = poolctl("evaluate", network, clips, "--save")
    assert refused.code == 2
    assert "not for clips" in refused.err


def test_videos_are_written_with_the_maps_in_them(
    poolctl: Run, clips: Path, network: Path, tmp_path: Path
) -> None:
    video = clips / "videos" / "P01-04.mp4"
    arguments = ["predict", video, "--network", network, "-o", tmp_path / "looks.csv"]
    shown = poolctl(*arguments, "--pictures", tmp_path / "seen")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[0] == "looked at 36 frames of 1 video"
    with av.open(str(tmp_path / "seen" / "P01-04.mp4")) as made:
        assert sum(1 for _ in made.decode(video=0)) == 36
    with (tmp_path / "looks.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["frame"] for row in rows] == [str(number) for number in range(36)]
    assert all(0 < float(row["x"]) < 1 and 0 < float(row["y"]) < 1 for row in rows)
    again = poolctl(*arguments, "--pictures", tmp_path / "seen")
    assert again.code == 7
    assert "--force" in again.err


@pytest.mark.slow
def test_personalised_rounds_of_clips_are_simulated(
    poolctl: Run, clips: Path, tmp_path: Path
) -> None:
    arguments = ["federated", "simulate", clips, "--architecture", "glc-tiny", "--rounds", "2"]
    arguments += ["--option", "optimiser=adamw", "--option", "learning_rate=0.001"]
    arguments += ["--method", "fedcpf", "-o", tmp_path / "run"]
    shown = poolctl(*arguments)
    assert shown.code == 0, shown.err
    assert shown.out.startswith("fedcpf: F1 ")
    assert "than the person-mean map" in shown.out.splitlines()[0]
    again = poolctl(*arguments, "--json").data
    assert again["measure"]["name"] == "F1"
    assert set(again["methods"][0]["rounds"][-1]["scores"]) == {"P01", "P02"}
    assert (tmp_path / "run" / "fedcpf" / "personal" / "P01").is_dir()
    wrong = poolctl("federated", "simulate", clips, "--method", "fedavg", "--rounds", "1", "-o",
                    tmp_path / "other")  # fmt: skip
    assert "holds egocentric clips; the network is trained with eye patches" in wrong.err
