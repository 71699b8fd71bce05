"""Merging of models trained at different sites: formats, methods, predictors.

    >>> from aggregators import LandmarkPredictor, merge, read_model
    >>> merged = merge("wba-cascade", ["site-a.dat", "site-b.dat"], output="merged.dat")
    >>> predictor = LandmarkPredictor(read_model("merged.dat"))
    >>> predictor.part_count
    68

Importing this package is cheap: each name is imported at its first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aggregators.formats import (
        FORMATS,
        decode_model,
        encode_model,
        file_digest,
        fingerprint,
        read_model,
        recognise,
        write_model,
    )
    from aggregators.methods import (
        METHODS,
        Merged,
        Recipe,
        find_method,
        merge,
        merge_keys,
        parse_recipe,
        read_recipe,
        recipe_path,
        replay,
    )
    from aggregators.predictors import LandmarkPredictor, to_grey

__all__ = [
    "FORMATS",
    "METHODS",
    "LandmarkPredictor",
    "Merged",
    "Recipe",
    "decode_model",
    "encode_model",
    "file_digest",
    "find_method",
    "fingerprint",
    "merge",
    "merge_keys",
    "parse_recipe",
    "read_model",
    "read_recipe",
    "recipe_path",
    "recognise",
    "replay",
    "to_grey",
    "write_model",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for package in ("formats", "predictors", "methods"):
            module = import_module(f"aggregators.{package}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
