"""A privacy study of a few drawn persons: its tables, and that it goes on where it was."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from site_agent.settings import with_values
from site_agent.studies.engine import Conduct, StudyResults, hold_study
from site_agent.studies.protocol_file import read_protocol

PROTOCOL = read_protocol("privacy")
SMALL: dict[str, Any] = {
    "victims": 3, "public": 4, "outsiders": 2, "judges": 3, "train_samples": 8,
    "other_samples": 4, "session_samples": 3, "judged_samples": 4, "rounds": 1, "epochs": 1,
    "seeds": 1, "sweep": [1, 3], "steps": 2, "restarts": 2,
}  # fmt: skip


def conduct(folder: Path) -> StudyResults:
    settings = with_values(PROTOCOL.settings, SMALL)
    return hold_study(PROTOCOL, folder, None, settings, Conduct(workers="1", repeat=["poolctl"]))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("privacy") / "study"
    assert conduct(folder).kept == 0
    return folder


def test_one_site_in_a_sum_leaks_as_plain_and_all_sites_as_secure(study: Path) -> None:
    def rows(key: str) -> Any:
        return json.loads((study / "runs" / f"{key}.json").read_text())["result"]

    ways = {"plain": "leaked_seed0_plain", "secure": "leaked_seed0_secure"}
    ways |= {"one": "summed_seed0_sites1", "all": "summed_seed0_sites3"}
    updates = {name: rows(f"{key}_updates")[0] for name, key in ways.items()}
    assert updates["one"] == updates["plain"]
    assert updates["all"] == updates["secure"]
    assert updates["secure"]["matched"] == pytest.approx(1 / 3, abs=0.1)
    # One round: its result is the final network.
    assert rows("leaked_seed0_secure_samples") == rows("leaked_seed0_floor_samples")
    assert rows("leaked_seed0_none_samples")[0]["auc"] == 0.5
    controls = {(row["control"], row["attack"]): row["auc"] for row in rows("checked_seed0")}
    assert controls["random labels", "change"] == pytest.approx(0.5, abs=0.05)
    assert controls["overfitted", "loss now"] > 0.9
    with np.load(study / "pictures" / "0.plain.npz") as made:
        assert made["pictures"].shape == (3, 2, 36, 60)


def test_the_tables_are_there_and_the_sheet(study: Path) -> None:
    text = (study / "table.md").read_text()
    assert text.startswith("Single updates give ")
    for leak in ("plain", "secure", "floor", "none"):
        assert f"| {leak} |" in text
    assert (study / "main.csv").read_text().count("\n") == 7
    attacks = list(csv.DictReader((study / "membership.csv").read_text().splitlines()))
    assert {row["chance"] for row in attacks} == {"0.500"}
    for row in attacks[:-2]:
        assert row["needs"].startswith("base, "), "as the receipt's table of attacks says"
    with Image.open(study / "sheets" / "pictures.png") as sheet:
        assert sheet.height > 3 * 72


@pytest.mark.slow
def test_finished_probes_are_kept(study: Path) -> None:
    before = (study / "table.md").read_bytes()
    (study / "runs" / "leaked_seed0_plain_samples.json").unlink()
    again = conduct(study)
    assert (again.kept, len(again.results)) == (25, 26)
    assert again.files[0].read_bytes() == before


@pytest.mark.slow
def test_dualview_as_published_has_a_row_for_each_ablation_size_and_round(tmp_path: Path) -> None:
    protocol = read_protocol("dualview")
    small = {name: value for name, value in SMALL.items() if hasattr(protocol.settings, name)}
    small |= {"sizes": [4], "gan_steps": 2, "rounds": 2}
    settings = with_values(protocol.settings, small)
    study = hold_study(protocol, tmp_path / "out", None, settings, Conduct(workers="1"))
    assert not study.failed
    text = (tmp_path / "out" / "table.md").read_text()
    assert text.startswith("DualView as published finds ")
    for row in ("as published", "last round only", "loss: gaze only", "| 4 |", "all rounds"):
        assert row in text
    with Image.open(tmp_path / "out" / "sheets" / "pictures.png") as sheet:
        assert sheet.height > 3 * 72
