"""Merges that the pool makes itself, and recipes as far as a reader may see them.

A reader of a merged model may not see all that it was made of. What a site signs of a recipe is
the recipe without names, so that the signature can be checked by readers who see none of them.
"""

import hashlib
from collections.abc import Container, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, Field

from pool_server.wire.models import ModelVersionResponse
from pool_server.wire.names import FileName, Name, Page
from pool_server.wire.signatures.statements import canonical_json
from pool_server.wire.uploads import VersionDescription

MergeJobState = Literal["queued", "running", "finished", "failed", "cancelled"]

MERGE_KEY_PATTERN = r"^[0-9a-f]{16}$"


class MergeRequest(VersionDescription):
    """Merge models of the pool on the pool's machine.

    The recipe says what to do: method, options, inputs by digest. Without `output` the result is
    published whatever its digest; with it, only when its digest is the promised one.
    """

    site: Name
    name: Name
    recipe: dict[str, Any] = Field(description="As `poolctl merge` writes it.")
    format: str | None = Field(
        default=None, max_length=64, description="Of the result; the method's own when left out."
    )
    file_name: FileName | None = Field(
        default=None, description="Of the result; made from the name when left out."
    )


class MergeRefusal(BaseModel):
    """The reason for which a merge failed."""

    code: str
    message: str


class MergeJobResponse(BaseModel):
    """One merge in the background."""

    merge_id: str
    state: MergeJobState
    progress: float = Field(ge=0, le=1, description="Share done, of a merge under way.")
    activity: str = Field(description="What is being done, in words.")
    site: Name
    name: Name
    round_id: str | None = Field(default=None, description="The round that it finishes, if any.")
    recipe: dict[str, Any]
    created_at: datetime
    created_by: str
    started_at: datetime | None
    ended_at: datetime | None
    refusal: MergeRefusal | None = Field(description="Why it failed, if it did.")
    version: str | None = Field(description="Address of the version that it became.")
    digest: str | None = Field(description="SHA-256 of the merged file.")


MOST_COMPARED = 6


class FitResponse(BaseModel):
    """The methods that can merge given models, or the reason why none can."""

    methods: list[str] = Field(description="Methods that can merge all of them.")
    problem: str = Field(default="", description="What differs, where no method can.")
    versions: list[ModelVersionResponse] = Field(
        default=[], description="The models, in the order in which they were named."
    )


MergeJobPage = Page[MergeJobResponse]


def recipe_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a recipe's canonical JSON without names, as statements give it."""
    return hashlib.sha256(canonical_json(strip_names(document, ()))).hexdigest()


def strip_names(document: Mapping[str, Any], placed: Container[str]) -> dict[str, Any]:
    """Return a recipe that gives only the digest of what is not among `placed`.

    What was left out of a merge to replace it is treated as its inputs are.
    """
    cut = {**document, "inputs": [_strip_entry(each, placed) for each in document["inputs"]]}
    claim = document.get("successor_of")
    if claim is not None:
        left_out = [_strip_entry(each, placed) for each in claim["without"]]
        cut["successor_of"] = {**claim, "without": left_out}
    return cut


def list_named_digests(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digest of everything that a recipe may give a name to."""
    for each in document["inputs"]:
        yield each["digest"]
    for each in (document.get("successor_of") or {}).get("without", ()):
        yield each["digest"]


def _strip_entry(entry: Mapping[str, Any], placed: Container[str]) -> dict[str, Any]:
    if entry["digest"] in placed:
        return dict(entry)
    return {**entry, "address": None, "file_name": None}
