"""The journey that ``poolctl quickstart`` makes, with the fewest sites."""

import csv
import json
from pathlib import Path

from tests.cli.conftest import run_process


def test_quickstart_goes_all_the_way(tmp_path: Path) -> None:
    arguments = ("quickstart", "--site-count", "2", "--output", tmp_path / "trial", "--json")
    made = run_process(*arguments, POOL_HOME=str(tmp_path / "home"))
    assert "Traceback" not in made.err, made.err
    result = made.data
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

    with (tmp_path / result["blink_folder"] / "blinks.csv").open(encoding="utf-8") as table:
        rows = [row for row in csv.reader(table) if not row[0].startswith("#")]
    assert len(rows) == 1 + blinks["true"]
    for name in ("merged_detector", "merged_landmarks"):
        recipe = json.loads((tmp_path / f"{result[name]}.recipe.json").read_text(encoding="utf-8"))
        assert [entry["address"].split("/")[2] for entry in recipe["inputs"]] == [
            "site-a",
            "site-b",
        ]
