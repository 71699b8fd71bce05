"""Tables and their descriptions."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from site_agent.eyeblink.conditioning.trial_measures import TrialMeasures
from site_agent.eyeblink.outputs.registry import OUTPUTS, write_outputs
from site_agent.eyeblink.outputs.tables import BLINKS, FRAMES, TRIALS, UNITS
from site_agent.eyeblink.session import AnalysedSession
from tests.site_agent.eyeblink.drawn_traces import rows_of

ESSENTIAL = [output for output in OUTPUTS if output.essential]
"""Pictures take most of the time, and nothing here is about them."""


def refuse(constant: str) -> float:
    raise AssertionError(constant)


@pytest.mark.parametrize("table", [FRAMES, BLINKS, TRIALS], ids=lambda table: table.name)
def test_every_column_is_described(table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert table.key in names
    for column in table.columns:
        assert len(column.description) > 8, column
        assert not column.unit or column.unit in UNITS, column
        if column.name.endswith(("_s", "_ms", "_px")):
            unit = column.name.rpartition("_")[2]
            expected = "FEC/s" if column.name.endswith("per_s") else unit
            assert column.unit == expected, column
    assert set(table.levels) <= set(names)


def test_trials_table(conditioned: AnalysedSession, tmp_path: Path) -> None:
    files = write_outputs(conditioned, tmp_path / "out", outputs=ESSENTIAL).files
    rows = rows_of(files["trials"])
    assert conditioned.conditioning is not None
    results = conditioned.conditioning.trials
    assert [row["trial"] for row in rows] == [result.measures.trial for result in results]
    assert list(rows[0]) == list(TRIALS.header)
    for row, result in zip(rows, results, strict=True):
        assert row["valid"] == ("true" if result.valid else "false")
        assert row["cr"] == {True: "true", False: "false", None: ""}[result.cr]
        if row["cs_onset_s"]:
            assert float(row["cs_onset_s"]) == pytest.approx(result.measures.cs_onset_s, abs=1e-6)
    names = {field.name for field in fields(TrialMeasures)}
    assert set(TRIALS.header) - names <= {"valid", "rejections", "cr"}


def test_session_summary(conditioned: AnalysedSession, tmp_path: Path) -> None:
    files = write_outputs(conditioned, tmp_path / "out", outputs=ESSENTIAL).files
    content = json.loads(files["session"].read_text(encoding="utf-8"), parse_constant=refuse)
    blinks = [blink for blink in conditioned.blinks if blink.kind == "blink"]
    assert content["blinks"]["blinks"] == len(blinks) > 10
    assert content["blinks"]["complete"] + content["blinks"]["partial"] == len(blinks)
    assert sum(minute["blinks"] for minute in content["blinks"]["rate"]) == len(blinks)
    assert content["blinks"]["seen_s"] == pytest.approx(conditioned.trace.duration_s - 1.0, abs=0.1)
    assert content["conditioning"]["summary"]["n_trials"] == 16
    assert len(content["conditioning"]["sensitivity"]) == 5
    assert content["start"]["time"] == "2024-05-06T07:08:00+00:00"
    assert content["calibration"]["span_ear"] == pytest.approx(conditioned.calibration.span)


def test_the_data_package_finds_wrong_data(conditioned: AnalysedSession, tmp_path: Path) -> None:
    frictionless = pytest.importorskip("frictionless", reason="frictionless is not installed")
    files = write_outputs(conditioned, tmp_path / "out", outputs=ESSENTIAL).files
    package = json.loads(files["datapackage"].read_text(encoding="utf-8"))
    assert [resource["name"] for resource in package["resources"]] == ["frames", "blinks", "trials"]
    report = frictionless.validate(str(files["datapackage"]))
    assert report.valid, report.flatten(["rowNumber", "fieldNumber", "type", "note"])[:5]
    blinks = files["blinks"].read_text(encoding="utf-8").replace("blink,", "wink,", 1)
    files["blinks"].write_text(blinks, encoding="utf-8")
    assert not frictionless.validate(str(files["datapackage"])).valid
