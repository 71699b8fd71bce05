"""Models and their versions, the sharing of models, and what curators and owners ask for."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, computed_field

from pool_server.wire.data_use import TermResponse
from pool_server.wire.names import (
    Description,
    Digest,
    FileName,
    FiniteFloat,
    LabelKey,
    LabelValue,
    Name,
    NextCursor,
    request_config,
    response_config,
)
from pool_server.wire.signatures.signatures import SignedStatement
from pool_server.wire.signatures.statements import SignatureSummary
from pool_server.wire.withdrawals import Withdrawal, WithdrawalFlag, WithdrawalReason

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

    model_config = request_config(
        {"visibility": "private"},
        {"visibility": "consortium", "rights": ["download"]},
        {
            "visibility": "sites",
            "sites": [{"site": "site-b"}, {"site": "site-c", "rights": ["see"]}],
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
    """The sharing of a model."""

    model_config = response_config(_SHARING_EXAMPLE)

    address: str
    visibility: Visibility
    rights: list[Right] = Field(
        description="Of the whole audience; of a listed site that nothing else is said of."
    )
    sites: list[ListedSite] = Field(
        description="Those listed, by name; other sites than the model's own see only themselves."
    )
    your_rights: list[Right] = Field(description="What you may do with the model.")


VersionState = Literal["draft", "available", "quarantined", "withdrawn", "deleted"]
StateChoice = Literal["draft", "available", "quarantined", "withdrawn", "any"]
"""States that a listing can be asked for; deleted versions are shown to nobody."""

_FACE_VERSION_EXAMPLE: dict[str, Any] = {
    "site": "site-a",
    "name": "face-68",
    "version": 2,
    "address": "pool://site-a/face-68@2",
    "kind": "ert",
    "format": "dlib-shape-predictor",
    "digest": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "size_bytes": 123_456_789,
    "file_name": "siteA.dat",
    "description": "Infants, air-puff hose in view",
    "labels": {"population": "infant", "images": "1111"},
    "metrics": {"mean_error": 0.0727},
    "fingerprint": {"kind": "ert", "parts": 68, "levels": 10},
    "mergeable_by": ["wba-cascade", "wba-final"],
    "terms": [
        {"code": "DUO:0000042", "label": "general research use", "detail": "", "inherited": False}
    ],
    "aliases": ["best"],
    "visibility": "consortium",
    "state": "available",
    "state_reason": "",
    "state_changed_at": None,
    "state_changed_by": "",
    "has_card": False,
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-a/laptop",
    "has_recipe": False,
    "parent_digests": [],
    "withdrawal": None,
    "flags": [],
    "successors": [],
}


_LINEAGE_EXAMPLE: dict[str, Any] = {
    "root": "60ab" * 16,
    "nodes": [
        {"digest": "9f86" * 16, "addresses": [], "kind": None, "depth": -1},
        {"digest": "60ab" * 16, "addresses": ["pool://site-c/merged@1"], "kind": "ert", "depth": 0},
    ],
    "edges": [
        {"parent": "9f86" * 16, "child": "60ab" * 16, "weight": 1.5, "method": "wba-cascade"}
    ],
    "recipe": {"schema": "poolctl-recipe/1", "method": {"name": "wba-cascade", "version": 1}},
}


class ModelVersionResponse(BaseModel):
    """One version of one model: its file never changes."""

    model_config = response_config(_FACE_VERSION_EXAMPLE)

    site: Name
    name: Name
    version: int = Field(ge=1, description="Counted from 1 within the model.")
    kind: str = Field(description="`hog-svm`, `ert` or `network`.")
    format: str = Field(description="File format, recognised from the content.")
    digest: Digest = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(ge=0)
    file_name: FileName = Field(description="Name under which the file was uploaded; a suggestion.")
    description: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    metrics: dict[str, float] = Field(default_factory=dict)
    fingerprint: dict[str, Any] = Field(
        description="What the server read from the file: window, parts, levels ... Lists, such as "
        "the tensors of a network, only where one version is asked for, not in listings."
    )
    mergeable_by: list[str] = Field(
        description="Aggregation methods that take this model at all; with `mergeable_with`, "
        "those that can merge it with the given one."
    )
    terms: list[TermResponse] = Field(
        default_factory=list, description="Terms of use; all of them hold together."
    )
    aliases: list[str] = Field(
        default_factory=list, description="Names that mean this version until they are moved."
    )
    visibility: Visibility = Field(
        default="consortium", description="Who sees the model: its site, those listed, or all."
    )
    state: VersionState = "available"
    state_reason: str = Field(default="", description="Why it was quarantined or withdrawn.")
    state_changed_at: datetime | None = None
    state_changed_by: str = Field(default="", description="Site and name of the token.")
    has_card: bool = Field(default=False, description="True where a card was written for it.")
    created_at: datetime
    created_by: str = Field(description="Site and name of the token that uploaded it.")
    has_recipe: bool = Field(description="True for a merged model.")
    parent_digests: list[Digest] = Field(default_factory=list)
    signed_by: SignatureSummary | None = Field(
        default=None, description="The key that its site signed it with; null where it did not."
    )
    withdrawal: Withdrawal | None = Field(
        default=None, description="Why it was withdrawn, and what becomes of downloads."
    )
    flags: list[WithdrawalFlag] = Field(
        default_factory=list, description="What it holds that was withdrawn."
    )
    successors: list[str] = Field(
        default_factory=list, description="Addresses of versions made to replace it."
    )

    @computed_field(  # type: ignore[prop-decorator]
        description="What names this version for ever.", examples=["pool://site-a/face-68@2"]
    )
    @property
    def address(self) -> str:
        return f"pool://{self.site}/{self.name}@{self.version}"


class ModelPage(BaseModel):
    """One page of a listing, newest first."""

    model_config = response_config(
        {"items": [_FACE_VERSION_EXAMPLE], "next_cursor": "djE6YmVmb3JlPTQy"}
    )

    items: list[ModelVersionResponse]
    next_cursor: NextCursor = None


CONTRIBUTION, OPTIMISER_STATE, SECURE_SUM = "contribution", "optimiser-state", "secure-sum"
ROUND_FILES = {
    CONTRIBUTION: "a site's contribution to a round",
    OPTIMISER_STATE: "the optimiser's state after a round",
    SECURE_SUM: "the secure sum of a round",
}
"""The `kind` of files that the pool keeps to itself, in a family tree, and words for each."""


class LineageNode(BaseModel):
    """One model in a family tree: in the pool, or known by its digest only."""

    digest: Digest
    addresses: list[str] = Field(description="Where the pool has it; empty when it has not.")
    kind: str | None = Field(
        default=None,
        description="`hog-svm`, `ert` or `network`; `contribution` for what a site gave to a "
        "round, and `optimiser-state` for what the next round takes, which the pool keeps to "
        "itself; null where the pool does not know.",
    )
    depth: int = Field(description="0 the model asked for, negative ancestors, positive heirs.")
    withdrawn: WithdrawalReason | None = Field(
        default=None, description="Why it was withdrawn, if it was."
    )
    flagged: bool = Field(default=False, description="It holds something that was withdrawn.")
    recipe: dict[str, Any] | None = Field(
        default=None, description="With `recipes=true`: how it was merged."
    )


class LineageEdge(BaseModel):
    """`child` was made from `parent`."""

    parent: Digest
    child: Digest
    weight: float = Field(description="The parent's weight as the recipe gives it.")
    method: str


class LineageResponse(BaseModel):
    """Ancestors and descendants of a version, with the recipe that made it."""

    model_config = response_config(_LINEAGE_EXAMPLE)

    root: Digest
    nodes: list[LineageNode]
    edges: list[LineageEdge]
    recipe: dict[str, Any] | None = None


class ModelDescription(BaseModel):
    """An uploader's description of a model."""

    model_config = ConfigDict(extra="forbid")

    description: Description = ""
    labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=64)
    metrics: dict[LabelKey, FiniteFloat] = Field(default_factory=dict, max_length=64)


