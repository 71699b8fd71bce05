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
        description="The contribution may only be combined with those of at least so many other "
        "sites. A round that ends with fewer has no result.",
    ),
]


class SecureTerms(RequestModel):
    """The secure sum of a round: servers of a charter add up what the sites send, unseen."""

    charter: Digest = Field(description="SHA-256 of the charter that all sites accepted.")
    servers: list[Name] = Field(
        min_length=2, max_length=16, description="Sites of the aggregation servers."
    )


class RoundRequest(RequestModel):
    """Start a round."""

    base: str = Field(max_length=300, description="Address of the model that is trained on.")
    method: Name = Field(default="leaf-refit", description="How contributions are combined.")
    mode: Name = Field(default="one-shot", description="As the method names it.")
    options: dict[str, Any] = Field(
        default_factory=dict, description="Of the method, and settings that all sites train with."
    )
    sites: list[Name] = Field(min_length=1, max_length=200, description="Who is asked to join.")
    deadline: AwareDatetime = Field(description="Contributions are taken until then.")
    rounds: Whole = Field(
        default=1,
        ge=1,
        le=100,
        description="How many follow one another, each on the last result; level by level, so "
        "many times all levels.",
    )
    least_others: LeastOthers = Field(
        default=1, description="What every contribution asks for at least; a site may ask for more."
    )
    description: Description = ""
    secure: SecureTerms | None = Field(
        default=None,
        description="Sum up the contributions by a secure sum: each site then sends the pool the "
        "one sum that it verified.",
    )


class RoundContribution(BaseModel):
    """A site's contribution: a file of changes of the base, which only the pool reads."""

    digest: Digest
    size_bytes: int = Field(ge=0)
    file_name: str
    summary: dict[str, Any] = Field(description="What the pool read from the file.")
    least_others: LeastOthers
    created_at: datetime
    created_by: str


class RoundParticipant(BaseModel):
    """A site that was asked to take part."""

    site: Name
    state: ParticipantState = Field(
        description="`waiting` while it can contribute; `late` when it tried after the deadline; "
        "`missing` when the round went on without it."
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
        ge=2, description="Contributions without which the round has no result, by those there."
    )
    least_others: LeastOthers
    base: str
    base_digest: Digest
    base_size_bytes: int
    base_warning: str = Field(
        description="`withdrawn (REASON)`, or `flagged (REASONS)` where it holds something that "
        "was; contributing and finishing then need `despite_withdrawal`. Otherwise empty."
    )
    method: str
    method_version: int
    mode: str
    options: dict[str, Any]
    description: str
    number: int = Field(ge=1, description="Which of the rounds that follow one another.")
    rounds_total: int = Field(ge=1)
    predecessor: str | None
    successor: str | None = Field(description="The round that goes on with the result.")
    created_at: datetime
    created_by: str
    deadline: datetime
    participants: list[RoundParticipant]
    ended_at: datetime | None
    ended_by: str | None
    result_address: str = Field(
        description="Where the result goes unless whoever finishes the round names another place: "
        "to the site that started it, by the name of the base."
    )
    result: str | None = Field(description="Address of the version that came out.")
    result_digest: Digest | None
    state_digest: Digest | None = Field(
        description="Of a server optimiser's state after this round, which the next one takes; the "
        "pool keeps it to itself."
    )
    secure: SecureTerms | None = None
    terms: Envelope | None = Field(
        default=None,
        description="`RoundTerms` of the first round, signed by the site that started it.",
    )

    def sites(self, *states: ParticipantState) -> list[str]:
        """Return the sites in one of these states."""
        return [each.site for each in self.participants if each.state in states]

    def contributions(self) -> dict[str, RoundContribution]:
        """Return what has been contributed, by site."""
        return {each.site: each.contribution for each in self.participants if each.contribution}


TERMS_TYPE = "application/vnd.poolctl.round-terms.v1+json"


class RoundTerms(BaseModel):
    """The terms that sites accept by contributing to a series of rounds; its starter signs them.

    `base` is the SHA-256 of the model that the first round begins with; `options` are in full those
    of the first round: later ones do not thin their base, and name another level. `sites` are in
    the order of their names; `deadline` is that of the first round, at the latest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    started_by: Name
    first_round: str
    base: Digest
    method: str
    method_version: int
    mode: str
    options: dict[str, Any]
    sites: tuple[Name, ...]
    rounds: int
    least_others: int
    deadline: AwareDatetime
    secure: SecureTerms | None

    @classmethod
    def of(cls, found: RoundResponse, first: RoundResponse | None = None) -> "RoundTerms":
        """Return the terms a round shows; `first` is the first round of its series, if another."""
        first = first or found
        return cls(
            started_by=found.created_by.partition("/")[0],
            first_round=first.round_id,
            base=first.base_digest,
            method=found.method,
            method_version=found.method_version,
            mode=found.mode,
            options=found.options,
            sites=tuple(sorted(each.site for each in found.participants)),
            rounds=found.rounds_total,
            least_others=found.least_others,
            deadline=first.deadline,
            secure=found.secure,
        )

    @classmethod
    def from_envelope(cls, envelope: Envelope) -> "RoundTerms":
        """Read what was signed; raise `ValueError` where it is something else."""
        if envelope.payloadType != TERMS_TYPE:
            raise ValueError(f"signed was {envelope.payloadType!r}, expected {TERMS_TYPE!r}")
        return cls.model_validate_json(envelope.body())

    def to_bytes(self) -> bytes:
        """Return the terms as they are signed."""
        content = self.model_dump(mode="json")
        return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()

    @property
    def digest(self) -> str:
        """SHA-256 of `to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


class WaitingRounds(BaseModel):
    """The number of rounds that wait for a site."""

    count: int


RoundPage = Page[RoundResponse]


class ContributionRequest(RequestModel):
    """Announce a contribution; it is sent in parts as a model is."""

    site: Name = Field(description="Whose contribution it is.")
    size_bytes: Whole = Field(ge=1)
    digest: Digest
    file_name: FileName
    least_others: LeastOthers = DEFAULT_LEAST_OTHERS
    despite_withdrawal: DespiteWithdrawal = False


class FinishRequest(RequestModel):
    """Have the pool combine the contributions, and publish the result there."""

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
        description="What the sites agreed on; the pool does not read it.",
    )
    sites: list[Name] = Field(
        min_length=2,
        max_length=MOST_SITES,
        description="Sites of labs and of aggregation servers: only they see the session.",
    )
    ends_at: AwareDatetime = Field(
        description="When the session should be over; the pool deletes it some time after that."
    )
    round_id: RoundKey | None = Field(
        default=None, description="The round whose contributions are summed."
    )


class SecureSessionSummary(BaseModel):
    """A session of the secure sum, as listings have it."""

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
    """Post a signed message: one for each sender and phase, which nobody can change."""

    sender: Name = Field(description="Site that the message is from.")
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
    posted_at: datetime


class SecurePostList(BaseModel):
    """Messages of a session in the order of their arrival; ask again `after` the last of them."""

    items: list[SecurePostResponse]
    more: bool = Field(description="There are further messages now.")


class SecureFileRequest(RequestModel):
    """Announce a file of a session; it is sent in parts as a model is."""

    site: Name = Field(description="Whose file it is.")
    size_bytes: Whole = Field(ge=1)
    digest: Digest
