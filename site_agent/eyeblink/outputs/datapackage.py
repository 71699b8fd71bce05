"""datapackage.json: what every column of the tables means, for programs and people.

Follows the Data Package standard (version 1, as validators read it); fields carry their unit in
the extra property ``unit``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from site_agent.eyeblink.outputs.plain_json import write_json
from site_agent.eyeblink.outputs.provenance import versions
from site_agent.eyeblink.outputs.tables import BLINKS, FRAMES, UNITS, tables_of
from site_agent.eyeblink.session import AnalysedSession
from site_agent.tables import MISSING_VALUE, Column, Table


def write_data_package(session: AnalysedSession, path: Path) -> None:
    """Write types, units, meanings and the missing value of each table."""
    write_json(path, describe_package(session))


def describe_package(session: AnalysedSession) -> dict[str, Any]:
    """Return the descriptor."""
    recording = session.sources[0].name if session.sources else "recording"
    return {
        "profile": "tabular-data-package",
        "name": _name(session.names.entities or Path(recording).stem),
        "title": f"Eyeblink analysis of {recording}",
        "description": (
            "Eye aspect ratios, eyelid closure and blinks. Times are presentation times in seconds "
            "from the start of the recording. Empty cells are missing values. The settings and "
            "the digests of all inputs are in the provenance file beside this one."
        ),
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "version": versions()["poolctl"],
        "sources": [{"title": source.name} for source in session.sources],
        "resources": [_resource(table, session) for table in tables_of(session)],
    }


def _name(text: str) -> str:
    """Reduce to what the standard allows as a name."""
    return re.sub("[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "recording"


def _resource(table: Table, session: AnalysedSession) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "fields": [_field(table, column) for column in table.columns],
        "missingValues": [MISSING_VALUE],
        "primaryKey": table.key,
    }
    if table is FRAMES:
        reference = {"resource": BLINKS.name, "fields": BLINKS.key}
        schema["foreignKeys"] = [{"fields": "blink_id", "reference": reference}]
    return {
        "profile": "tabular-data-resource",
        "name": table.name,
        "title": table.title,
        "path": session.names.path(table.file_name).name,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "dialect": {"delimiter": ",", "lineTerminator": "\n", "header": True},
        "schema": schema,
    }


def _field(table: Table, column: Column) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "description": describe_column(table, column),
    }
    if column.unit:
        described["unit"] = column.unit
    constraints: dict[str, Any] = {}
    if column.name == table.key:
        constraints["required"] = constraints["unique"] = True
    if column.name in table.levels:
        constraints["enum"] = list(table.levels[column.name])
    if constraints:
        described["constraints"] = constraints
    return described


def describe_column(table: Table, column: Column) -> str:
    """Return the column's meaning, with its unit and its values in words."""
    text = column.description
    if column.unit in UNITS:
        text += f" ({UNITS[column.unit]})"
    if column.name in table.levels:
        levels = (f"{name}: {meaning}" for name, meaning in table.levels[column.name].items())
        text += f" ({'; '.join(levels)})"
    return text
