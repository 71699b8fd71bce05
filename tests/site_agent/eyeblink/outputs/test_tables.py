"""Tables and what describes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from site_agent.eyeblink.outputs.registry import OUTPUTS, write_outputs
from site_agent.eyeblink.outputs.tables import BLINKS, FRAMES, TRIALS, UNITS
from site_agent.eyeblink.session import AnalysedSession

ESSENTIAL = [output for output in OUTPUTS if output.essential]
"""Pictures take most of the time, and nothing here is about them."""


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
