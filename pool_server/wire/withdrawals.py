"""Withdrawals: withdrawn versions with the reasons, flagged versions, and successors."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from pool_server.wire.names import Digest, ItemList, Name, RequestModel

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
"""The effect of a reason on downloads of the withdrawn bytes.

Downloads of a version in quarantine are always refused.
"""

WARNING_HEADER = "X-Pool-Warning"
"""Header of a download that works although something is wrong with the file."""

MOST_CHECKED = 500
MOST_NAMED = 1000
"""Maximum number of versions named in a preview; `versions_total` counts all."""

# Lines and tabs, but no other control characters for the terminals of other sites.
Explanation = Annotated[
    str, StringConstraints(max_length=4000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$")
]


class WithdrawalRequest(RequestModel):
    """Withdraw a version, for good."""

    reason: WithdrawalReason
    explanation: Explanation = Field(default="", description="Text for its users.")
    successor: str | None = Field(
        default=None, max_length=300, description="Address of a version to use instead, if any."
    )


class Withdrawal(BaseModel):
    """A version's withdrawal, with its reason and its effect on downloads."""

    address: str
    digest: Digest
    reason: WithdrawalReason
    explanation: str
    effect: WithdrawalEffect = Field(
        description="`refuse`: downloads are refused; `warn`: they carry a warning."
    )
    withdrawn_at: datetime
    withdrawn_by: str
    successors: list[str] = Field(
        default_factory=list, description="Addresses of versions made to replace it."
    )


class WithdrawalFlag(BaseModel):
    """A flag: the version contains a withdrawn file, directly or through other merges."""

    address: str = Field(description="The withdrawn version; `sha256:DIGEST` if you cannot see it.")
    digest: Digest = Field(
        description="Of the withdrawn file; equal to the version's own if the same bytes were "
        "withdrawn under another name."
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
    """A site notified of a withdrawal."""

    site: Name
    versions: int = Field(description="Number of its own flagged versions.")
    downloaded: int = Field(
        description="Number of withdrawn and flagged versions that it has downloaded."
    )


class WithdrawalImpact(BaseModel):
    """The versions and sites concerned by a withdrawal, real or previewed."""

    address: str
    digest: Digest
    withdrawn: bool = Field(description="True if it has been withdrawn already.")
    versions: list[AffectedVersion] = Field(
        description="The flagged versions that the caller may see."
    )
    versions_total: int = Field(description="Number of flagged versions, visible or not.")
    sites: list[AffectedSite] = Field(description="The notified sites.")
    withdrawal: Withdrawal | None = Field(
        default=None, description="The withdrawal that was just made; null in a preview."
    )


class CheckRequest(RequestModel):
    """Ask about files by their digests."""

    digests: list[Digest] = Field(min_length=1, max_length=MOST_CHECKED)


class CheckedFile(BaseModel):
    """The withdrawals that concern one digest.

    Only files with something wrong are listed, so the answer does not reveal the pool's other
    files.
    """

    digest: Digest
    withdrawals: list[Withdrawal] = Field(description="Withdrawals of these bytes.")
    flags: list[WithdrawalFlag] = Field(description="Withdrawals of files that it contains.")
    successors: list[str]


CheckResponse = ItemList[CheckedFile]
