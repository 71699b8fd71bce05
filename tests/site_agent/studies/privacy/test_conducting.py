"""A privacy study of a few drawn persons: its tables, and that it goes on where it was."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from site_agent.errors import InvalidInputError
from site_agent.studies.privacy.conducting import conduct_privacy_study
from site_agent.studies.privacy.persons import PrivacySettings
from site_agent.studies.runs import Conduct, StudyResults

SMALL = PrivacySettings(
    victims=3, public=4, outsiders=2, judges=3, train_samples=8, other_samples=4,
    session_samples=3, judged_samples=4, rounds=1, epochs=1, seeds=1, sweep=(1, 3), steps=2,
    restarts=2,
)  # fmt: skip


def conduct(folder: Path, settings: PrivacySettings) -> StudyResults:
    return conduct_privacy_study(folder, None, settings, Conduct(workers=1, repeat=["poolctl"]))


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("privacy") / "study"
    assert conduct(folder, SMALL).kept == 0
    return folder


def test_one_site_in_a_sum_leaks_as_plain_and_all_sites_as_secure(study: Path) -> None:
    def found(key: str) -> Any:
        return json.loads((study / "runs" / f"0.{key}.json").read_text())["result"]

    ways = ("plain", "secure", "floor", "none", "sum 1", "sum 3")
    updates = {way: found(f"{way}.updates") for way in ways}
    samples = {way: found(f"{way}.samples")["samples"] for way in ways}
    assert updates["sum 1"]["reidentified"] == updates["plain"]["reidentified"]
    assert updates["sum 3"]["reidentified"] == updates["secure"]["reidentified"]
    assert updates["secure"]["reidentified"]["matched"] == pytest.approx(1 / 3, abs=0.1)
    # One round: its result is the final network.
    assert samples["secure"] == samples["floor"]
    assert samples["none"]["loss now"]["auc"] == 0.5
    controls = found("controls.controls")
    assert controls["random labels"] == pytest.approx(0.5, abs=0.05)
    assert controls["overfitted"] > 0.9
    with np.load(study / "runs" / "0.plain.npz") as made:
        assert made["pictures"].shape == (3, 2, 36, 60)


def test_the_tables_are_there_and_the_sheet(study: Path) -> None:
    text = (study / "table.md").read_text()
    for leak in ("plain", "secure", "floor", "none"):
        assert f"| {leak} |" in text
    assert (study / "main.csv").read_text().count("\n") == 7
    with Image.open(study / "pictures.png") as sheet:
        assert sheet.height > 3 * 72


@pytest.mark.slow
def test_finished_probes_are_kept_and_other_settings_are_not_mixed(study: Path) -> None:
    before = (study / "table.md").read_bytes()
    (study / "runs" / "0.plain.samples.json").unlink()
    again = conduct(study, SMALL)
    assert (again.kept, len(again.results)) == (24, 25)
    assert again.files[0].read_bytes() == before
    (study / "study.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="holds another study"):
        conduct(study, replace(SMALL, rounds=2))
