"""The files of a study as a whole: its sessions together, learning over them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from site_agent.errors import ConditioningError
from site_agent.eyeblink.batch.record import SessionRecord
from site_agent.eyeblink.study.learning_curve import (
    MEASURE_UNITS,
    LearningCurve,
    LearningMeasure,
    LearningPoint,
    fit_learning_curve,
)
from site_agent.eyeblink.study.pictures import draw_learning_curves
from site_agent.eyeblink.study.sessions import gather_bids
from site_agent.eyeblink.study.tables import write_curve_table, write_sessions_table

_CURVE_FILES = ("learning_curve.csv", "learning_curve.json", "learning_curve.png")


@dataclass(frozen=True)
class StudySummary:
    """The files of the whole study, and its `curves` by group."""

    files: Mapping[str, Path]
    curves: Mapping[str, tuple[LearningCurve, ...]]
    remarks: tuple[str, ...]


def write_study(study: Path, records: Sequence[SessionRecord]) -> StudySummary:
    """Write ``sessions.csv`` and, where sessions have trials and numbers, the learning curve.

    Sessions with BIDS names are gathered in ``bids`` (see `gather_bids`).
    """
    files = {"sessions": study / "sessions.csv"}
    write_sessions_table(files["sessions"], records)
    dataset = gather_bids(study, records)
    if dataset is not None:
        files["bids"] = dataset
    curves, remarks = _fit(records)
    if not curves:
        for name in _CURVE_FILES:  # of an earlier run with other sessions
            (study / name).unlink(missing_ok=True)
        return StudySummary(files, {}, tuple(remarks))
    table, description, picture = (study / name for name in _CURVE_FILES)
    write_curve_table(table, curves)
    plain = {group: [curve.to_dict() for curve in fitted] for group, fitted in curves.items()}
    text = json.dumps({"groups": plain, "remarks": remarks}, indent=1, allow_nan=False)
    description.write_text(text + "\n", encoding="utf-8")
    draw_learning_curves(picture, curves)
    files |= {"learning_curve": table, "learning_fit": description, "learning_picture": picture}
    return StudySummary(files, curves, tuple(remarks))


def learning_points_of(
    records: Sequence[SessionRecord], measure: LearningMeasure
) -> tuple[LearningPoint, ...]:
    """Return a point for each session with trials, as `learning_points` would."""
    points = []
    for record in records:
        if record.conditioning is None:
            continue
        value = record.conditioning[measure]
        count = record.conditioning["n_cr" if measure == "amplitude_cr" else "n_cs_valid"]
        points.append(
            LearningPoint(
                record.participant,
                record.number,
                math.nan if value is None else float(value),
                int(count),
                record.group,
            )
        )
    return tuple(sorted(points, key=lambda point: (point.participant, point.position)))


def _fit(
    records: Sequence[SessionRecord],
) -> tuple[dict[str, tuple[LearningCurve, ...]], list[str]]:
    with_trials = [record for record in records if record.conditioning is not None]
    if not with_trials:
        return {}, []
    usable = [
        record for record in with_trials if record.participant and math.isfinite(record.number)
    ]
    remarks = []
    if len(usable) < len(with_trials):
        remarks.append(
            f"{len(with_trials) - len(usable)} of {len(with_trials)} sessions with trials have no "
            "participant or session_number and are not in the learning curve"
        )
    curves: dict[str, tuple[LearningCurve, ...]] = {}
    for group in sorted({record.group for record in usable}):
        members = [record for record in usable if record.group == group]
        fitted = []
        for measure in MEASURE_UNITS:
            try:
                fitted.append(fit_learning_curve(learning_points_of(members, measure), measure))
            except ConditioningError as error:
                where = f" of {group}" if group else ""
                remarks.append(f"no learning curve{where} ({measure}): {error}")
        if fitted:
            curves[group] = tuple(fitted)
    return curves, remarks
