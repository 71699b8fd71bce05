"""Merging of models that sites trained apart: formats, methods, predictors.

    from aggregators import merge, read_model, LandmarkPredictor

    merge("wba-cascade", ["site-a.dat", "site-b.dat"], output="merged.dat")

Importing this package loads none of it; each name is fetched when it is first used.
"""

from __future__ import annotations

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
    from aggregators.predictors import DlibCompatiblePredictor, LandmarkPredictor, to_grey

_HOMES = {
    "aggregators.formats": (
        "FORMATS",
        "decode_model",
        "encode_model",
        "file_digest",
        "fingerprint",
        "read_model",
        "recognise",
        "write_model",
    ),
    "aggregators.methods": (
        "METHODS",
        "Merged",
        "Recipe",
        "find_method",
        "merge",
        "merge_keys",
        "parse_recipe",
        "read_recipe",
        "recipe_path",
        "replay",
    ),
    "aggregators.predictors": ("DlibCompatiblePredictor", "LandmarkPredictor", "to_grey"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FORMATS",
    "METHODS",
    "DlibCompatiblePredictor",
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
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
