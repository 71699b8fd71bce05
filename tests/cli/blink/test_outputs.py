"""``poolctl blink`` with trials, labels and outputs on request."""

from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Fifty seconds with a closure 200 ms after each of five CS."""
    times_s = np.arange(3000) / 60.0
    ear = np.full(3000, 0.30) + np.random.default_rng(0).normal(0.0, 0.003, 3000)
    for onset_s in range(5, 50, 10):
        ear -= 0.22 * np.exp(-(((times_s - onset_s - 0.42) / 0.09) ** 2))
    path = tmp_path / "ear.csv"
    lines = [f"{time_s:.6f},{value:.6f}" for time_s, value in zip(times_s, ear, strict=True)]
    path.write_text("timestamp_s,ear\n" + "\n".join(lines) + "\n")
    rows = [f"{onset_s},{onset_s + 0.45}" for onset_s in range(5, 50, 10)]
    (tmp_path / "trials.csv").write_text("cs_onset_s,us_onset_s\n" + "\n".join(rows) + "\n")
    return path


def test_trials_and_labels(trace: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("blink", trace, "--trials", tmp_path / "trials.csv")
    data = poolctl(*arguments, "-o", tmp_path / "out", "--json").data
    assert data["conditioning"]["n_cr"] == 5
    assert {"trials", "report", "session", "datapackage"} <= set(data["files"])
    strict = poolctl(*arguments, "-o", tmp_path / "two", "--set", "cr_threshold=2", "--json").data
    assert strict["conditioning"]["n_cr"] == 0
    labels = ("--set", "subject=01", "--set", "labels.start=2024-05-06T07:08:00+00:00")
    named = poolctl(*arguments, "-o", tmp_path / "bids", *labels, "--json").data
    assert named["files"]["report"].endswith("beh/sub-01_task-ebc_desc-blink_report.html")
    assert (tmp_path / "bids" / "dataset_description.json").exists()


def test_what_does_not_do(trace: Path, tmp_path: Path, poolctl: Run) -> None:
    arguments = ("blink", trace, "-o", tmp_path / "out", "--json")
    assert poolctl(*arguments, "--trials", tmp_path / "none.csv").code == 4
    assert poolctl(*arguments, "--trials", trace).code == 5
    assert poolctl(*arguments, "--set", "start=yesterday").code == 2
    assert poolctl(*arguments, "--set", "subject=a_b").code != 0
    assert not (tmp_path / "out").exists()
