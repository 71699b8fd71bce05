"""Look at an uploaded contribution beside its base, in a process with little memory and time.

Run by the server as ``python -m pool_server.rounds.contribution_check``. Writes one JSON object
to standard output::

    {"accepted": true, "summary": {"leaves": ..., "parts": ..., ...}}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pool_server.transfers.model_check import limit_resources, write_answer

if TYPE_CHECKING:
    from aggregators.models import LeafContribution, ShapePredictor


def check_contribution(
    path: Path, name: str, base_path: Path, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Read a contribution and hold it against the base and the round's options.

    Parameters
    ----------
    name : str
        What to call the file in messages; its path means nothing to the uploader.
    """
    from aggregators.errors import AggregatorError, FormatError
    from aggregators.formats import read_model
    from aggregators.methods.refitting import read_contribution
    from aggregators.models import ShapePredictor

    try:
        contribution = read_contribution(path)
        base = read_model(base_path, max_bytes=base_path.stat().st_size)
        if not isinstance(base, ShapePredictor):
            return refusal(name, "the base is no single landmark model")
        problem = find_misfit(contribution, base, options)
        if problem is not None:
            return refusal(name, problem)
        return {"accepted": True, "summary": describe_contribution(contribution)}
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except AggregatorError as error:
        return refusal(name, str(error))
    except MemoryError:
        return refusal(name, "reading the file needs more memory than the pool allows")


def refusal(name: str, problem: str) -> dict[str, Any]:
    return {"accepted": False, "message": f"{name}: {problem}"}


def find_misfit(
    contribution: LeafContribution, base: ShapePredictor, options: Mapping[str, Any]
) -> str | None:
    """Return in what a contribution does not fit its round, or None."""
    from aggregators.methods.refitting import RefitSettings, forest_digest, thinned_base

    digest = forest_digest(base)
    if contribution.base_digest != digest:
        return (
            f"was fitted to another base: found {contribution.base_digest[:16]}..., "
            f"expected {digest[:16]}..."
        )
    settings = RefitSettings.model_validate(dict(options))
    forest = thinned_base(base, settings.thin)
    expected = settings.resolved(forest).shared()
    for field, wanted in expected.items():
        found = contribution.settings.get(field)
        if found != wanted:
            return f"was fitted with {field} {found}, the round asks for {wanted}"
    if contribution.changes.shape != forest.leaves.shape:
        return (
            f"changes leaves of shape {contribution.changes.shape}, "
            f"the base has {forest.leaves.shape} (leaves, landmarks, 2)"
        )
    return None


def describe_contribution(contribution: LeafContribution) -> dict[str, Any]:
    """Return what participants are told of a contribution."""
    return {
        "leaves": int(contribution.changes.shape[0]),
        "parts": contribution.part_count,
        "leaves_changed": int((contribution.counts > 0).sum()),
        "settings": dict(contribution.settings),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", type=Path)
    parser.add_argument("--name", default="the file")
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--round", type=Path, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--time-s", type=float, required=True)
    options = parser.parse_args(arguments)
    limit_resources(options.memory_bytes, options.time_s)
    settings = json.loads(options.round.read_text(encoding="utf-8"))["options"]
    write_answer(check_contribution(options.path, options.name, options.base, settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
