"""``poolctl train network cross-encoder``, ``gaze-head`` and ``study cross-encoder``."""

import signal
from pathlib import Path

import pytest

from site_agent.datasets.synthetic.eye_patches.dataset import RenderSettings, write_eye_dataset
from site_agent.datasets.synthetic.eye_patches.persons import Skews
from tests.cli.conftest import Run, start_process
from tests.waiting import wait_until

TINY = (
    "--set", "methods=cross-encoder,random,supervised,mean-gaze",
    "--set", "seeds=2", "--set", "rounds=1", "--set", "left_out=1",
    "--set", "shots=5,10", "--workers", 1,
    *(word for setting in ("drawn_persons=3", "frames=20", "draws=2", "supervised_steps=2")
      for word in ("--set", setting)),
)  # fmt: skip


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cross") / "eyes"
    settings = RenderSettings(
        persons=2, frames_per_person=20, sessions=(2, 2), both_eyes=True, skews=Skews(amount=1)
    )
    write_eye_dataset(folder, settings)
    return folder


def test_from_eyes_without_labels_to_a_gaze_network(
    poolctl: Run, eyes: Path, tmp_path: Path
) -> None:
    encoder, mine = tmp_path / "encoder.safetensors", tmp_path / "mine.safetensors"
    arguments = (
        "train",
        "network",
        "cross-encoder",
        eyes,
        "-o",
        encoder,
        "--set",
        "persons=p00",
        "--set",
        "epochs=2",
    )
    shown = poolctl(*arguments)
    assert shown.code == 0, shown.err
    assert "cross-encoder-small, 40 patches of 1 person, 2 epochs" in shown.out
    head = (
        "train",
        "network",
        "gaze-head",
        eyes,
        "--base",
        encoder,
        "--set",
        "persons=p01",
        "-o",
        mine,
    )
    shown = poolctl(*head, "--set", "shots=10")
    assert shown.code == 0, shown.err
    assert " degrees, " in shown.out.splitlines()[0]
    assert "PCA-12" in shown.out
    # A gaze network like any other: and its shots are known as what it has learned.
    tested = poolctl("evaluate", mine, eyes, "--persons", "p01", "--json")
    assert 0 < tested.data["items"][0]["mean_error_deg"] < 90
    assert tested.data["items"][0]["training_images"] == 10
    for refused in (
        poolctl("evaluate", encoder, eyes),
        poolctl("predict", eyes, "--network", encoder),
    ):
        assert refused.code != 0
        assert "cross-encoder-small is a representation network" in refused.err


@pytest.mark.slow
def test_a_simulation_of_rounds_scores_heads(poolctl: Run, eyes: Path, tmp_path: Path) -> None:
    arguments = (
        "federated",
        "simulate",
        eyes,
        "--architecture",
        "cross-encoder-small",
        "--rounds",
        1,
    )
    shown = poolctl(*arguments, "--method", "fedavg", "-o", tmp_path / "run")
    assert shown.code == 0, shown.err
    assert "fedavg: angular error after at most 100 shots" in shown.out.splitlines()[0]
    assert "mean gaze of the shots" in shown.out


@pytest.mark.slow
def test_an_interrupted_study_goes_on(poolctl: Run, tmp_path: Path) -> None:
    study = tmp_path / "study"
    arguments = ("study", "cross-encoder", "--drawn", "--quick", *TINY, "-o", study)
    process = start_process(*arguments)
    wait_until(lambda: len(list((study / "runs").glob("*.json"))) >= 2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=540)
    assert process.returncode == 130
    assert "run the same command again" in told
    answer = poolctl(*arguments, "--json").data
    assert answer["runs"]["kept"] >= 2
    assert answer["runs"]["kept"] + answer["runs"]["done"] == 8
    assert answer["findings"][0].startswith("At 10 shots the federated cross-encoder")
    shown = poolctl(*arguments)
    assert answer["findings"][0].startswith(shown.out.splitlines()[0])
    assert (study / "few_shot.png").stat().st_size > 10_000


def test_what_a_study_refuses(poolctl: Run, eyes: Path, tmp_path: Path) -> None:
    study = tmp_path / "study"
    assert poolctl("study", "cross-encoder", "-o", study).code == 2
    few = poolctl("study", "cross-encoder", eyes, "-o", study, "--json")
    assert "2 persons; expected at least 5" in few.error["message"]
    plan = poolctl(
        "study", "cross-encoder", "--drawn", "--quick", "-o", study, "--dry-run", "--json"
    )
    assert len(plan.data["runs"]) == 30
    study.mkdir(exist_ok=True)
    (study / "study.json").write_text('{"schema": "poolctl-gaze-study/1"}')
    other = poolctl("study", "cross-encoder", "--drawn", "--quick", *TINY, "-o", study, "--json")
    assert "holds another study" in other.error["message"]
