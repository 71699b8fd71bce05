"""Uploads under way, as a listing tells of them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire.names import Digest

Purpose = Literal["version", "contribution", "result", "state", "secure"]
OpenState = Literal["receiving", "checking"]

_UPLOAD_EXAMPLE: dict[str, Any] = {
    "upload_id": "0123456789abcdef0123456789abcdef",
    "site": "site-a",
    "name": "face-68",
    "purpose": "version",
    "file_name": "siteA.dat",
    "size_bytes": 20_000_000,
    "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "state": "receiving",
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-a/laptop",
    "expires_at": "2026-03-02T12:00:00Z",
}


class OpenUpload(BaseModel):
    """An upload under way, without its parts: ask for the upload itself for those."""

    upload_id: str
    site: str
    name: str = Field(description="Of the model; else the identifier of the round or session.")
    purpose: Purpose
    file_name: str
    size_bytes: int
    digest: Digest
    state: OpenState
    created_at: datetime
    created_by: str = Field(description="Site and name of the token.")
    expires_at: datetime = Field(description="Cleared away then, unless it is gone on with.")


class OpenUploadPage(BaseModel):
    """One page of uploads under way, newest first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "items": [_UPLOAD_EXAMPLE],
                    "next_cursor": "djE6YXQ9MTc3MjM2NjQwMDAwMDAwMDtrZXk9MDEyMzQ1Njc4OWFiY2RlZg",
                }
            ]
        }
    )

    items: list[OpenUpload]
    next_cursor: str | None = Field(
        default=None, description="Give it back as `cursor` for the next page; absent on the last."
    )
