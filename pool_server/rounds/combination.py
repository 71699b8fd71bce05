"""Combine a round's contributions with its base, in a process of its own.

Run by the server as ``python -m pool_server.rounds.combination PLAN RESULT``. The plan is JSON::

    {"method": "leaf-refit", "format": "dlib-shape-predictor",
     "inputs": [{"path": ..., "file_name": ..., "address": ...}, ...]}

Writes the model to RESULT, and one JSON object to standard output::

    {"accepted": true, "digest": ..., "recipe": {...}}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pool_server.transfers.model_check import limit_resources, write_answer


def combine(plan: Mapping[str, Any], result: Path) -> dict[str, Any]:
    """Merge the inputs of a plan into a file."""
    from aggregators.errors import AggregatorError
    from aggregators.methods import merge
    from aggregators.methods.registry import find_method

    inputs = plan["inputs"]
    possible = find_method(plan["method"]).output_formats
    try:
        merged = merge(
            plan["method"],
            [Path(each["path"]) for each in inputs],
            output=result,
            output_format=plan["format"] if plan["format"] in possible else possible[0],
            addresses=[each["address"] for each in inputs],
            file_names=[each["file_name"] for each in inputs],
        )
    except AggregatorError as error:
        return {"accepted": False, "message": str(error)}
    except MemoryError:
        return {"accepted": False, "message": "it needs more memory than the pool allows"}
    recipe = json.loads(merged.recipe.to_json())
    return {"accepted": True, "digest": merged.digest, "recipe": recipe}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("plan", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--most-output-bytes", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--time-s", type=float, required=True)
    options = parser.parse_args(arguments)
    limit_resources(options.memory_bytes, options.time_s, options.most_output_bytes)
    write_answer(combine(json.loads(options.plan.read_text(encoding="utf-8")), options.result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
