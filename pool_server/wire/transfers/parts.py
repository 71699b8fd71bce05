"""Where the parts of an upload go: to the pool, or straight to its storage."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PartChecksum = Literal["md5", "sha256"]
MOST_PARTS_AT_ONCE = 1000

_REQUEST_EXAMPLE: dict[str, Any] = {
    "parts": [{"number": 2, "checksum": "25f9e794323b453885f5181f1b624d0b"}]
}
_LIST_EXAMPLE: dict[str, Any] = {
    "items": [
        {
            "number": 2,
            "url": "https://storage.example.org/pool/blobs/9f/9f86.../0123?X-Amz-Signature=...",
            "headers": {"Content-Length": "3222784", "Content-MD5": "JfnnlDI7RTiF9RgfG2JNCw=="},
            "expires_at": "2026-03-02T12:15:00Z",
        }
    ]
}


class OfferedPart(BaseModel):
    """A part that is about to be sent."""

    model_config = ConfigDict(extra="forbid")

    number: int = Field(ge=1, le=999_999)
    checksum: str | None = Field(
        default=None,
        pattern="^([0-9a-f]{32}|[0-9a-f]{64})$",
        description="Of the part's bytes, in hexadecimal, by the upload's `part_checksum`.",
    )


class PartAddressesRequest(BaseModel):
    """Ask where to send some parts; an address expires, so ask shortly before sending."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_REQUEST_EXAMPLE]})

    parts: list[OfferedPart] = Field(min_length=1, max_length=MOST_PARTS_AT_ONCE)


class PartAddressResponse(BaseModel):
    """Where one part goes, with PUT: these bytes, these headers, and no token to another host."""

    number: int
    url: str = Field(description="Relative to the pool's address, or absolute: its storage.")
    headers: dict[str, str] = Field(description="To be sent along as they are.")
    expires_at: datetime | None = Field(
        default=None, description="Sending must begin before; null where it may begin at any time."
    )


class PartAddressList(BaseModel):
    """Addresses of the parts that were asked for, in the same order."""

    model_config = ConfigDict(json_schema_extra={"examples": [_LIST_EXAMPLE]})

    items: list[PartAddressResponse]
