"""Users: the people of a site, and invitations for those to come."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from pool_server.wire.names import UNSHOWN, Name
from pool_server.wire.people.sites import Role, ShortText
from pool_server.wire.people.tokens import LifetimeDays

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

    model_config = ConfigDict(json_schema_extra={"examples": [_USER_EXAMPLE]})

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

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_USER_EXAMPLE]}]})

    items: list[UserResponse]


class UserChangeRequest(BaseModel):
    """Change what is given; what is left out stays."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"role": "curator"}, {"disabled": True}]},
    )

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

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"site": "site-a", "role": "contributor"}]},
    )

    site: Name
    role: Role = "contributor"
    pool_wide: bool = Field(
        default=False, description="The role holds for every site; only pool admins give this."
    )
    email: Email = ""
    expires_in_days: int = Field(default=7, ge=1, le=90)


class InvitationResponse(BaseModel):
    """An invitation as the pool remembers it: never the secret itself."""

    model_config = ConfigDict(json_schema_extra={"examples": [_INVITATION_EXAMPLE]})

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

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_INVITATION_EXAMPLE]}]})

    items: list[InvitationResponse]


class InvitationCreatedResponse(InvitationResponse):
    """A new invitation with its secret."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_INVITATION_EXAMPLE, "secret": "invite_..."}]}
    )

    secret: str = Field(description="Shown this once; whoever has it can accept, once.")


class AcceptanceRequest(BaseModel):
    """Accept an invitation: become a user, and get a first token."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"secret": "invite_...", "name": "ada"}]},
    )

    secret: str = Field(min_length=1, max_length=200)
    name: Name = Field(description="What the user is called at the site; never changes.")
    display_name: ShortText = ""
    email: Email | None = Field(default=None, description="Instead of the invitation's.")
    token_name: Name | None = Field(
        default=None, description="Of the first token; the user's name when left out."
    )
    token_expires_in_days: LifetimeDays = None
