"""criteria.csv, criteria.json and criteria.png: a study under several criteria."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from site_agent.errors import StudyFolderError
from site_agent.eyeblink.study.criteria import CriteriaComparison, Criterion
from site_agent.eyeblink.study.pictures import draw_criteria
from site_agent.eyeblink.study.tables import write_table

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
            "criteria": [
                {"name": item.name, "settings": item.settings.to_dict()} for item in criteria
            ]
        }
        text = json.dumps(described, indent=1, ensure_ascii=False, allow_nan=False)
        files["json"].write_text(text + "\n", encoding="utf-8")
        draw_criteria(files["png"], comparison, criteria)
    except OSError as error:
        raise StudyFolderError(
            f"{error.filename or folder}: cannot be written: {error.strerror or error}"
        ) from error
    return files
