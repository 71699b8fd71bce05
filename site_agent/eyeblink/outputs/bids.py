"""The names and files of the BIDS standard (version 1.10), for sessions with a subject label.

The output folder is then a derivative dataset::

    dataset_description.json  README.md  .bidsignore
    sub-01/ses-01/beh/
        sub-01_ses-01_task-ebc_events.tsv .json     blinks and trials
        sub-01_ses-01_task-ebc_desc-blink_*         everything else

BIDS has names for events: blinks and trials stand in one table with onset, duration and
type, and a sidecar with meaning and unit of every column. It has none for eyelid traces (its
physiological recordings must have one sampling frequency, which video need not have), CSV tables
with their data package, reports, NWB and provenance: these files have the same entities with
``desc-blink`` and are named in ``.bidsignore``. The events bear no ``desc``, because the validators
of the 1.x series know that entity in no data set; they pass these, and the current ones, too.
"""

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from site_agent.eyeblink.outputs.json_files import describe_column, versions
from site_agent.eyeblink.outputs.tables import BLINKS, TRIALS, tables_of
from site_agent.eyeblink.session import AnalysedSession
from site_agent.plain_json import write_json
from site_agent.tables import MISSING_VALUE, Column, Table

BIDS_VERSION = "1.10.0"
IGNORED = ("*_desc-blink_*",)
DESCRIPTION, IGNORE, README = "dataset_description.json", ".bidsignore", "README.md"

_README = """# Eyeblink analyses

Each folder `sub-*/[ses-*/]beh` holds the results of one recording.

- `*_events.tsv`: the blinks and, for conditioning sessions, the trials; the `.json` next to it
  gives the meaning and units of the columns; `n/a` is a missing value
- `*_desc-blink_report.html`: a report with pictures: read it first
- `*_desc-blink_frames.csv`: eye aspect ratio and eyelid closure in every frame
- `*_desc-blink_datapackage.json`: describes the columns of the CSV files
- `*_desc-blink_provenance.json`: inputs with their digests, every setting, versions

Files with `desc-blink` are not part of the BIDS standard.
"""

_OWN_COLUMNS = {
    BLINKS.name: {"kind", "onset_s", "offset_s"},
    TRIALS.name: {"trial_type", "cs_onset_s", "us_onset_s"},
}
"""Columns that become onset, duration and type of an event."""


def write_bids_files(session: AnalysedSession, content: Path, dataset: Path) -> None:
    """Add the files that BIDS requires to `content`, which will be moved to `dataset`.

    Descriptions that the dataset has already are left as they are.
    """
    tables = [table for table in tables_of(session) if table.name in _OWN_COLUMNS]
    columns = [
        (table, column)
        for table in tables
        for column in table.columns
        if column.name not in _OWN_COLUMNS[table.name]
    ]
    header = ["onset", "duration", "trial_type", *(column.name for _, column in columns)]
    events: list[Mapping[str, str]] = []
    for table in tables:
        with (content / session.names.path(table.file_name)).open(encoding="utf-8") as file:
            events += [_event(table, row) for row in csv.DictReader(file)]
    events.sort(key=lambda event: float(event["onset"]))
    _write_tsv(content / session.names.bids_path("events.tsv"), header, events)
    write_json(content / session.names.bids_path("events.json"), _sidecar(tables, columns))
    if not (dataset / DESCRIPTION).exists():
        write_json(content / DESCRIPTION, _dataset_description())
    if not any((dataset / name).exists() for name in ("README", "README.md", "README.txt")):
        (content / README).write_text(_README, encoding="utf-8")
    _write_ignore_list(content / IGNORE, dataset / IGNORE)


def _event(table: Table, row: Mapping[str, str]) -> dict[str, str]:
    if table is BLINKS:
        onset_s, end_s, kind = float(row["onset_s"]), row["offset_s"], row["kind"]
    else:
        onset_s = float(row["cs_onset_s"] or row["us_onset_s"])
        end_s, kind = row["us_onset_s"], row["trial_type"]
    duration_s = float(end_s) - onset_s if end_s else math.nan
    event = {"onset": f"{onset_s:.6f}", "trial_type": kind}
    event["duration"] = "" if math.isnan(duration_s) else f"{duration_s:.6f}"
    return {**row, **event}


def _write_tsv(path: Path, header: list[str], rows: Iterable[Mapping[str, str]]) -> None:
    """Write a TSV file; tabs and line breaks, which BIDS forbids in it, become blanks."""
    lines = ["\t".join(header)]
    for row in rows:
        cells = (row.get(name, MISSING_VALUE) for name in header)
        lines.append("\t".join(" ".join(cell.split()) or "n/a" for cell in cells))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sidecar(tables: list[Table], columns: list[tuple[Table, Column]]) -> dict[str, Any]:
    kinds = dict(BLINKS.levels["kind"])
    if TRIALS in tables:
        kinds.update(TRIALS.levels["trial_type"])
    described: dict[str, Any] = {
        "onset": {
            "Description": "Onset of the blink, or of the trial's first stimulus, from the "
            "recording's start",
            "Units": "s",
        },
        "duration": {
            "Description": "Of the blink; in trials with both stimuli, or where the second would "
            "have come, from the first to the second; 0 for US alone",
            "Units": "s",
        },
        "trial_type": {"Description": "What the event is", "Levels": kinds},
    }
    for table, column in columns:
        entry: dict[str, Any] = {"Description": f"{table.title}: {describe_column(table, column)}"}
        if column.unit:
            entry["Units"] = column.unit
        if column.name in table.levels:
            entry["Levels"] = dict(table.levels[column.name])
        described[column.name] = entry
    return described


def _dataset_description() -> dict[str, Any]:
    return {
        "Name": "Eyeblink analyses",
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "derivative",
        "GeneratedBy": [
            {
                "Name": "poolctl",
                "Version": versions()["poolctl"],
                "Description": "Eyelid closure, blinks and conditioned responses from video",
            }
        ],
    }


def _write_ignore_list(path: Path, existing: Path) -> None:
    """Add our patterns to those that the dataset has."""
    lines = existing.read_text(encoding="utf-8").splitlines() if existing.exists() else []
    path.write_text("\n".join(dict.fromkeys([*lines, *IGNORED])) + "\n", encoding="utf-8")
