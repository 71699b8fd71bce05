"""The journey that ``poolctl quickstart`` makes, with the fewest sites."""

import csv
import json
from pathlib import Path

import pytest

from tests.begun_early import EarlyCommand
from tests.end_to_end.labs import Lab

QUICKSTART = EarlyCommand(
    "quickstart", ("cli", "quickstart", "--site-count", "2", "--output", "trial", "--json")
)


@pytest.mark.begun_early(QUICKSTART)
def test_quickstart_goes_all_the_way() -> None:
    process, folder = QUICKSTART.result()
    assert process.returncode == 0, process.stdout + process.stderr
    assert "Traceback" not in process.stderr, process.stderr
    result = json.loads(process.stdout)["data"]
    detectors = [entry["made_by"] for entry in result["detectors"]]
    assert sorted(detectors) == ["mwma", "trained", "trained"]
    assert all(entry["score"] > 0.8 for entry in result["detectors"])
    errors: dict[str, list[float]] = {}
    for entry in result["landmarks"]:
        errors.setdefault(entry["made_by"], []).append(entry["score"])
    assert len(errors["trained"]) == 2
    assert max(errors["refined"]) < min(errors["wba-cascade"] + errors["trained"])
    blinks = result["blinks"]
    assert blinks["found"] == blinks["true"] == blinks["matched"] > 0

    with (folder / result["blink_folder"] / "blinks.csv").open(encoding="utf-8") as table:
        rows = [row for row in csv.reader(table) if not row[0].startswith("#")]
    assert len(rows) == 1 + blinks["true"]
    for name in ("merged_detector", "merged_landmarks"):
        recipe = json.loads((folder / f"{result[name]}.recipe.json").read_text(encoding="utf-8"))
        assert [entry["address"].split("/")[2] for entry in recipe["inputs"]] == [
            "site-a",
            "site-b",
        ]


@pytest.mark.slow
def test_sites_train_a_better_gaze_network_together_than_alone(tmp_path: Path) -> None:
    result = Lab(tmp_path).poolctl("quickstart", "gaze", "--output", "trial")

    errors: dict[str, list[float]] = {}
    for entry in result["networks"]:
        errors.setdefault(entry["made_by"], []).append(entry["score"])
    assert len(errors["trained"]) == 3
    assert max(errors["fedavg"]) < min(errors["trained"])
    assert max(errors["trained"]) < result["constant_error_deg"]


@pytest.mark.slow
def test_sites_sum_up_their_changes_so_that_no_server_sees_them(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    result = lab.poolctl("quickstart", "secure", "--output", "trial")
    assert [network["made_by"] for network in result["networks"]] == [*["trained"] * 3, "fedavg"]
    assert lab.poolctl("inspect", result["network"])
    log = (tmp_path / "trial" / "servers.log").read_text(encoding="utf-8")
    assert log.count("serves the charter trial") == 2
