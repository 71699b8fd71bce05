"""Rounds: several sites refine one model, each on data that stay at home."""

import hashlib
import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.names import Description, Digest, FileName, Name, Page, RequestModel, Whole
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.uploads import DespiteWithdrawal

RoundState = Literal["open", "closed", "finished", "expired", "cancelled"]
ParticipantState = Literal["waiting", "contributed", "late", "missing"]

ROUND_KEY_PATTERN = r"^[0-9a-f]{16}$"

DEFAULT_LEAST_OTHERS = 2
"""With one other site, that site could subtract its own contribution from the result."""

LeastOthers = Annotated[
    Whole,
    Field(
        ge=1,
        le=199,
        description="The contribution may only be combined with those of at least this many "
        "other sites. A round that ends with fewer has no result.",
    ),
]


class SecureTerms(RequestModel):
    """The secure sum of a round: servers of a charter sum contributions without seeing them."""

    charter: Digest = Field(description="SHA-256 of the charter that all sites accepted.")
    servers: list[Name] = Field(
        min_length=2, max_length=16, description="Sites of the aggregation servers."
    )


class RoundRequest(RequestModel):
    """Start a round."""

    base: str = Field(max_length=300, description="Address of the model to train.")
    method: Name = Field(
        default="leaf-refit", description="Method that combines the contributions."
    )
    mode: Literal["one-shot"] = "one-shot"
    options: dict[str, Any] = Field(
        default_factory=dict,
        description="Options of the method, and training settings of all sites.",
    )
    sites: list[Name] = Field(min_length=1, max_length=200, description="The invited sites.")
    deadline: AwareDatetime = Field(description="End of contributions.")
    rounds: Whole = Field(
        default=1, ge=1, le=100, description="Number of rounds, each on the last result."
    )
    least_others: LeastOthers = Field(
        default=1, description="Minimum demand of every contribution; a site may demand more."
    )
    description: Description = ""
    secure: SecureTerms | None = Field(
        default=None,
        description="Sum up the contributions by a secure sum: each site then sends the pool the "
        "one sum that it verified.",
    )


class RoundContribution(BaseModel):
    """A site's contribution: a file of changes of the base, read by the pool only."""

    digest: Digest
    size_bytes: int = Field(ge=0)
    file_name: str
    summary: dict[str, Any] = Field(description="The pool's summary of the file.")
    least_others: LeastOthers
    created_at: datetime
    created_by: str


class RoundParticipant(BaseModel):
    """A site invited to take part."""

    site: Name
    state: ParticipantState = Field(
        description="`waiting` while it can contribute; `late` when it tried after the deadline; "
        "`missing` when the round ended without it."
    )
    contribution: RoundContribution | None = None


class RoundResponse(BaseModel):
    """A round as its participants see it."""

    round_id: str = Field(pattern=ROUND_KEY_PATTERN)
    state: RoundState = Field(
        description="`open` until the deadline; then `closed`, or `expired` when fewer than "
        "`fewest_sites` contributed; `finished` with a result; `cancelled`."
    )
    ready: bool = Field(description="All sites have contributed, or those that have are enough.")
    fewest_sites: int = Field(
        ge=2, description="Minimum number of contributions for a result, given the present ones."
    )
    least_others: LeastOthers
    base: str
    base_digest: Digest
    base_warning: str = Field(
        description="`withdrawn (REASON)`, or `flagged (REASONS)` if it contains a withdrawn "
        "file; contributing and finishing then need `despite_withdrawal`. Otherwise empty."
    )
    method: str
    method_version: int
    mode: str
    options: dict[str, Any]
    description: str
    number: int = Field(ge=1, description="Position in the series of rounds.")
    rounds_total: int = Field(ge=1)
    predecessor: str | None
    successor: str | None = Field(description="The next round, based on the result.")
    created_at: datetime
    created_by: str
    deadline: datetime
    participants: list[RoundParticipant]
    ended_at: datetime | None
    ended_by: str | None
    result_address: str = Field(
        description="Default address of the result: the site that started the round, with the "
        "name of the base."
    )
    result: str | None = Field(description="Address of the resulting version.")
    result_digest: Digest | None
    state_digest: Digest | None = Field(
        description="Digest of a server optimiser's state after this round, an input of the next "
        "one; never "
        "published."
    )
    secure: SecureTerms | None = None
    terms: Envelope | None = Field(
        default=None,
        description="`RoundTerms` of the first round, signed by the site that started it.",
    )

    def sites(self, *states: ParticipantState) -> list[str]:
        """Return the sites in one of these states."""
        return [
            participant.site for participant in self.participants if participant.state in states
        ]

    def contributions(self) -> dict[str, RoundContribution]:
        """Return the contributions by site."""
        return {
            participant.site: participant.contribution
            for participant in self.participants
            if participant.contribution
        }


