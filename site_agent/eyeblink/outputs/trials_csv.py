"""trials.csv: one row a trial of a conditioning session."""

from __future__ import annotations

from pathlib import Path

from site_agent.eyeblink.conditioning.trial_results import trial_rows
from site_agent.eyeblink.outputs.tables import TRIALS, write_csv
from site_agent.eyeblink.session import AnalysedSession

DIGITS = {"s": 6, "ms": 3, "FEC": 5}


class TrialsCsv:
    """Measures and decisions; empty cells where nothing is known, which is not "no response"."""

    name = "trials"
    file_name = TRIALS.file_name
    essential = True

    def wanted(self, session: AnalysedSession, /) -> bool:
        return session.conditioning is not None

    def write(self, session: AnalysedSession, path: Path) -> None:
        results = session.conditioning.trials if session.conditioning is not None else ()
        rows = [
            [_text(row[column.name], column.unit) for column in TRIALS.columns]
            for row in trial_rows(results)
        ]
        write_csv(path, TRIALS, [rows])


def _text(value: str | float | bool | None, unit: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else f"{value:.{DIGITS.get(unit, 5)}f}"
