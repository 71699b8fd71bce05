"""Merge files into a model: a program that the helper process runs, for merges and for rounds.

Its plan is::

    {"method": ..., "options": {...}, "format": "dlib-shape-predictor" or null, "result": PATH,
     "inputs": [{"path": ..., "file_name": ..., "address": ..., "weight": ...}],
     "promised_digest": ... or null, "successor_of": ... or null}

It writes the model to the result's path, its progress to standard output, and answers::

    {"accepted": true, "digest": ..., "recipe": {...}, "warnings": [...]}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPORT_STEP_S = 0.2


class LineReport:
    """Writes progress as lines: every hundredth, and otherwise not more often than useful."""

    def __init__(self) -> None:
        self._next_s = 0.0
        self._written = 0.0

    def __call__(self, fraction: float, activity: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s or fraction >= self._written + 0.01:
            self._next_s = now_s + REPORT_STEP_S
            self._written = fraction
            line = json.dumps({"progress": fraction, "activity": activity})
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the inputs of a plan, by the very function that sites merge with."""
    from aggregators.errors import AggregatorError
    from aggregators.methods import merge

    inputs = plan["inputs"]
    try:
        merged = merge(
            plan["method"],
            [Path(each["path"]) for each in inputs],
            weights=[each["weight"] for each in inputs],
            options=plan["options"],
            output=Path(plan["result"]),
            output_format=plan["format"],
            addresses=[each["address"] for each in inputs],
            file_names=[each["file_name"] for each in inputs],
            progress=LineReport(),
        )
    except AggregatorError as error:
        return {"accepted": False, "message": str(error)}
    promised = plan["promised_digest"]
    if promised not in {None, merged.digest}:
        return {
            "accepted": False,
            "message": f"the merge gave sha256 {merged.digest}, the recipe promises {promised}",
        }
    recipe = json.loads(merged.recipe.to_json())
    if plan["successor_of"] is not None:
        # A claim about the recipe, and no part of the arithmetic.
        recipe["successor_of"] = plan["successor_of"]
    return {
        "accepted": True,
        "digest": merged.digest,
        "recipe": recipe,
        "warnings": list(merged.warnings),
    }
