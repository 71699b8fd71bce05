"""Merges that the pool makes itself, and recipes with the names hidden from a reader removed.

A reader of a merged model may not see all of its inputs. A site signs the recipe without names, so
that readers without access to them can check the signature.
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

    The recipe gives method, options, inputs by digest. Without `output` the result is published
    with any digest; with it, only with the promised one.
    """

    site: Name
    name: Name
    recipe: dict[str, Any] = Field(description="As `poolctl merge` writes it.")
    format: str | None = Field(
        default=None, max_length=64, description="Format of the result; default: the method's own."
    )
    file_name: FileName | None = Field(
        default=None, description="File name of the result; default: made from the model's name."
    )


class MergeRefusal(BaseModel):
    """The reason why a merge failed."""

    code: str
    message: str


class MergeJobResponse(BaseModel):
    """One merge in the background."""

    merge_id: str
    state: MergeJobState
    progress: float = Field(ge=0, le=1, description="Completed share of a merge under way.")
    activity: str = Field(description="Description of the current step.")
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
    problem: str = Field(default="", description="The difference, if no method can.")
    versions: list[ModelVersionResponse] = Field(
        default=[], description="The models, in the order in which they were named."
    )


MergeJobPage = Page[MergeJobResponse]


def recipe_digest(document: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a recipe's canonical JSON without names, as statements have it."""
    return hashlib.sha256(canonical_json(strip_names(document, ()))).hexdigest()


def strip_names(document: Mapping[str, Any], placed: Container[str]) -> dict[str, Any]:
    """Return a recipe that names only inputs in `placed`, and others by digest alone.

    Inputs omitted from a merge to replace it are treated in the same way.
    """
    cut = {**document, "inputs": [_strip_entry(source, placed) for source in document["inputs"]]}
    claim = document.get("successor_of")
    if claim is not None:
        left_out = [_strip_entry(source, placed) for source in claim["without"]]
        cut["successor_of"] = {**claim, "without": left_out}
    return cut


def list_named_digests(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digest of every entry that a recipe may name."""
    for entry in document["inputs"]:
        yield entry["digest"]
    for entry in (document.get("successor_of") or {}).get("without", ()):
        yield entry["digest"]


def _strip_entry(entry: Mapping[str, Any], placed: Container[str]) -> dict[str, Any]:
    if entry["digest"] in placed:
        return dict(entry)
    return {**entry, "address": None, "file_name": None}
