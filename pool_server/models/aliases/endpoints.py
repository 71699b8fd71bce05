"""Addresses under which aliases are set and removed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from pool_server.database.engine import write_with_retry
from pool_server.http.identity import Uploader, needs
from pool_server.http.parameters import ModelName, SiteName
from pool_server.http.session import Parts, WritingSession
from pool_server.models.aliases import service
from pool_server.wire.models.curation import AliasRequest
from pool_server.wire.models.models import ModelVersionResponse

router = APIRouter(
    prefix="/models/{site}/{name}/aliases", tags=["models"], dependencies=[needs("models:write")]
)

AliasName = Annotated[
    str, Path(max_length=80, description="Begins with a letter.", examples=["best"])
]


@router.put("/{alias}", summary="Let an alias mean a version")
def set_alias(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    parts: Parts,
    site: SiteName,
    name: ModelName,
    alias: AliasName,
    request: AliasRequest,
) -> ModelVersionResponse:
    """Let `site/name@alias` mean a version from now on, whatever it meant before.

    An alias is moved when a better version comes; who wants the same bytes for ever takes the
    number or the digest.
    """
    return write_with_retry(
        parts.database,
        lambda session: service.set_alias(session, caller, (site, name), alias, request.version),
    )


@router.delete("/{alias}", status_code=204, summary="Remove an alias")
def remove_alias(
    caller: Uploader, session: WritingSession, site: SiteName, name: ModelName, alias: AliasName
) -> None:
    """Forget an alias. The version that it meant stays."""
    service.remove_alias(session, caller, (site, name), alias)
