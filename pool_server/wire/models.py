"""Models and their versions, the sharing of models, and the requests of curators and owners."""

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
    """A site in a model's list, and its rights."""

    site: names.Name
    rights: Rights | None = Field(
        default=None, description="Null: those of the whole audience, as `rights` gives them."
    )


class SharingRequest(names.RequestModel):
    """Replace the sharing of a model."""

    visibility: Visibility = Field(
        description="`private`: its own site; `sites`: the listed ones; `consortium`: all."
    )
    rights: Rights | None = Field(
        default=None, description="Rights of every site that sees it; null: the pool's default."
    )
    sites: list[ListedSite] = Field(
        default_factory=list, max_length=MOST_SITES, description="Only with visibility `sites`."
    )


class SharingResponse(BaseModel):
    """The sharing of a model."""

    address: str
    visibility: Visibility
    rights: list[Right] = Field(
        description="Rights of the whole audience, and of listed sites without their own."
    )
    sites: list[ListedSite] = Field(
        description="Those listed, by name; other sites than the model's own see only themselves."
    )
    your_rights: list[Right] = Field(description="Your rights to the model.")


VersionState = Literal["draft", "available", "quarantined", "withdrawn", "deleted"]
StateChoice = Literal["draft", "available", "quarantined", "withdrawn", "any", "waiting"]
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
        description="Properties read from the file: window, parts, levels ... Lists, such as "
        "the tensors of a network, only where one version is asked for, not in listings."
    )
    mergeable_by: list[str] = Field(
        description="Aggregation methods that take this model at all; with `mergeable_with`, "
        "those that can merge it with the given one."
    )
    terms: list[TermResponse] = Field(
        default_factory=list, description="Terms of use; all of them hold together."
    )
    visibility: Visibility = Field(
        default="consortium", description="The model's audience: its site, those listed, or all."
    )
    state: VersionState = "available"
    state_reason: str = Field(default="", description="Why it was quarantined or withdrawn.")
    state_changed_at: datetime | None = None
    state_changed_by: str = Field(default="", description="Site and name of the token.")
    has_card: bool = Field(default=False, description="True if somebody wrote a card for it.")
    created_at: datetime
    created_by: str = Field(description="Site and name of the token that uploaded it.")
    has_recipe: bool = Field(description="True for a merged model.")
    parent_digests: list[names.Digest] = Field(default_factory=list)
    signed_by: SignatureSummary | None = Field(
        default=None, description="The key of its site's signature; null if unsigned."
    )
    withdrawal: Withdrawal | None = Field(
        default=None, description="Reason of the withdrawal, and its effect on downloads."
    )
    flags: list[WithdrawalFlag] = Field(
        default_factory=list, description="Withdrawn files that it contains."
    )
    successors: list[str] = Field(
        default_factory=list, description="Addresses of versions made to replace it."
    )

    @computed_field(  # type: ignore[prop-decorator]
        description="The permanent address of this version."
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
"""The `kind` of files in a family tree that the pool does not publish, and descriptions."""


class LineageNode(BaseModel):
    """One model in a family tree: in the pool, or known by its digest only."""

    digest: names.Digest
    addresses: list[str] = Field(
        description="Its addresses in the pool; empty if the pool lacks it."
    )
    kind: str | None = Field(
        default=None,
        description="`hog-svm`, `ert` or `network`; `contribution` for a site's file in a "
        "round, and `optimiser-state` for an input of the next round, neither of them published; "
        "null if the pool does not know.",
    )
    depth: int = Field(
        description="0 for the requested model, negative for ancestors, positive for descendants."
    )
    withdrawn: WithdrawalReason | None = Field(
        default=None, description="Why it was withdrawn, if it was."
    )
    flagged: bool = Field(default=False, description="It contains a withdrawn file.")
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
    """The filters of a listing; a version must pass every one."""

    kind: str | None = Field(
        default=None, max_length=16, description="`hog-svm`, `ert` or `network`."
    )
    site: names.Name | None = Field(default=None, description="Only of this site.")
    name: names.Name | None = Field(default=None, description="Only models of this name.")
    label: list[str] = Field(
        default=[],
        description="`KEY=VALUE`, `KEY` alone for any value, or a bound such as `KEY>=NUMBER` "
        "(also `>`, `<`, `<=`) for labels that are numbers; repeat to demand several.",
    )
    metric: list[str] = Field(
        default=[],
        description="`NAME<VALUE`, or with `<=`, `>`, `>=`, `=`; repeat to demand several.",
    )
    text: str = Field(
        default="",
        max_length=200,
        description="Words that must all occur in name, site, description or labels, also within "
        "other words; of one or two letters or digits, as a word.",
    )
    mergeable_with: str | None = Field(
        default=None,
        max_length=300,
        description="Address or `sha256:DIGEST` of a model of the pool: only versions that some "
        "method can merge with it, itself excluded.",
    )
    mergeable_key: list[str] = Field(
        default=[],
        description="`METHOD:KEY` of a file that need not be in the pool; repeat for each method. "
        "Only versions that have one of the keys.",
    )
    state: StateChoice | None = Field(
        default=None,
        description="Only versions in this state. Default: available versions, and "
        "drafts and "
        "quarantined versions of your own site; `any` adds withdrawn ones. `waiting`: those that "
        "wait for a curator, drafts and quarantined ones.",
    )
    latest: bool = Field(
        default=False,
        description="Only the newest version of each model: of those available, or in `state`.",
    )


class ModelQuery(ModelFilters):
    """A listing of versions: its filters, its order, and the page."""

    sort: str = Field(
        default="-created",
        max_length=80,
        description="`created`, `name` or `metric.NAME`, with the prefix `-` for descending: "
        "`-created` has the newest first. Sorting by a metric omits versions without it.",
    )
    limit: int = Field(default=50, ge=1, le=200, description="Maximum number of items of the page.")
    cursor: str | None = Field(
        default=None,
        max_length=400,
        description="`next_cursor` of the previous page, with the same `sort`.",
    )


class FacetCount(BaseModel):
    """One value, and the number of counted versions with it."""

    value: str
    count: int = Field(ge=1)


class FacetsResponse(BaseModel):
    """Values of the versions of a listing, most frequent first."""

    counted: int = Field(description="Number of counted versions.")
    complete: bool = Field(
        description="Whether the whole listing was counted; otherwise only its newest versions "
        "were."
    )
    kinds: list[FacetCount]
    sites: list[FacetCount]
    states: list[FacetCount]
    labels: dict[str, list[FacetCount]] = Field(
        description="By key of the core vocabulary; only keys with words as values."
    )


LATEST = "latest"
"""The newest available version."""

Reason = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=1000, pattern=r"^[^\x00]*$"),
]


class DescriptionRequest(ModelDescription):
    """Replace the description of a version."""

    statement: SignedStatement | None = Field(
        default=None, description="A new signature; required if the version is signed."
    )


class QuarantineRequest(names.RequestModel):
    """Hide a version until it has been investigated."""

    reason: Reason
