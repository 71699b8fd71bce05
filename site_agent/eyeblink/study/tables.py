"""Tables of a study: what became of its sessions, their results, the learning curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from site_agent.eyeblink.batch.outcome import SessionOutcome
from site_agent.eyeblink.conditioning.summary import SessionSummary
from site_agent.eyeblink.study.learning_curve import MEASURE_UNITS, LearningCurve
from site_agent.eyeblink.study.record import SessionRecord
from site_agent.tables import Table, columns_of

BATCH_COLUMNS = ("session", "state", "reason", "frames", "blinks", "seconds", "warnings")
_SESSION_COLUMNS = ("session", "participant", "session_number", "group")
_BLINK_COLUMNS = (
    "frames",
    "seconds",
    "face_found_pct",
    "valid_pct",
    "blinks",
    "closures",
    "perclos_pct",
    "blinks_per_minute",
    "open_ear",
    "closed_ear",
)
# Everything but the counts by name, which have no fixed columns.
_TRIAL_COLUMNS = tuple(
    name
    for name in SessionSummary.__dataclass_fields__
    if name not in {"trials_by_type", "rejected_by_reason"}
)
_CURVE_COLUMNS = (
    "measure",
    "unit",
    "group",
    "kind",
    "participant",
    "session_number",
    "value",
    "standard_error",
    "low",
    "high",
    "n",
)


def write_batch_table(path: Path, outcomes: Iterable[SessionOutcome]) -> None:
    """Write ``batch.csv``: one row a session, `seconds` of the recording."""
    rows = []
    for outcome in outcomes:
        summary: Mapping[str, object] = outcome.record.summary if outcome.record else {}
        numbers = [summary.get(name) for name in ("frames", "blinks", "seconds")]
        head = [outcome.session, outcome.state, " ".join(outcome.reason.split())]
        rows.append([*head, *numbers, "; ".join(outcome.warnings)])
    write_table(path, BATCH_COLUMNS, rows)


def write_sessions_table(path: Path, records: Sequence[SessionRecord]) -> None:
    """Write ``sessions.csv``: blinks and, where there are trials, conditioning by session."""
    trials = _TRIAL_COLUMNS if any(record.conditioning for record in records) else ()
    rows = [
        [
            record.name,
            record.participant,
            record.number,
            record.group,
            *(record.summary.get(name) for name in _BLINK_COLUMNS),
            *((record.conditioning or {}).get(name) for name in trials),
            "; ".join(record.warnings),
        ]
        for record in records
    ]
    write_table(path, (*_SESSION_COLUMNS, *_BLINK_COLUMNS, *trials, "warnings"), rows)


def write_curve_table(path: Path, curves: Mapping[str, Sequence[LearningCurve]]) -> None:
    """Write ``learning_curve.csv``; `curves` by group.

    `kind` is ``participant`` (`n`: trials), ``mean`` (over `n` participants, with its standard
    error) or ``line`` (the fitted line, `low` and `high` its 95 % band).
    """
    rows: list[list[object]] = []
    for group, fitted in curves.items():
        for curve in fitted:
            head = [curve.measure, MEASURE_UNITS[curve.measure], group]
            for item in curve.points:
                cells = ["participant", item.participant, item.position, item.value]
                rows.append([*head, *cells, "", "", "", item.n_trials])
            for mean in curve.observed:
                cells = ["mean", "", mean.position, mean.mean, mean.standard_error]
                rows.append([*head, *cells, "", "", mean.n_participants])
            line = zip(curve.positions, curve.mean, curve.low, curve.high, strict=True)
            rows += [
                [*head, "line", "", *map(float, (position, value)), "", float(low), float(high), ""]
                for position, value, low, high in line
            ]
    write_table(path, _CURVE_COLUMNS, rows)


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table, whole or not at all; empty cells for what is not known."""
    Table(path.stem, columns_of(columns, ".7g")).write_csv(path, rows)
