"""The address under which the description of a version is corrected."""

from __future__ import annotations

from fastapi import APIRouter

from pool_server.http.identity import Uploader, needs
from pool_server.http.parameters import ModelName, Reference, SiteName
from pool_server.http.session import WritingSession
from pool_server.models.descriptions import service
from pool_server.registry.service import resolve_version
from pool_server.wire.models.curation import DescriptionRequest
from pool_server.wire.models.models import ModelVersionResponse

router = APIRouter(tags=["models"], dependencies=[needs("models:write")])


@router.put(
    "/models/{site}/{name}/versions/{reference}/description",
    summary="Correct the description of a version",
)
def change_description(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    request: DescriptionRequest,
) -> ModelVersionResponse:
    """Replace description, labels and metrics. The file stays as it is.

    Sites that downloaded the version are told by an event. A signed version needs a new statement,
    as its signature covers them.
    """
    version = resolve_version(session, caller, site, name, reference)
    return service.change_description(session, caller, version, request)
