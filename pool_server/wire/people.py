"""Tokens, users and invitations."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints, model_validator

from pool_server.wire.names import UNSHOWN, ItemList, Name, RequestModel
from pool_server.wire.sites import Role, Scope, ShortText

TokenKind = Literal["program", "feed"]
Scopes = Annotated[
    list[Scope] | None,
    Field(max_length=32, description="What the token is narrowed to; null: all that its role may."),
]
LifetimeDays = Annotated[int | None, Field(ge=1, le=3660, description="Null: for ever.")]


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
    expires_in_days: int = Field(default=7, ge=1, le=90)


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