_EXAMPLE: dict[str, Any] = {
    "counted": 31,
    "complete": True,
    "kinds": [{"value": "ert", "count": 24}, {"value": "hog-svm", "count": 7}],
    "sites": [{"value": "site-a", "count": 18}, {"value": "site-b", "count": 13}],
    "states": [{"value": "available", "count": 31}],
    "labels": {"population": [{"value": "infant", "count": 20}, {"value": "adult", "count": 9}]},
}


class FacetCount(BaseModel):
    """One value, and how many of the versions that were counted have it."""

    value: str
    count: int = Field(ge=1)


class FacetsResponse(BaseModel):
    """Values that the versions of a listing have, most frequent first."""

    model_config = response_config(_EXAMPLE)

    counted: int = Field(description="How many versions were looked at.")
    complete: bool = Field(
        description="Whether these are all that the listing has. If not, they are its newest, and "
        "all counts are of those."
    )
    kinds: list[FacetCount]
    sites: list[FacetCount]
    states: list[FacetCount]
    labels: dict[str, list[FacetCount]] = Field(
        description="By key of the core vocabulary; keys whose values are words."
    )


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

    model_config = request_config({"description": "Infants", "labels": {"population": "infant"}})

    statement: SignedStatement | None = Field(
        default=None, description="Signed anew; needed where the version is signed."
    )


class QuarantineRequest(BaseModel):
    """Take a version out of sight until it has been looked into."""

    model_config = request_config({"reason": "Landmarks of the left eye are swapped."})

    reason: Reason


class AliasRequest(BaseModel):
    """Let an alias mean a version, from now on."""

    model_config = request_config({"version": "2"})

    version: str = Field(
        default=LATEST, max_length=80, description="Number, `latest`, `sha256:DIGEST` or alias."
    )


class DeletionResponse(BaseModel):
    """The versions that were deleted, and files made from them."""

    model_config = response_config(_DELETION_EXAMPLE)

    deleted: list[str] = Field(description="Addresses; they are never used again.")
    descendants: list[Digest] = Field(
        description="Files made from what was deleted. They stay; their family tree keeps the "
        "digests of what is gone."
    )
    file_remains: bool = Field(
        description="True where another version that one may see has the same bytes."
    )
