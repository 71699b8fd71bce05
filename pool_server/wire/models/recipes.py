"""Recipes for those who may see a merged model, but not all that it was made of.

What a site signs of a recipe is what remains without names, so that whoever is not told the names
can check the signature all the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterator, Mapping
from typing import Any

from pool_server.wire.signatures.statements import canonical_json


def recipe_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a recipe's canonical JSON without names, as statements give it."""
    return hashlib.sha256(canonical_json(without_names(document, ()))).hexdigest()


def without_names(document: Mapping[str, Any], placed: Container[str]) -> dict[str, Any]:
    """Return a recipe that gives only the digest of what is not among `placed`.

    What was left out of a merge to replace it is treated as its inputs are.
    """
    cut = {**document, "inputs": [_nameless(each, placed) for each in document["inputs"]]}
    claim = document.get("successor_of")
    if claim is not None:
        left_out = [_nameless(each, placed) for each in claim["without"]]
        cut["successor_of"] = {**claim, "without": left_out}
    return cut


def named_digests(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digest of everything that a recipe may give a name to."""
    for each in document["inputs"]:
        yield each["digest"]
    for each in (document.get("successor_of") or {}).get("without", ()):
        yield each["digest"]


def _nameless(entry: Mapping[str, Any], placed: Container[str]) -> dict[str, Any]:
    if entry["digest"] in placed:
        return dict(entry)
    return {**entry, "address": None, "file_name": None}
