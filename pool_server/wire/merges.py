"""Merges that the pool makes itself, from models that it has."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire.names import FileName, Name
from pool_server.wire.transfers.uploads import VersionDescription

MergeJobState = Literal["queued", "running", "finished", "failed", "cancelled"]

MERGE_KEY_PATTERN = r"^[0-9a-f]{16}$"

_RECIPE_EXAMPLE: dict[str, Any] = {
    "schema": "poolctl-recipe/1",
    "method": {"name": "wba-cascade", "version": 1},
    "options": {"step": 1.1},
    "inputs": [
        {"digest": "9f86" * 16, "weight": 1.5, "address": "pool://site-a/face-68@2"},
        {"digest": "60ab" * 16, "weight": 1.0, "address": "pool://site-b/face-68@1"},
    ],
}
_JOB_EXAMPLE: dict[str, Any] = {
    "merge_id": "4f1d2c3b4a596877",
    "state": "running",
    "progress": 0.4,
    "activity": "reading site-b/face-68@1",
    "site": "site-c",
    "name": "merged-68",
    "round_id": None,
    "recipe": _RECIPE_EXAMPLE,
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-c/laptop",
    "started_at": "2026-03-01T12:00:01Z",
    "ended_at": None,
    "refusal": None,
    "version": None,
    "digest": None,
}


class MergeRequest(VersionDescription):
    """Merge models of the pool on the pool's machine.

    The recipe says what to do: method, options, inputs by digest. Without `output` the result is
    published whatever its digest; with it, only when its digest is the promised one.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"site": "site-c", "name": "merged-68", "recipe": _RECIPE_EXAMPLE}]
        },
    )

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
    """Why a merge failed."""

    code: str
    message: str


class MergeJobResponse(BaseModel):
    """One merge in the background."""

    model_config = ConfigDict(json_schema_extra={"examples": [_JOB_EXAMPLE]})

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


class MergeJobPage(BaseModel):
    """One page of merges, newest first."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": [_JOB_EXAMPLE], "next_cursor": None}]}
    )

    items: list[MergeJobResponse]
    next_cursor: str | None = None
