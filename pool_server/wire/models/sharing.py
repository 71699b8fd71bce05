"""With whom a model is shared, and what they may do with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire.names import Name

Right = Literal["see", "download", "merge", "redistribute"]
RIGHTS: tuple[Right, ...] = ("see", "download", "merge", "redistribute")

Visibility = Literal["private", "sites", "consortium"]
VISIBILITIES: tuple[Visibility, ...] = ("private", "sites", "consortium")

MOST_SITES = 1000

Rights = Annotated[
    list[Right],
    Field(max_length=8, description="Beyond `see`, which comes with every other right."),
]

_SHARING_EXAMPLE: dict[str, Any] = {
    "address": "pool://site-a/face-68",
    "visibility": "sites",
    "rights": ["see", "download", "merge"],
    "sites": [{"site": "site-b", "rights": ["see", "download", "merge"]}],
    "your_rights": ["see", "download", "merge", "redistribute"],
}


class ListedSite(BaseModel):
    """A site that a model is shared with, and what it may do."""

    model_config = ConfigDict(extra="forbid")

    site: Name
    rights: Rights | None = Field(
        default=None, description="Null: those of the whole audience, as `rights` gives them."
    )


class SharingRequest(BaseModel):
    """Share a model in this way, whatever was before."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"visibility": "private"},
                {"visibility": "consortium", "rights": ["download"]},
                {
                    "visibility": "sites",
                    "sites": [{"site": "site-b"}, {"site": "site-c", "rights": ["see"]}],
                },
            ]
        },
    )

    visibility: Visibility = Field(
        description="`private`: its own site; `sites`: those that are listed; `consortium`: all."
    )
    rights: Rights | None = Field(
        default=None, description="Of everybody who sees it; null: the pool's usual ones."
    )
    sites: list[ListedSite] = Field(
        default_factory=list, max_length=MOST_SITES, description="Only with visibility `sites`."
    )


class SharingResponse(BaseModel):
    """Whom a model is shared with."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SHARING_EXAMPLE]})

    address: str
    visibility: Visibility
    rights: list[Right] = Field(
        description="Of the whole audience; of a listed site that nothing else is said of."
    )
    sites: list[ListedSite] = Field(
        description="Those listed, by name; other sites than the model's own see only themselves."
    )
    your_rights: list[Right] = Field(description="What you may do with the model.")
