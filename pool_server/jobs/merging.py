"""Merge by a recipe in a limited child process: for merges, rounds, and checks of recipes.

`merge_by_recipe` is the server's side. `run` is the program that the helper process runs; its plan
is::

    {"method": ..., "options": {...}, "format": "dlib-shape-predictor" or null, "result": PATH,
     "inputs": [{"path": ..., "file_name": ..., "address": ..., "weight": ...}],
     "promised_digest": ... or null, "successor_of": ... or null}

It writes the model to the result's path, its progress to standard output, and answers::

    {"accepted": true, "digest": ..., "recipe": {...}, "warnings": [...]}
    {"accepted": false, "message": "what was found and what was expected"}
"""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aggregators.errors import AggregatorError
from aggregators.methods import Recipe, merge
from pool_server.jobs.limited import MEMORY_FACTOR, Limits, Listener, run_limited

if TYPE_CHECKING:
    # Not at run time: the helper process must not load the database.
    from pool_server.settings import PoolSettings

REPORT_STEP_S = 0.2


def merge_by_recipe(
    settings: "PoolSettings",
    recipe: Recipe,
    paths: Mapping[str, Path],
    result: Path,
    *,
    activity: str,
    output_format: str | None = None,
    listen: Listener | None = None,
) -> dict[str, Any]:
    """Merge files as a recipe says, write the model to `result`, and return the program's answer.

    `paths` has the file of each input, by digest. The format is that of the recipe's output, or the
    method's own, unless one is given. Raises `StoppedError` where `listen` returned False.
    """
    promised = recipe.output
    plan = {
        "method": recipe.method.name,
        "options": recipe.options,
        "format": output_format or (promised.format if promised else None),
        "result": str(result),
        "inputs": [
            {
                "path": str(paths[input_.digest]),
                "file_name": input_.file_name,
                "address": input_.address,
                "weight": input_.weight,
            }
            for input_ in recipe.inputs
        ],
        "promised_digest": promised.digest if promised else None,
        "successor_of": recipe.model_dump(mode="json", by_alias=True).get("successor_of"),
    }
    size_bytes = sum(path.stat().st_size for path in paths.values())
    limits = Limits(
        settings.merge_memory_bytes + MEMORY_FACTOR * size_bytes,
        settings.merge_time_s,
        settings.max_model_bytes,
    )
    return run_limited("pool_server.jobs.merging", plan, limits, activity=activity, listen=listen)


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
    inputs = plan["inputs"]
    try:
        merged = merge(
            plan["method"],
            [Path(input_["path"]) for input_ in inputs],
            weights=[input_["weight"] for input_ in inputs],
            options=plan["options"],
            output=Path(plan["result"]),
            output_format=plan["format"],
            addresses=[input_["address"] for input_ in inputs],
            file_names=[input_["file_name"] for input_ in inputs],
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
