"""Withdrawals: versions that were withdrawn and why, what holds them, and what replaces them."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from pool_server.wire.names import Digest, ItemList, Name, Page, RequestModel

WithdrawalReason = Literal[
    "consent-withdrawn", "licence", "security", "quality", "data-error", "other"
]
WithdrawalEffect = Literal["warn", "refuse"]

EFFECT_OF_REASON: dict[WithdrawalReason, WithdrawalEffect] = {
    "consent-withdrawn": "refuse",
    "licence": "refuse",
    "security": "refuse",
    "quality": "warn",
    "data-error": "warn",
    "other": "warn",
}
"""The effect of a reason on downloads of the withdrawn bytes; stricter can be asked for.

A version in quarantine is refused for every reason.
"""

WARNING_HEADER = "X-Pool-Warning"
"""Header of a download that works although something is wrong with the file."""

MOST_CHECKED = 500
MOST_NAMED = 1000
"""So many versions are named in a preview; `versions_total` counts all."""

# Lines and tabs, but nothing else that would write on the terminals of other sites.
Explanation = Annotated[
    str, StringConstraints(max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$")
]


class WithdrawalRequest(RequestModel):
    """Withdraw a version, for good."""

    reason: WithdrawalReason
    explanation: Explanation = Field(default="", description="For those who used it.")
    effect: WithdrawalEffect | None = Field(
        default=None,
        description="What becomes of downloads: by the reason when left out, or stricter.",
    )
    successor: str | None = Field(
        default=None, max_length=300, description="Address of a version to use instead, if any."
    )


class Withdrawal(BaseModel):
    """A version was withdrawn: why, and what becomes of downloads."""

    address: str
    digest: Digest
    reason: WithdrawalReason
    explanation: str
    effect: WithdrawalEffect = Field(
        description="`refuse`: its bytes are not given out any more; `warn`: with a warning."
    )
    withdrawn_at: datetime
    withdrawn_by: str
    successors: list[str] = Field(
        default_factory=list, description="Addresses of versions made to replace it."
    )


class WithdrawalFlag(BaseModel):
    """A version holds something that was withdrawn, directly or through other merges."""

    address: str = Field(
        description="What was withdrawn; `sha256:DIGEST` where it is not shared with all."
    )
    digest: Digest = Field(
        description="Of what was withdrawn; that of the version itself where the very same bytes "
        "were withdrawn under another name."
    )
    reason: WithdrawalReason
    effect: WithdrawalEffect = Field(description="Of downloads of the withdrawn bytes themselves.")
    flagged_at: datetime


class AffectedVersion(BaseModel):
    """A version that a withdrawal flags."""

    address: str
    digest: Digest
    site: Name
    same_bytes: bool = Field(description="It is the withdrawn file under another name.")
    successors: list[str] = Field(default_factory=list)


class AffectedSite(BaseModel):
    """A site that hears of a withdrawal."""

    site: Name
    versions: int = Field(description="How many flagged versions are its own.")
    downloaded: int = Field(
        description="How many of the withdrawn and flagged versions it has fetched."
    )


class WithdrawalPreview(BaseModel):
    """The versions and sites that a withdrawal concerns, or would concern."""

    address: str
    digest: Digest
    withdrawn: bool = Field(description="True when it has been withdrawn already.")
    versions: list[AffectedVersion] = Field(
        description="What is flagged; only what the caller may see is named."
    )
    versions_total: int = Field(description="How many are flagged, named here or not.")
    sites: list[AffectedSite] = Field(description="Who hears of it.")


class WithdrawalResponse(BaseModel):
    """A withdrawal that was just made, and the versions and sites concerned."""

    withdrawal: Withdrawal
    versions: list[AffectedVersion]
    versions_total: int
    sites: list[AffectedSite]


class SuccessorRequest(RequestModel):
    """Name a version to use instead of another."""

    successor: str = Field(max_length=300, description="Its address, `SITE/NAME@VERSION`.")


class SuccessorResponse(BaseModel):
    """The replacement of a version."""

    address: str
    digest: Digest
    successor: str = Field(description="Address of the version that was named just now.")
    successors: list[str] = Field(
        description="Addresses that are shown to everybody who sees the replaced version, newest "
        "first; those that are not shared with all of them are left out."
    )


WithdrawalPage = Page[Withdrawal]


class CheckRequest(RequestModel):
    """Ask about files by their digests."""

    digests: list[Digest] = Field(min_length=1, max_length=MOST_CHECKED)


class CheckedFile(BaseModel):
    """The withdrawals that concern one digest.

    Only files with something wrong are listed, so that the answer does not reveal which other
    files the pool has.
    """

    digest: Digest
    withdrawals: list[Withdrawal] = Field(description="Of these very bytes.")
    flags: list[WithdrawalFlag] = Field(description="Of what it holds.")
    successors: list[str]


CheckResponse = ItemList[CheckedFile]
