"""Sites, users, roles and scopes, tokens and invitations."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.wire.names import UNSHOWN, ItemList, Line, Name, RequestModel, Whole

Role = Literal["viewer", "contributor", "curator", "admin"]
# Each may do all that the one before it may.
ROLES: tuple[Role, ...] = ("viewer", "contributor", "curator", "admin")

Scope = Literal[
    "models:read",
    "models:write",
    "models:curate",
    "evaluations:write",
    "rounds",
    "merges",
    "withdrawals",
    "events",
    "keys",
    "audit:read",
    "metrics:read",
    "admin",
]
SCOPES: dict[Scope, str] = {
    "models:read": "find models, see their lineage and evaluations, download them",
    "models:write": "upload models, describe, share, name and delete them",
    "models:curate": "work through the curators' queue: publish, quarantine, release",
    "evaluations:write": "post scores of models",
    "rounds": "see rounds, start them, contribute, finish them; fetching and sending the files "
    "needs models:read and models:write besides",
    "merges": "have the pool merge models",
    "withdrawals": "withdraw models, and answer withdrawals",
    "events": "read what happened",
    "keys": "register and revoke the keys that the site signs with",
    "audit:read": "read the audit",
    "metrics:read": "read what the server counts of itself (Prometheus)",
    "admin": "look after sites, users, invitations, tokens and the pool itself; who may let "
    "people in can get any other scope in this way",
}

ShortText = Annotated[Line, StringConstraints(max_length=200)]
Quota = Annotated[
    Whole | None,
    Field(ge=0, le=2**62, description="Most bytes of all the site's files; null: no limit."),
]


class SiteRequest(RequestModel):
    """Create a site."""

    name: Name
    display_name: ShortText = ""
    contact: ShortText = ""
    quota_bytes: Quota = None


class SiteChangeRequest(RequestModel):
    """Change what is given; what is left out stays."""

    display_name: ShortText | None = None
    contact: ShortText | None = None
    quota_bytes: Quota = None
    suspended: bool | None = Field(
        default=None,
        description="A suspended site is refused with all its tokens; its models stay.",
    )


class SiteResponse(BaseModel):
    """A lab that shares the pool."""

    name: Name
    display_name: str
    contact: str
    created_at: datetime
    suspended: bool = False


SiteList = ItemList[SiteResponse]


class SiteUsage(BaseModel):
    """The storage that a site uses, and its people."""

    site: Name
    suspended: bool
    models: int
    versions: int
    size_bytes: int = Field(
        description="Bytes of all files that the site published or contributed to rounds; a file "
        "that stands under several names counts once."
    )
    uploading_bytes: int = Field(description="Bytes of uploads under way.")
    quota_bytes: int | None = Field(description="Most bytes; null for no limit.")
    users: int = Field(description="Users that are not disabled.")
    tokens: int = Field(description="Tokens that are valid.")
    last_used_at: datetime | None = Field(description="When any token was last used.")


UsageResponse = ItemList[SiteUsage]


class IdentityResponse(BaseModel):
    """The owner of the presented token."""

    site: Name
    token_name: Name
    role: Role = Field(description="Never more than the role of the token's user.")
    pool_wide: bool = Field(default=False, description="The role holds for every site.")
    scopes: list[Scope] | None = Field(
        default=None, description="What the token is narrowed to; null: all that its role may."
    )
    user: Name | None = Field(default=None, description="Whose token it is, if anybody's.")
    expires_at: datetime | None
    pool_version: str


TokenKind = Literal["program", "feed"]
Scopes = Annotated[
    list[Scope] | None,
    Field(max_length=32, description="What the token is narrowed to; null: all that its role may."),
]
LifetimeDays = Annotated[Whole | None, Field(ge=1, le=3660, description="Null: for ever.")]


class TokenRequest(RequestModel):
    """Create a token for a site, or for a user of it."""

    site: Name
    name: Name
    kind: TokenKind = Field(
        default="program",
        description="`feed`: it reads the feed of the site's events, in whose address it may "
        "stand, and nothing else. Its role and scopes follow from that.",
    )
    role: Role = "contributor"
    pool_wide: bool = Field(
        default=False, description="The role holds for every site; only pool admins give this."
    )
    scopes: Scopes = None
    user: Name | None = Field(
        default=None,
        description="Whose token it is: it never may more than that user. Left out: the user whose "
        "token asks for it, if that user is of the site; else nobody's but the site's.",
    )
    for_machine: bool = Field(
        default=False,
        description="The token is the site's alone and stays when who made it is disabled.",
    )
    expires_in_days: LifetimeDays = None

    @model_validator(mode="after")
    def _is_of_one(self) -> "TokenRequest":
        if self.for_machine and self.user is not None:
            raise ValueError("a token is either of a user or for_machine, not both")
        return self

    @model_validator(mode="after")
    def _reads_the_feed_only(self) -> "TokenRequest":
        if self.kind == "feed":
            role = self.role if "role" in self.model_fields_set else "viewer"
            if self.pool_wide or role != "viewer" or self.scopes not in (None, ["events"]):
                raise ValueError("a feed token is a viewer's, for the scope events of its site")
            self.role, self.scopes = "viewer", ["events"]
        return self


class TokenResponse(BaseModel):
    """A token as the pool remembers it: never the secret itself."""

    token_id: str
    site: Name
    name: Name
    kind: TokenKind = "program"
    role: Role
    pool_wide: bool = False
    scopes: list[Scope] | None = None
    user: Name | None = None
    made_by: str | None = Field(
        default=None,
        description="SITE/USER who made it, also with a token for machines; null: no user did.",
    )
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


TokenList = ItemList[TokenResponse]


class TokenCreatedResponse(TokenResponse):
    """A new token with its secret."""

    secret: str = Field(description="Shown this once; the pool keeps only its hash.")


EMAIL_PATTERN = rf"^([^@\s{UNSHOWN}]+@[^@\s{UNSHOWN}]+)?$"
Email = Annotated[
    str,
    StringConstraints(max_length=254, pattern=EMAIL_PATTERN),
    Field(description="For people to write to; the pool sends nothing."),
]


class UserResponse(BaseModel):
    """A person at a site. A disabled one is refused with all tokens and invitations."""

    site: Name
    name: Name
    display_name: str
    email: str
    role: Role
    pool_wide: bool
    created_at: datetime
    disabled_at: datetime | None


UserList = ItemList[UserResponse]


class UserChangeRequest(RequestModel):
    """Change what is given; what is left out stays."""

    display_name: ShortText | None = None
    email: Email | None = None
    role: Role | None = Field(
        default=None, description="Tokens that may more are held to it from now on."
    )
    pool_wide: bool | None = Field(
        default=None, description="The role holds for every site; only pool admins give this."
    )
    disabled: bool | None = None


class InvitationRequest(RequestModel):
    """Invite one person to a site."""

    site: Name
    role: Role = "contributor"
    pool_wide: bool = Field(
        default=False, description="The role holds for every site; only pool admins give this."
    )
    email: Email = ""
    expires_in_days: Whole = Field(default=7, ge=1, le=90)


class InvitationResponse(BaseModel):
    """An invitation as the pool remembers it: never the secret itself."""

    invitation_id: str
    site: Name
    role: Role
    pool_wide: bool
    email: str
    created_at: datetime
    created_by: str
    made_by: str | None = Field(
        default=None,
        description="SITE/USER who made it, also with a token for machines; null: no user did. "
        "While that user is disabled nobody can accept it.",
    )
    expires_at: datetime
    used_at: datetime | None
    used_by: Name | None = Field(description="Name of the user that it made.")
    revoked_at: datetime | None


InvitationList = ItemList[InvitationResponse]


class InvitationCreatedResponse(InvitationResponse):
    """A new invitation with its secret."""

    secret: str = Field(description="Shown this once; whoever has it can accept, once.")


class AcceptanceRequest(RequestModel):
    """Accept an invitation: become a user, and get a first token."""

    secret: str = Field(min_length=1, max_length=200)
    name: Name = Field(description="What the user is called at the site; never changes.")
    display_name: ShortText = ""
    email: Email | None = Field(default=None, description="Instead of the invitation's.")
    token_name: Name | None = Field(
        default=None, description="Of the first token; the user's name when left out."
    )
    token_expires_in_days: LifetimeDays = None
