"""Gaze networks from training to the pool: train, evaluate, predict, upload, find."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Run, run_here
from tests.site_agent.live_pool import LivePool

SHORT = ("--set=epochs=2", "--set=threads=1", "--set=device=cpu")


@pytest.fixture
def _logged_in(pool: LivePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL_ENDPOINT", pool.url)
    monkeypatch.setenv("POOL_TOKEN", pool.tokens["site-a"])


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "eyes"
    settings = ("persons=3", "frames_per_person=24", "amount=1", "sessions=2,3")
    arguments = [word for setting in settings for word in ("--set", setting)]
    drawn = run_here("dataset", "draw", "eyes", folder, *arguments, "-q")
    assert drawn.code == 0, drawn.err
    return folder


@pytest.fixture(scope="module")
def network(eyes: Path) -> Path:
    file = eyes.parent / "gaze.safetensors"
    trained = run_here("train", "network", "gaze", eyes, "-o", file, *SHORT, "-q")
    assert (trained.code, trained.out) == (0, f"{file}\n"), trained.err
    return file


def test_a_training_replaces_a_file_only_when_asked_to(
    eyes: Path, network: Path, tmp_path: Path, poolctl: Run
) -> None:
    arguments = ("train", "network", "gaze", eyes, "-o", network, *SHORT)
    made = network.read_bytes()
    assert poolctl(*arguments, "--json").error["code"] == "file_exists"
    again = poolctl(*arguments, "--force")
    assert again.code == 0, again.err
    assert "samples of held-out sessions" in again.out
    assert network.read_bytes() == made
    same = ("--base", network, "--force", "--json")
    assert poolctl(*arguments, *same).error["code"] == "usage", "the base is an input"
    other = ("train", "network", "gaze", eyes, "-o", tmp_path / "a.safetensors", *SHORT, "--json")
    assert poolctl(*other, "--set=architecture=lenet").error["code"] == "invalid_input"
    assert poolctl(*other, "--set=validation=1").error["code"] == "invalid_input"
    assert poolctl("train", "network", "gaze", tmp_path / "none", "--json").code == 4


@pytest.mark.usefixtures("_logged_in")
def test_errors_are_measured_kept_and_sent(
    eyes: Path, network: Path, tmp_path: Path, poolctl: Run
) -> None:
    held = ("evaluate", network, eyes, "--sessions", "held-out", "--set=resamples=20")
    shown = poolctl(*held, "--save", "--output", tmp_path / "scores")
    assert re.match(
        r"\S+ is off by [\d.]+ degrees, the constant mean gaze by [\d.]+\.\n", shown.out
    )
    assert "was trained on other sessions of p00, p01, p02" in shown.err
    kept = json.loads(Path(f"{network}.evaluation.json").read_text())
    assert kept["training_images"] == 0
    uploaded = poolctl("upload", network, "--name", "gaze", "--json").data["version"]
    assert uploaded["labels"]["subjects"] == "3"
    assert uploaded["metrics"]["mean_error_deg"] == kept["metrics"]["mean_error_deg"]
    posted = poolctl(*held, "--post", "--dataset-name", "eyes-2026", "--json").data
    assert posted["posted"][0]["protocol"] == "angular error"
    assert "p01" not in json.dumps(posted["posted"])
    [item] = posted["items"]
    assert item["worst_person_error_deg"] == max(
        person["mean_error_deg"] for person in item["persons"]
    )
    one = poolctl("evaluate", network, eyes, "--persons", "p01", "--json").data["items"][0]
    assert [person["person"] for person in one["persons"]] == ["p01"]
    assert one["training_images"] > 0
    for wrong in (("--sessions", "s9"), ("--persons", "p9"), ("--set=normaliser=box",)):
        assert poolctl("evaluate", network, eyes, *wrong, "--json").code == 2


def test_gaze_data_are_evaluated(eyes: Path, network: Path, poolctl: Run) -> None:
    for arguments in (("predict", eyes), ("predict", eyes, "--network", network)):
        assert "'poolctl evaluate' takes" in poolctl(*arguments).err
