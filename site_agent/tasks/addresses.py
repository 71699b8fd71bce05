"""Resolve the names that users type: models in the pool, files, and shortened identifiers."""

import re
from collections.abc import Iterable
from pathlib import Path

from pool_server.wire.names import ModelAddress
from site_agent.errors import InvalidInputError, NotFoundError

SUFFIX_OF_FORMAT = {
    "dlib-fhog-detector": ".svm",
    "dlib-shape-predictor": ".dat",
    "poolctl-forest": ".forest",
    "poolctl-forest-half": ".forest",
    "safetensors": ".safetensors",
    "poolctl-sparse": ".sparse",
}
"""Suffixes of downloaded files; a test compares them with `aggregators.formats`."""


_FILE_SUFFIXES = {*SUFFIX_OF_FORMAT.values(), ".contribution", ".json", ".xml"}


def is_address(word: str) -> bool:
    """Return whether a word names a model in the pool, not a file.

    ``pool://...`` always does. ``site/name`` and ``name`` do unless a file of that name exists. A
    word with the suffix of a model file names a file, even a missing one, if its folder exists.
    """
    if word.startswith("pool://"):
        return True
    is_bare = "/" not in word
    if Path(word).exists() or (Path(word).suffix in _FILE_SUFFIXES and Path(word).parent.is_dir()):
        return False
    try:
        ModelAddress.parse(f"own/{word}" if is_bare else word)
    except ValueError:
        return False
    return True


def whole_id(word: str, ids: Iterable[str], noun: str, listed_by: str) -> str:
    """Return the only identifier that starts with a word."""
    hint = f"{listed_by} lists them"
    if not re.fullmatch("[0-9a-f]+", word):
        raise InvalidInputError(
            f"{word!r} is not a {noun}: expected hexadecimal digits, the first ones or all",
            hint=hint,
        )
    matching = sorted({known for known in ids if known.startswith(word)})
    if not matching:
        raise NotFoundError(f"no {noun} begins with {word}", hint=hint)
    if len(matching) > 1 and word not in matching:
        listed = ", ".join(matching)
        raise InvalidInputError(f"{len(matching)} begin with {word}, expected one: {listed}")
    return matching[0]
