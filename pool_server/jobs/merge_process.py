"""Carry out a recipe, in a process of its own with limits of memory and time.

Run by the server as ``python -m pool_server.jobs.merge_process PLAN RESULT``. The plan is JSON::

    {"recipe": {...}, "format": "dlib-shape-predictor" or null,
     "inputs": {"DIGEST": {"path": ..., "file_name": ...}}}

Ends with `OUT_OF_MEMORY` where the memory allowed does not suffice. Writes the model to RESULT, and
lines of JSON to standard output: progress, then one answer::

    {"progress": 0.25, "activity": "reading site-a/face-68@2"}
    {"accepted": true, "digest": ..., "recipe": {...}, "warnings": [...]}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

import argparse
import errno
import json
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pool_server.transfers.model_check import limit_resources

REPORT_STEP_S = 0.2
OUT_OF_MEMORY = 12
"""Exit code; the number of ENOMEM."""


class LineReport:
    """Writes progress as lines, not more often than anybody would look.

    A hundredth more is told at once: what comes next may take long.
    """

    def __init__(self) -> None:
        self._next_s = 0.0
        self._told = 0.0

    def __call__(self, fraction: float, activity: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_s or fraction >= self._told + 0.01:
            self._next_s = now_s + REPORT_STEP_S
            self._told = fraction
            write_line({"progress": fraction, "activity": activity})


def write_line(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    # A server that died leaves a broken pipe, which ends this process.
    sys.stdout.flush()


def carry_out(plan: Mapping[str, Any], result: Path) -> dict[str, Any]:
    """Merge the inputs of a plan into a file, by the very function that sites merge with."""
    from aggregators.errors import AggregatorError
    from aggregators.methods import Recipe, merge

    recipe = Recipe.model_validate(plan["recipe"])
    files = plan["inputs"]
    promised = recipe.output
    try:
        merged = merge(
            recipe.method.name,
            [Path(files[entry.digest]["path"]) for entry in recipe.inputs],
            weights=[entry.weight for entry in recipe.inputs],
            options=recipe.options,
            output=result,
            output_format=plan["format"] or (promised.format if promised else None),
            addresses=[entry.address for entry in recipe.inputs],
            file_names=[
                entry.file_name or files[entry.digest]["file_name"] for entry in recipe.inputs
            ],
            progress=LineReport(),
        )
    except AggregatorError as error:
        return {"accepted": False, "message": str(error)}
    if promised is not None and promised.digest != merged.digest:
        return {
            "accepted": False,
            "message": f"the merge gave sha256 {merged.digest}, the recipe promises "
            f"{promised.digest}",
        }
    # What the result replaces is a claim about the recipe, and no part of the arithmetic.
    made = merged.recipe.model_copy(update={"successor_of": recipe.successor_of})
    return {
        "accepted": True,
        "digest": merged.digest,
        "recipe": json.loads(made.to_json()),
        "warnings": list(merged.warnings),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("plan", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--most-output-bytes", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--time-s", type=float, required=True)
    options = parser.parse_args(arguments)
    plan = json.loads(options.plan.read_text(encoding="utf-8"))
    # Loaded before there are limits: a program that cannot load does not say that memory is short.
    import_module("aggregators.methods")
    limit_resources(options.memory_bytes, options.time_s, options.most_output_bytes)
    try:
        write_line(carry_out(plan, options.result))
    except MemoryError:
        return OUT_OF_MEMORY
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        return OUT_OF_MEMORY
    return 0


if __name__ == "__main__":
    sys.exit(main())
