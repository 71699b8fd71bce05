"""The journey that ``poolctl quickstart`` makes, with the fewest sites."""

import csv
import json
from pathlib import Path

from tests.cli.conftest import run_process


def test_quickstart_goes_all_the_way(tmp_path: Path) -> None:
    arguments = ("quickstart", "--site-count", "2", "--output", tmp_path / "trial", "--json")
    made = run_process(*arguments, POOL_HOME=str(tmp_path / "home"))
    assert "Traceback" not in made.err, made.err
    blinks = made.data["blinks"]
    assert blinks["found"] == blinks["true"] == blinks["matched"] > 0
    lab = tmp_path / "trial" / "our-lab"
    items = json.loads((lab / "scores" / "scores.json").read_text(encoding="utf-8"))["items"]
    scores = {Path(item["model"]).name: item for item in items}
    recalls = [item["recall"] for name, item in scores.items() if name.endswith(".svm")]
    assert len(recalls) == 3
    assert min(recalls) > 0.8
    errors = {name: item["mean_error"] for name, item in scores.items() if name.endswith(".dat")}
    assert len(errors) == 4
    assert min(errors, key=lambda name: errors[name]) == "refined.dat"

    with (lab / "blinks" / "blinks.csv").open(encoding="utf-8") as table:
        rows = [row for row in csv.reader(table) if not row[0].startswith("#")]
    assert len(rows) == 1 + blinks["true"]
    for name in ("merged.svm", "merged.dat"):
        recipe = json.loads((lab / f"{name}.recipe.json").read_text(encoding="utf-8"))
        sites = [entry["address"].split("/")[2] for entry in recipe["inputs"]]
        assert sites == ["site-a", "site-b"]
