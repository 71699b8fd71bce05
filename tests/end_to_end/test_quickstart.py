"""The journey that ``poolctl quickstart`` makes, with the fewest sites."""

import csv
import json

import pytest

from tests.begun_early import EarlyCommand

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
