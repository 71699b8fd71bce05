"""Sites, users, roles and scopes, tokens and invitations."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.wire.names import UNSHOWN, ItemList, Line, Name, RequestModel, Whole

Role = Literal["viewer", "contributor", "curator", "admin"]
# Each has all rights of the previous one.
ROLES: tuple[Role, ...] = ("viewer", "contributor", "curator", "admin")
INVITATION_PREFIX = "invite_"
"""Start of the secret of an invitation; a token starts otherwise."""

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
    "rounds": "see rounds, start them, contribute, finish them; downloading and sending the "
    "files also needs models:read and models:write",
    "merges": "have the pool merge models",
    "withdrawals": "withdraw models, and answer withdrawals",
    "events": "read events",
    "keys": "register and revoke the keys that the site signs with",
    "audit:read": "read the audit",
    "metrics:read": "read the server's metrics (Prometheus)",
    "admin": "administer sites, users, invitations, tokens and the pool itself; through "
    "invitations it leads to every other scope",
}

ShortText = Annotated[Line, StringConstraints(max_length=200)]
Quota = Annotated[
    Whole | None,
    Field(
        ge=0,
        le=2**62,
        description="Maximum size of all the site's files, in bytes; null: no limit.",
    ),
]


class SiteRequest(RequestModel):
    """Create a site."""

    name: Name
    display_name: ShortText = ""
    contact: ShortText = ""
    quota_bytes: Quota = None


class SiteChangeRequest(RequestModel):
    """Change the given fields; omitted ones stay."""

    display_name: ShortText | None = None
    contact: ShortText | None = None
    quota_bytes: Quota = None
    suspended: bool | None = Field(
        default=None, description="All tokens of a suspended site are refused; its models stay."
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
        "with several names counts "
        "once."
    )
    uploading_bytes: int = Field(description="Bytes of uploads under way.")
    quota_bytes: int | None = Field(description="Maximum number of bytes; null for no limit.")
    users: int = Field(description="Users that are not disabled.")
    tokens: int = Field(description="Tokens that are valid.")
    last_used_at: datetime | None = Field(description="Time of the last use of any token.")


UsageResponse = ItemList[SiteUsage]


class IdentityResponse(BaseModel):
    """The owner of the presented token."""

    site: Name
    token_name: Name
    role: Role = Field(description="Never more than the role of the token's user.")
    pool_wide: bool = Field(default=False, description="The role holds for every site.")
    scopes: list[Scope] | None = Field(
        default=None, description="Limits of the token; null: all rights of its role."
    )
    user: Name | None = Field(default=None, description="The token's user, if any.")
    expires_at: datetime | None


TokenKind = Literal["program", "feed", "sign-on"]
"""`feed` is no longer made: such a token of an older pool is refused everywhere."""
Scopes = Annotated[
    list[Scope] | None,
    Field(max_length=32, description="Limits of the token; null: all rights of its role."),
]
LifetimeDays = Annotated[Whole | None, Field(ge=1, le=3660, description="Null: for ever.")]


class TokenRequest(RequestModel):
    """Create a token for a site, or for a user of it."""

    site: Name
    name: Name
    role: Role = "contributor"
    pool_wide: bool = Field(
        default=False, description="The role holds for every site; only pool admins give this."
    )
    scopes: Scopes = None
    user: Name | None = Field(
        default=None,
        description="The token's user, the limit of its rights. Default: the user behind the "
        "request, if that user is of the site; otherwise the token belongs to the site.",
    )
    for_machine: bool = Field(
        default=False,
        description="The token belongs to the site alone and survives the disabling of its "
        "creator.",
    )
    expires_in_days: LifetimeDays = None

    @model_validator(mode="after")
    def _is_of_one(self) -> "TokenRequest":
        if self.for_machine and self.user is not None:
            raise ValueError("a token is either of a user or for_machine, not both")
        return self


class TokenResponse(BaseModel):
    """A token without its secret."""

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
        description="Its creator SITE/USER, also behind a token for machines; null: no user.",
    )
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    refused: str = Field(default="", description="Why the pool refuses it now; empty: it holds.")


TokenList = ItemList[TokenResponse]


class TokenCreatedResponse(TokenResponse):
    """A new token with its secret."""

    secret: str = Field(description="Shown only once; the pool stores only its hash.")


EMAIL_PATTERN = rf"^([^@\s{UNSHOWN}]+@[^@\s{UNSHOWN}]+)?$"
Email = Annotated[
    str,
    StringConstraints(max_length=254, pattern=EMAIL_PATTERN),
    Field(description="For people to write to; the pool sends nothing."),
]


class UserResponse(BaseModel):
    """A person at a site. All tokens and invitations of a disabled one are refused."""

    site: Name
    name: Name
    display_name: str
    email: str
    role: Role
    pool_wide: bool
    created_at: datetime
    disabled_at: datetime | None
    valid_until: datetime | None = Field(
        default=None,
        description="Until when the last log-in at the institute holds; null: does not sign on.",
    )


UserList = ItemList[UserResponse]


class UserChangeRequest(RequestModel):
    """Change the given fields; omitted ones stay."""

    display_name: ShortText | None = None
    email: Email | None = None
    role: Role | None = Field(
        default=None, description="Also limits existing tokens with higher roles."
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
    sign_on: Annotated[str, StringConstraints(max_length=32)] = Field(
        default="",
        description="Name of a provider by which people log in: the invitation then holds for "
        "the one person with this subject there, or with this e-mail if the provider verified it; "
        "no secret is needed, and it admits nobody.",
    )
    subject: Annotated[Line, StringConstraints(max_length=255)] = Field(
        default="", description="The person's identifier at that provider, such as an ORCID iD."
    )
    expires_in_days: Whole = Field(default=7, ge=1, le=90)

    @model_validator(mode="after")
    def _names_one_person(self) -> "InvitationRequest":
        if self.sign_on and not (self.subject or self.email):
            raise ValueError("an invitation for sign_on needs the person's subject or email")
        if self.subject and not self.sign_on:
            raise ValueError("a subject needs sign_on, the name of its provider")
        return self


class InvitationResponse(BaseModel):
    """An invitation without its secret."""

    invitation_id: str
    site: Name
    role: Role
    pool_wide: bool
    email: str
    sign_on: str = ""
    subject: str = ""
    created_at: datetime
    created_by: str
    made_by: str | None = Field(
        default=None,
        description="Its creator SITE/USER, also behind a token for machines; null: no user.",
    )
    expires_at: datetime
    used_at: datetime | None
    used_by: Name | None = Field(description="Name of the user created by it.")
    revoked_at: datetime | None
    refused: str = Field(
        default="", description="Why nobody can accept it now; empty: it can be accepted."
    )


InvitationList = ItemList[InvitationResponse]


class InvitationCreatedResponse(InvitationResponse):
    """A new invitation with its secret."""

    secret: str = Field(description="Shown only once; it can be accepted once.")


class DeviceRequest(RequestModel):
    """Ask for a token for this computer, which its user allows in a browser (RFC 8628)."""

    computer: Name = Field(description="Name of the computer, for its user.")


class DeviceResponse(BaseModel):
    """The code for the user of a computer, and the terms of asking for the token."""

    device_code: str = Field(description="For the computer alone.")
    user_code: str = Field(description="For the user to type at `verification_path`.")
    verification_path: str = Field(description="Page of this pool.")
    interval: float = Field(description="Least seconds between two questions for the token.")


class DeviceTokenRequest(RequestModel):
    """Ask for the token that the user has allowed."""

    device_code: str = Field(min_length=1, max_length=200)


class AcceptanceRequest(RequestModel):
    """Accept an invitation: become a user, and get a first token."""

    secret: str = Field(min_length=1, max_length=200)
    name: Name = Field(description="The user's name at the site; never changes.")
    display_name: ShortText = ""
    email: Email | None = Field(default=None, description="Instead of the invitation's.")
    token_name: Name | None = Field(
        default=None, description="Name of the first token; default: the user's name."
    )
