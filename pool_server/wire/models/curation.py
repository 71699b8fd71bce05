"""What curators and owners do with versions: publish, describe, quarantine, delete, name."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.models.models import ModelDescription
from pool_server.wire.names import Digest
from pool_server.wire.signatures.signatures import SignedStatement

ALIAS_PATTERN = r"^[a-z][a-z0-9._-]{0,63}$"
LATEST = "latest"
"""Always the newest available version; no alias can have this name."""

Reason = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=1000, pattern=r"^[^\x00]*$"),
]

_DELETION_EXAMPLE: dict[str, Any] = {
    "deleted": ["pool://site-a/face-68@2"],
    "descendants": [],
    "file_remains": False,
}


class DescriptionRequest(ModelDescription):
    """Replace what is said of a version."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"description": "Infants", "labels": {"population": "infant"}}]
        },
    )

    statement: SignedStatement | None = Field(
        default=None, description="Signed anew; needed where the version is signed."
    )


class QuarantineRequest(BaseModel):
    """Take a version out of sight until it has been looked into."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"reason": "Landmarks of the left eye are swapped."}]},
    )

    reason: Reason


class AliasRequest(BaseModel):
    """Let an alias mean a version, from now on."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"version": "2"}]})

    version: str = Field(
        default=LATEST, max_length=80, description="Number, `latest`, `sha256:DIGEST` or alias."
    )


class DeletionResponse(BaseModel):
    """What was deleted, and what was made from it."""

    model_config = ConfigDict(json_schema_extra={"examples": [_DELETION_EXAMPLE]})

    deleted: list[str] = Field(description="Addresses; they are never used again.")
    descendants: list[Digest] = Field(
        description="Files made from what was deleted. They stay; their family tree keeps the "
        "digests of what is gone."
    )
    file_remains: bool = Field(
        description="True where another version that one may see has the same bytes."
    )
