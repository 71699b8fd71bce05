"""Results as a study would have them, for tests of its tables and verdicts."""

from typing import Any

from site_agent.studies.protocol_file import Step, read_protocol
from site_agent.studies.results import Results


def results_of(study: str, **rows: list[dict[str, Any]]) -> Results:
    """Return the results of a shipped study; `rows` by step, with the factors in them."""
    protocol = read_protocol(study)
    steps = [Step(name, name, "", {}) for name in rows]
    return Results(protocol.content, steps, rows, protocol.settings)


def table_of(results: Results, name: str) -> list[dict[str, Any]]:
    header, rows = results.query(f"SELECT * FROM {name}")
    return [dict(zip(header, row, strict=True)) for row in rows]
