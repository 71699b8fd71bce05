"""Uploads: announced, sent in parts, completed."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from pool_server.wire import cards, data_use, models, names
from pool_server.wire.signatures import SignedStatement

MOST_TERMS = 32

UploadState = Literal["receiving", "checking", "complete", "refused", "expired"]

DespiteWithdrawal = Annotated[
    bool, Field(description="Proceed although an input was withdrawn or contains a withdrawn file.")
]


class VersionDescription(models.ModelDescription):
    """The description of a new version, by its uploader or the requester of a merge."""

    terms: list[data_use.Term] = Field(
        default_factory=list,
        max_length=MOST_TERMS,
        description="Terms of use. A merged model also inherits those of its inputs.",
    )
    visibility: models.Visibility | None = Field(
        default=None,
        description="Audience of a new model: its own site, sites listed later, or all; "
        "null: the pool's default, or only its own site if an input from another site is not "
        "shared with all.",
    )
    card: cards.CardText = Field(default="", description="Markdown with YAML in front.")
    draft: bool = Field(
        default=False, description="Visible to your own site and the pool's curators only."
    )
    despite_withdrawal: DespiteWithdrawal = False


class UploadRequest(VersionDescription):
    """Announce a file: its destination, its size, and its digest.

    Announcing the same digest for the same model again returns the upload that is already under
    way, so that an interrupted client can resume.
    """

    site: names.Name
    name: names.Name
    size_bytes: names.Whole = Field(ge=1)
    digest: names.Digest
    file_name: names.FileName
    recipe: dict[str, Any] | None = Field(
        default=None, description="The recipe of a merged model; its inputs become its parents."
    )
    statement: SignedStatement | None = Field(
        default=None, description="The site's signed statement about the file and this description."
    )


class UploadPart(BaseModel):
    """One part: bytes `offset` to `offset + size_bytes` of the file."""

    number: int = Field(ge=1)
    offset: int = Field(ge=0)
    size_bytes: int = Field(ge=1)
    received: bool


class UploadResponse(BaseModel):
    """State of an upload; `parts` lists the parts that are still missing."""

    upload_id: str
    state: UploadState
    size_bytes: int
    digest: names.Digest
    part_size_bytes: int
    part_checksum: "PartChecksum | None" = Field(
        default=None, description="Checksum to send with each part's request for an address."
    )
    parts: list[UploadPart]
    expires_at: datetime
    version: models.ModelVersionResponse | None = Field(
        default=None, description="Set once the upload is complete."
    )


PartChecksum = Literal["md5", "sha256"]
MOST_PARTS_AT_ONCE = 1000


class OfferedPart(names.RequestModel):
    """A part about to be sent."""

    number: names.Whole = Field(ge=1, le=999_999)
    checksum: str | None = Field(
        default=None,
        pattern="^([0-9a-f]{32}|[0-9a-f]{64})$",
        description="Hexadecimal checksum of the part, by the upload's `part_checksum`.",
    )


class PartAddressesRequest(names.RequestModel):
    """Ask for the addresses of some parts; an address expires, so ask shortly before sending."""

    parts: list[OfferedPart] = Field(min_length=1, max_length=MOST_PARTS_AT_ONCE)


class PartAddressResponse(BaseModel):
    """The address of one part, for PUT: these bytes, these headers, and no token elsewhere."""

    number: int
    url: str = Field(description="Relative to the pool's address, or absolute: its storage.")
    headers: dict[str, str] = Field(description="Send them unchanged.")
    expires_at: datetime | None = Field(
        default=None, description="Latest time to begin sending; null: any time."
    )


PartAddressList = names.ItemList[PartAddressResponse]

Purpose = Literal["version", "contribution", "result", "state", "secure"]
OpenState = Literal["receiving", "checking"]


class OpenUpload(BaseModel):
    """An upload under way; its parts are listed by the upload itself."""

    upload_id: str
    site: str
    name: str = Field(description="Name of the model, or identifier of the round or session.")
    purpose: Purpose
    file_name: str
    size_bytes: int
    digest: names.Digest
    state: OpenState
    created_at: datetime
    created_by: str = Field(description="Site and name of the token.")
    expires_at: datetime = Field(description="Time of its removal unless it is resumed.")


OpenUploadList = names.ItemList[OpenUpload]
