"""Aggregation methods, one per module, and their table."""

from aggregators.methods.contract import AggregationMethod
from aggregators.methods.merging import Merged, merge
from aggregators.methods.recipe import (
    RECIPE_SUFFIX,
    LeftOut,
    Recipe,
    RecipeInput,
    RecipeMethod,
    RecipeOutput,
    parse_recipe,
    read_recipe,
    recipe_path,
)
from aggregators.methods.registry import METHODS, find_method, merge_keys
from aggregators.methods.replaying import replay

__all__ = [
    "METHODS",
    "RECIPE_SUFFIX",
    "AggregationMethod",
    "LeftOut",
    "Merged",
    "Recipe",
    "RecipeInput",
    "RecipeMethod",
    "RecipeOutput",
    "find_method",
    "merge",
    "merge_keys",
    "parse_recipe",
    "read_recipe",
    "recipe_path",
    "replay",
]