TERMS_TYPE = "application/vnd.poolctl.round-terms.v1+json"


class RoundTerms(BaseModel):
    """The terms that sites accept by contributing to a series of rounds; its starter signs them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    started_by: Name
    first_round: str
    base: Digest
    """SHA-256 of the first round's base."""
    method: str
    method_version: int
    mode: str
    options: dict[str, Any]
    """Complete, of the first round: later ones do not thin their base."""
    sites: tuple[Name, ...]
    """In the order of their names."""
    rounds: int
    least_others: int
    deadline: AwareDatetime
    """Latest deadline of the first round."""
    secure: SecureTerms | None

    @classmethod
    def of(cls, shown: RoundResponse, first: RoundResponse | None = None) -> "RoundTerms":
        """Return the terms that a round shows; `first` is the first round of its series."""
        first = first or shown
        return cls(
            started_by=shown.created_by.partition("/")[0],
            first_round=first.round_id,
            base=first.base_digest,
            method=shown.method,
            method_version=shown.method_version,
            mode=shown.mode,
            options=shown.options,
            sites=tuple(sorted(participant.site for participant in shown.participants)),
            rounds=shown.rounds_total,
            least_others=shown.least_others,
            deadline=first.deadline,
            secure=shown.secure,
        )

    @classmethod
    def from_envelope(cls, envelope: Envelope) -> "RoundTerms":
        """Read signed terms; raise `ValueError` if the envelope contains anything else."""
        if envelope.payloadType != TERMS_TYPE:
            raise ValueError(
                f"the payload has type {envelope.payloadType!r}, expected {TERMS_TYPE!r}"
            )
        return cls.model_validate_json(envelope.body())

    def to_bytes(self) -> bytes:
        """Return the terms in their signed form."""
        content = self.model_dump(mode="json")
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


class WaitingRounds(BaseModel):
    """The number of rounds that await a site."""

    count: int


RoundPage = Page[RoundResponse]


class ContributionRequest(RequestModel):
    """Announce a contribution; it is sent in parts like a model."""

    site: Name = Field(description="The contributing site.")
    size_bytes: Whole = Field(ge=1)
    digest: Digest
    file_name: FileName
    least_others: LeastOthers = DEFAULT_LEAST_OTHERS
    despite_withdrawal: DespiteWithdrawal = False


class FinishRequest(RequestModel):
    """Have the pool combine the contributions, and publish the result as `site`/`name`."""

    site: Name
    name: Name
    despite_withdrawal: DespiteWithdrawal = False


MOST_DESCRIPTOR_CHARACTERS = 1 << 20
MOST_ENVELOPE_CHARACTERS = 3 << 19
MOST_SITES = 1100

Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00]*$")]
RoundKey = Annotated[str, StringConstraints(pattern=ROUND_KEY_PATTERN)]


class SecureSessionRequest(RequestModel):
    """Open a session of the secure sum; its identifier is the SHA-256 of the descriptor."""

    descriptor: Text = Field(
        max_length=MOST_DESCRIPTOR_CHARACTERS,
        description="The sites' agreement; the pool does not read it.",
    )
    sites: list[Name] = Field(
        min_length=2,
        max_length=MOST_SITES,
        description="Sites of labs and of aggregation servers; only they see the session.",
    )
    ends_at: AwareDatetime = Field(
        description="End of the session; the pool deletes it some time later."
    )
    round_id: RoundKey | None = Field(default=None, description="The round to sum.")


class SecureSessionSummary(BaseModel):
    """A session of the secure sum, as listings show it."""

    session_id: Digest
    sites: list[Name]
    ends_at: datetime
    round_id: str | None
    created_at: datetime
    created_by: str


class SecureSessionResponse(SecureSessionSummary):
    """A session of the secure sum."""

    descriptor: str


SecureSessionPage = Page[SecureSessionSummary]


class SecurePostRequest(RequestModel):
    """Post a signed message: one for each sender and phase, which cannot be changed."""

    sender: Name = Field(description="Site that sent the message.")
    phase: Name
    envelope: Text = Field(
        max_length=MOST_ENVELOPE_CHARACTERS,
        description="JSON of a DSSE envelope. The pool does not verify it: its readers do.",
    )


class SecurePostResponse(BaseModel):
    """A message as it was posted."""

    number: int = Field(ge=1, description="Grows with every message of a session.")
    phase: Name
    sender: Name
    envelope: str


class SecurePostList(BaseModel):
    """Messages of a session in the order of their arrival; ask again `after` the last one."""

    items: list[SecurePostResponse]
    more: bool = Field(description="Further messages exist already.")


class SecureFileRequest(RequestModel):
    """Announce a file of a session; it is sent in parts like a model."""

    site: Name = Field(description="The file's site.")
    size_bytes: Whole = Field(ge=1)
    digest: Digest
