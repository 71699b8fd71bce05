"""Tokens: what programs show to be let in."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pool_server.wire.names import Name
from pool_server.wire.people.sites import Role, Scope

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
    Field(
        max_length=32,
        description="What the token is narrowed to; null: all that its role may.",
    ),
]
LifetimeDays = Annotated[int | None, Field(ge=1, le=3660, description="Null: for ever.")]


class TokenRequest(BaseModel):
    """Create a token for a site, or for a user of it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"site": "site-a", "name": "laptop", "role": "contributor"},
                {"site": "site-a", "name": "laptop-2", "scopes": ["models:read"], "user": "ada"},
                {"site": "site-a", "name": "cluster", "for_machine": True},
                {"site": "site-a", "name": "reader", "kind": "feed"},
            ]
        },
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

    model_config = ConfigDict(json_schema_extra={"examples": [_TOKEN_EXAMPLE]})

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

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_TOKEN_EXAMPLE]}]})

    items: list[TokenResponse]


class TokenCreatedResponse(TokenResponse):
    """A new token with its secret."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_TOKEN_EXAMPLE, "secret": "pool_..."}]}
    )

    secret: str = Field(description="Shown this once; the pool keeps only its hash.")
