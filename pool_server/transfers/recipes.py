"""Recipes that come with merged models."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pool_server.errors import RecipeRefusedError

if TYPE_CHECKING:
    from aggregators.methods import Recipe


def read_recipe(document: dict[str, Any], digest: str) -> Recipe:
    """Read a recipe and make sure that it makes the file of that digest.

    Raises
    ------
    RecipeRefusedError
        It is none, is that of another file, or leaves its output open.
    """
    # Loads numpy; a pool that nobody uploads to does without.
    from aggregators.errors import RecipeError
    from aggregators.methods import parse_recipe

    try:
        recipe = parse_recipe(json.dumps(document))
    except RecipeError as error:
        raise RecipeRefusedError(
            str(error), hint="Send the recipe that `poolctl merge` wrote, as it is."
        ) from error
    found = recipe.output.digest if recipe.output is not None else None
    if found != digest:
        raise RecipeRefusedError(
            f"the recipe makes a file with SHA-256 {found or '(left open)'}, "
            f"uploaded is one with {digest}",
            hint="Send the recipe that was written with this very file, or none.",
            details={"found": found, "expected": digest},
        )
    return recipe
