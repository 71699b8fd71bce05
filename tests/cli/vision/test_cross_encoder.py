"""``poolctl train cross-encoder``, ``train gaze-head`` and ``study cross-encoder``."""

from __future__ import annotations

from pathlib import Path

import pytest

from site_agent.datasets.synthetic.eye_patches import RenderSettings, Skews, write_eye_dataset
from tests.cli.conftest import Run

TINY = (
    "--methods", "cross-encoder,random,supervised,mean-gaze",
    "--seeds", 2, "--rounds", 1, "--left-out", 1, "--shots", "5,10", "--workers", 1,
    *(word for each in ("drawn_persons=3", "frames=20", "draws=2", "supervised_steps=2")
      for word in ("--set", each)),
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
    words = ("train", "cross-encoder", eyes, "-o", encoder, "--persons", "p00", "--epochs", 2)
    shown = poolctl(*words)
    assert shown.code == 0, shown.err
    assert "cross-encoder-small, 40 patches of 1 person, 2 epochs" in shown.out
    head = ("train", "gaze-head", eyes, "--encoder", encoder, "--persons", "p01", "-o", mine)
    shown = poolctl(*head, "--shots", 10)
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
