"""Tokens, users and invitations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.wire.names import UNSHOWN, Name, request_config, response_config
from pool_server.wire.sites import Role, Scope, ShortText

_TOKEN_EXAMPLE: dict[str, Any] = {
    "token_id": "4f1d2c3b4a596877",
    "site": "site-a",
    "name": "laptop",
    "kind": "program",
    "role": "contributor",
    "pool_wide": False,
    "scopes": None,
    "user": "ada",
    "made_by": "site-a/ada",
    "created_at": "2026-03-01T12:00:00Z",
    "expires_at": None,
    "last_used_at": "2026-03-01T12:30:00Z",
    "revoked_at": None,
}

TokenKind = Literal["program", "feed"]
Scopes = Annotated[
    list[Scope] | None,
    Field(max_length=32, description="What the token is narrowed to; null: all that its role may."),
]
LifetimeDays = Annotated[int | None, Field(ge=1, le=3660, description="Null: for ever.")]


class TokenRequest(BaseModel):
    """Create a token for a site, or for a user of it."""

    model_config = request_config(
        {"site": "site-a", "name": "laptop", "role": "contributor"},
        {"site": "site-a", "name": "laptop-2", "scopes": ["models:read"], "user": "ada"},
        {"site": "site-a", "name": "cluster", "for_machine": True},
        {"site": "site-a", "name": "reader", "kind": "feed"},
    )

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
    def _is_of_one(self) -> TokenRequest:
        if self.for_machine and self.user is not None:
            raise ValueError("a token is either of a user or for_machine, not both")
        return self

    @model_validator(mode="after")
    def _reads_the_feed_only(self) -> TokenRequest:
        if self.kind == "feed":
            role = self.role if "role" in self.model_fields_set else "viewer"
            if self.pool_wide or role != "viewer" or self.scopes not in (None, ["events"]):
                raise ValueError("a feed token is a viewer's, for the scope events of its site")
            self.role, self.scopes = "viewer", ["events"]
        return self


class TokenResponse(BaseModel):
    """A token as the pool remembers it: never the secret itself."""

    model_config = response_config(_TOKEN_EXAMPLE)

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


class TokenList(BaseModel):
    """Tokens of the sites that one looks after, newest first."""

    model_config = response_config({"items": [_TOKEN_EXAMPLE]})

    items: list[TokenResponse]


class TokenCreatedResponse(TokenResponse):
    """A new token with its secret."""

    model_config = response_config({**_TOKEN_EXAMPLE, "secret": "pool_..."})

    secret: str = Field(description="Shown this once; the pool keeps only its hash.")


EMAIL_PATTERN = rf"^([^@\s{UNSHOWN}]+@[^@\s{UNSHOWN}]+)?$"
Email = Annotated[
    str,
    StringConstraints(max_length=254, pattern=EMAIL_PATTERN),
    Field(description="For people to write to; the pool sends nothing."),
]

_USER_EXAMPLE: dict[str, Any] = {
    "site": "site-a",
    "name": "ada",
    "display_name": "Ada",
    "email": "ada@lab.example",
    "role": "contributor",
    "pool_wide": False,
    "created_at": "2026-03-01T12:00:00Z",
    "disabled_at": None,
}
_INVITATION_EXAMPLE: dict[str, Any] = {
    "invitation_id": "4f1d2c3b4a596877",
    "site": "site-a",
    "role": "contributor",
    "pool_wide": False,
    "email": "ada@lab.example",
    "created_at": "2026-03-01T12:00:00Z",
    "created_by": "site-a/laptop",
    "made_by": "site-a/ada",
    "expires_at": "2026-03-08T12:00:00Z",
    "used_at": None,
    "used_by": None,
    "revoked_at": None,
}


class UserResponse(BaseModel):
    """A person at a site. A disabled one is refused with all tokens and invitations."""

    model_config = response_config(_USER_EXAMPLE)

    site: Name
    name: Name
    display_name: str
    email: str
    role: Role
    pool_wide: bool
    created_at: datetime
    disabled_at: datetime | None


class UserList(BaseModel):
    """Users of the sites that one looks after, by site and name."""

    model_config = response_config({"items": [_USER_EXAMPLE]})

    items: list[UserResponse]


class UserChangeRequest(BaseModel):
    """Change what is given; what is left out stays."""

    model_config = request_config({"role": "curator"}, {"disabled": True})

    display_name: ShortText | None = None
    email: Email | None = None
    role: Role | None = Field(
        default=None, description="Tokens that may more are held to it from now on."
    )
    pool_wide: bool | None = Field(
        default=None, description="The role holds for every site; only pool admins give this."
    )
    disabled: bool | None = None


class InvitationRequest(BaseModel):
    """Invite one person to a site."""

    model_config = request_config({"site": "site-a", "role": "contributor"})

    site: Name
    role: Role = "contributor"
    pool_wide: bool = Field(
        default=False, description="The role holds for every site; only pool admins give this."
    )
    email: Email = ""
    expires_in_days: int = Field(default=7, ge=1, le=90)


class InvitationResponse(BaseModel):
    """An invitation as the pool remembers it: never the secret itself."""

    model_config = response_config(_INVITATION_EXAMPLE)

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


class InvitationList(BaseModel):
    """Invitations to the sites that one looks after, newest first."""

    model_config = response_config({"items": [_INVITATION_EXAMPLE]})

    items: list[InvitationResponse]


class InvitationCreatedResponse(InvitationResponse):
    """A new invitation with its secret."""

    model_config = response_config({**_INVITATION_EXAMPLE, "secret": "invite_..."})

    secret: str = Field(description="Shown this once; whoever has it can accept, once.")


class AcceptanceRequest(BaseModel):
    """Accept an invitation: become a user, and get a first token."""

    model_config = request_config({"secret": "invite_...", "name": "ada"})

    secret: str = Field(min_length=1, max_length=200)
    name: Name = Field(description="What the user is called at the site; never changes.")
    display_name: ShortText = ""
    email: Email | None = Field(default=None, description="Instead of the invitation's.")
    token_name: Name | None = Field(
        default=None, description="Of the first token; the user's name when left out."
    )
    token_expires_in_days: LifetimeDays = None
