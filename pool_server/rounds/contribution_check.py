"""Compare a contribution with its round: a program that the helper process runs.

It answers::

    {"accepted": true, "summary": {"samples": ..., ...}}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pool_server.errors import RefusedError
from pool_server.rounds.methods import find_round_method


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Read the contribution `path` and compare it with the round's base and options.

    Messages call the file `name`; its path means nothing to the uploader.
    """
    from aggregators.errors import AggregatorError, FormatError

    name = plan["name"]
    try:
        summary = find_round_method(plan["method"]).examine(
            Path(plan["path"]), Path(plan["base"]), plan["base_digest"], plan["options"]
        )
        return {"accepted": True, "summary": summary}
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except (AggregatorError, RefusedError) as error:
        return {"accepted": False, "message": f"{name}: {error}"}
