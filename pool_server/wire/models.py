"""Models and their versions, the sharing of models, and what curators and owners ask for."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, computed_field

from pool_server.wire import names
from pool_server.wire.data_use import TermResponse
from pool_server.wire.signatures import SignedStatement
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


class ListedSite(names.RequestModel):
    """A site that a model is shared with, and what it may do."""

    site: names.Name
    rights: Rights | None = Field(
        default=None, description="Null: those of the whole audience, as `rights` gives them."
    )


class SharingRequest(names.RequestModel):
    """Share a model in this way, whatever was before."""

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


class ModelVersionResponse(BaseModel):
    """One version of one model: its file never changes."""

    site: names.Name
    name: names.Name
    version: int = Field(ge=1, description="Counted from 1 within the model.")
    kind: str = Field(description="`hog-svm`, `ert` or `network`.")
    format: str = Field(description="File format, recognised from the content.")
    digest: names.Digest = Field(description="SHA-256 of the file.")
    size_bytes: int = Field(ge=0)
    file_name: names.FileName = Field(
        description="Name under which the file was uploaded; a suggestion."
    )
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
    parent_digests: list[names.Digest] = Field(default_factory=list)
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


ModelPage = names.Page[ModelVersionResponse]

CONTRIBUTION, OPTIMISER_STATE, SECURE_SUM = "contribution", "optimiser-state", "secure-sum"
ROUND_FILES = {
    CONTRIBUTION: "a site's contribution to a round",
    OPTIMISER_STATE: "the optimiser's state after a round",
    SECURE_SUM: "the secure sum of a round",
}
"""The `kind` of files that the pool keeps to itself, in a family tree, and words for each."""


class LineageNode(BaseModel):
    """One model in a family tree: in the pool, or known by its digest only."""

    digest: names.Digest
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

    parent: names.Digest
    child: names.Digest
    weight: float = Field(description="The parent's weight as the recipe gives it.")
    method: str


class LineageResponse(BaseModel):
    """Ancestors and descendants of a version, with the recipe that made it."""

    root: names.Digest
    nodes: list[LineageNode]
    edges: list[LineageEdge]
    recipe: dict[str, Any] | None = None


class ModelDescription(names.RequestModel):
    """An uploader's description of a model."""

    description: names.Description = ""
    labels: dict[names.LabelKey, names.LabelValue] = Field(default_factory=dict, max_length=64)
    metrics: dict[names.LabelKey, names.FiniteFloat] = Field(default_factory=dict, max_length=64)


class ModelFilters(BaseModel):
    """The filters of a listing as they are asked for; a version must pass every one."""

    kind: str | None = Field(
        default=None, max_length=16, description="`hog-svm`, `ert` or `network`.", examples=["ert"]
    )
    site: names.Name | None = Field(
        default=None, description="Only of this site.", examples=["site-a"]
    )
    name: names.Name | None = Field(
        default=None, description="Only models of this name.", examples=["face-68"]
    )
    label: list[str] = Field(
        default=[],
        description="`KEY=VALUE`, `KEY` alone for any value, or a bound such as `KEY>=NUMBER` "
        "(also `>`, `<`, `<=`) for labels that are numbers; repeat to demand several.",
        examples=[["population=infant", "images>=500"]],
    )
    metric: list[str] = Field(
        default=[],
        description="`NAME<VALUE`, or with `<=`, `>`, `>=`, `=`; repeat to demand several.",
        examples=[["mean_error<0.08"]],
    )
    text: str = Field(
        default="",
        max_length=200,
        description="Words that must all occur in name, site, description or labels, also within "
        "other words; of one or two letters or digits, as a word.",
        examples=["air-puff hose"],
    )
    mergeable_with: str | None = Field(
        default=None,
        max_length=300,
        description="Address or `sha256:DIGEST` of a model of the pool: only versions that some "
        "method can merge with it, itself left out.",
        examples=["pool://site-a/face-68@2"],
    )
    mergeable_key: list[str] = Field(
        default=[],
        description="`METHOD:KEY` of a file that need not be in the pool; repeat for each method. "
        "Only versions that have one of the keys.",
        examples=[["wba-cascade:ert/68"]],
    )
    state: StateChoice | None = Field(
        default=None,
        description="Only versions in this state. When left out: all that are available, and "
        "drafts and quarantined versions of one's own site; `any` adds withdrawn ones.",
        examples=["available"],
    )
    latest: bool = Field(
        default=False,
        description="Only the newest version of each model: of those available, or in `state`.",
        examples=[True],
    )


class ModelQuery(ModelFilters):
    """A listing of versions: its filters, its order, and the page."""

    sort: str = Field(
        default="-created",
        max_length=80,
        description="`created`, `name` or `metric.NAME`, with `-` before it for descending: "
        "`-created` has the newest first. By a metric, only versions that have it are listed.",
        examples=["-created", "metric.mean_error"],
    )
    limit: int = Field(
        default=50, ge=1, le=200, description="Most items of the page.", examples=[50]
    )
    cursor: str | None = Field(
        default=None,
        max_length=400,
        description="`next_cursor` of the page before, with the same `sort`.",
        examples=["WyJ2MiIsIi1jcmVhdGVkIiw0Miw0Ml0"],
    )


class FacetCount(BaseModel):
    """One value, and how many of the versions that were counted have it."""

    value: str
    count: int = Field(ge=1)


class FacetsResponse(BaseModel):
    """Values that the versions of a listing have, most frequent first."""

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


class DescriptionRequest(ModelDescription):
    """Replace what is said of a version."""

    statement: SignedStatement | None = Field(
        default=None, description="Signed anew; needed where the version is signed."
    )


class QuarantineRequest(names.RequestModel):
    """Take a version out of sight until it has been looked into."""

    reason: Reason


class AliasRequest(names.RequestModel):
    """Let an alias mean a version, from now on."""

    version: str = Field(
        default=LATEST, max_length=80, description="Number, `latest`, `sha256:DIGEST` or alias."
    )


class DeletionResponse(BaseModel):
    """The versions that were deleted, and files made from them."""

    deleted: list[str] = Field(description="Addresses; they are never used again.")
    descendants: list[names.Digest] = Field(
        description="Files made from what was deleted. They stay; their family tree keeps the "
        "digests of what is gone."
    )
    file_remains: bool = Field(
        description="True where another version that one may see has the same bytes."
    )
