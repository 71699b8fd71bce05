"""Sites, tokens, and who one is."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pool_server.wire.names import Name

Role = Literal["viewer", "contributor", "curator", "admin"]
# Each may all that the one before it may.
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
    "admin",
]
SCOPES: dict[Scope, str] = {
    "models:read": "find models, see their lineage and evaluations, download them",
    "models:write": "upload models, describe, share, name and delete them",
    "models:curate": "work through the curators' queue: publish, quarantine, release",
    "evaluations:write": "post scores of models",
    "rounds": "see rounds, start them, contribute, finish them",
    "merges": "have the pool merge models",
    "withdrawals": "withdraw models, and answer withdrawals",
    "events": "read what happened, and have it sent to an address",
    "keys": "register and revoke the keys that the site signs with",
    "audit:read": "read the audit",
    "admin": "look after sites, users, invitations, tokens and the pool itself; who may let "
    "people in can get any other scope in this way",
}

_SITE_EXAMPLE: dict[str, Any] = {
    "name": "site-a",
    "display_name": "Infant lab",
    "contact": "models@lab.example",
    "created_at": "2026-03-01T12:00:00Z",
}
_TOKEN_EXAMPLE: dict[str, Any] = {
    "token_id": "4f1d2c3b4a596877",
    "site": "site-a",
    "name": "laptop",
    "role": "contributor",
    "created_at": "2026-03-01T12:00:00Z",
    "expires_at": None,
    "last_used_at": "2026-03-01T12:30:00Z",
    "revoked_at": None,
}


class SiteRequest(BaseModel):
    """Create a site."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"name": "site-a", "display_name": "Infant lab"}]},
    )

    name: Name
    display_name: str = Field(default="", max_length=200)
    contact: str = Field(default="", max_length=200)


class SiteResponse(BaseModel):
    """A lab that shares the pool."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SITE_EXAMPLE]})

    name: Name
    display_name: str
    contact: str
    created_at: datetime


class SiteList(BaseModel):
    """All sites by name."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_SITE_EXAMPLE]}]})

    items: list[SiteResponse]


class TokenRequest(BaseModel):
    """Create a token for a site."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"site": "site-a", "name": "laptop", "role": "contributor"}]
        },
    )

    site: Name
    name: Name
    role: Role = "contributor"
    expires_in_days: int | None = Field(default=None, ge=1, le=3660)


class TokenResponse(BaseModel):
    """A token as the pool remembers it: never the secret itself."""

    model_config = ConfigDict(json_schema_extra={"examples": [_TOKEN_EXAMPLE]})

    token_id: str
    site: Name
    name: Name
    role: Role
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class TokenList(BaseModel):
    """All tokens, newest first."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"items": [_TOKEN_EXAMPLE]}]})

    items: list[TokenResponse]


class TokenCreatedResponse(TokenResponse):
    """A new token with its secret."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{**_TOKEN_EXAMPLE, "secret": "pool_..."}]}
    )

    secret: str = Field(description="Shown this once; the pool keeps only its hash.")


class IdentityResponse(BaseModel):
    """Who the presented token belongs to."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "site": "site-a",
                    "token_name": "laptop",
                    "role": "contributor",
                    "expires_at": None,
                    "pool_version": "0.1.0",
                }
            ]
        }
    )

    site: Name
    token_name: Name
    role: Role
    expires_at: datetime | None
    pool_version: str
