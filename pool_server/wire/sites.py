"""Sites, roles and scopes, and the identity behind a token."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field, StringConstraints

from pool_server.wire.names import ItemList, Line, Name, RequestModel

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
    int | None,
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
