"""Tables of a study: its sessions and their results, the learning curve, the criteria."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from site_agent.errors import StudyFolderError
from site_agent.eyeblink.batch.record import SessionRecord
from site_agent.eyeblink.conditioning.summary import SessionSummary
from site_agent.eyeblink.study.criteria import CriteriaComparison, Criterion
from site_agent.eyeblink.study.learning_curve import MEASURE_UNITS, LearningCurve
from site_agent.eyeblink.study.pictures import draw_criteria
from site_agent.plain_json import plain
from site_agent.tables import Table, columns_of

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
    # An infinite end of an interval says no more than none, and would spoil a reader's axes.
    known = (
        [None if isinstance(value, float) and math.isinf(value) else value for value in row]
        for row in rows
    )
    Table(path.stem, columns_of(columns, ".7g")).write_csv(path, known)


COLUMNS = (
    "criterion",
    "cr_rule",
    "cr_threshold",
    "cr_needs_onset",
    "onset_floor_ms",
    "reject_rules",
    "n_valid",
    "n_rejected",
    "n_cr",
    "cr_percent",
    "estimate",
    "low",
    "high",
    "p_value",
    "verdict",
    "agrees",
    "problem",
)


def write_criteria(
    folder: Path, comparison: CriteriaComparison, criteria: Sequence[Criterion]
) -> dict[str, Path]:
    """Write table, JSON and picture of a comparison; the study's own criterion comes first."""
    files = {name: folder / f"criteria.{name}" for name in ("csv", "json", "png")}
    rows = []
    for row, criterion in zip(comparison.rows, criteria, strict=True):
        settings, effect = criterion.settings, row.effect
        rule = [settings.cr_rule, settings.cr_threshold, settings.cr_needs_onset]
        onset = settings.onset_floor_ms if settings.cr_needs_onset else None
        counts = [row.n_valid, row.n_rejected, row.n_cr, row.cr_percent]
        numbers: list[object] = [None] * 5
        if effect is not None:
            numbers = [effect.estimate, effect.low, effect.high, effect.p_value, effect.verdict]
        rejecting = " ".join(settings.reject_rules)
        head = [row.criterion, *rule, onset, rejecting]
        rows.append([*head, *counts, *numbers, row.agrees, row.problem])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_table(files["csv"], COLUMNS, rows)
        described = comparison.to_dict() | {
            "criteria": [{"name": item.name, "settings": plain(item.settings)} for item in criteria]
        }
        text = json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False)
        files["json"].write_text(text + "\n", encoding="utf-8")
        draw_criteria(files["png"], comparison, criteria)
    except OSError as error:
        raise StudyFolderError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}"
        ) from error
    return files
