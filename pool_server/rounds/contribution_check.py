"""Compare a contribution with its base: a program that the helper process runs.

It answers::

    {"accepted": true, "summary": {"leaves": ..., "parts": ..., ...}}
    {"accepted": false, "message": "what was found and what was expected"}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregators.models import LeafContribution, ShapePredictor


def run(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Read the contribution `path` and compare it with the round's base and options.

    Messages call the file `name`; its path means nothing to the uploader.
    """
    from aggregators.errors import AggregatorError, FormatError
    from aggregators.formats import read_model
    from aggregators.methods.refitting import read_contribution
    from aggregators.models import ShapePredictor

    path, name, base_path = Path(plan["path"]), plan["name"], Path(plan["base"])
    try:
        contribution = read_contribution(path)
        base = read_model(base_path, max_bytes=base_path.stat().st_size)
        if not isinstance(base, ShapePredictor):
            return refusal(name, "the base is no single landmark model")
        problem = find_misfit(contribution, base, plan["options"])
        if problem is not None:
            return refusal(name, problem)
        return {"accepted": True, "summary": describe_contribution(contribution)}
    except FormatError as error:
        return {"accepted": False, "message": str(error.about(name))}
    except AggregatorError as error:
        return refusal(name, str(error))


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
