"""Addresses under which models are asked for to be handed on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pool_server.http.identity import SignedIn, needs
from pool_server.http.parameters import ModelName, Reference, SiteName
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.models.exports import service
from pool_server.registry.service import resolve_version
from pool_server.wire.models.bundles import ExportRequest, ExportResponse, PortableVersion

router = APIRouter(tags=["exports"], dependencies=[needs("models:read")])


@router.post("/exports", summary="Ask whether models may leave the pool")
def grant_export(
    caller: SignedIn, session: WritingSession, request: ExportRequest
) -> ExportResponse:
    """Decide over all of them at once, and write down who takes which along.

    Each must be in good standing; its owner must have granted `download` and `redistribute`, and
    its terms must not forbid it. Ancestors that one may not see, or that the pool does not have,
    stay known by their digest. The owners are told.
    """
    return service.grant_export(session, caller, request)


@router.get(
    "/models/{site}/{name}/versions/{reference}/record",
    summary="Get all that goes with a version",
)
def portable_record(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    evaluations: Annotated[
        bool, Query(description="With what sites measured of it.", examples=[True])
    ] = False,
) -> PortableVersion:
    """Return labels, terms, card, recipe, signature and scores in a form for other pools."""
    version = resolve_version(session, caller, site, name, reference)
    return service.describe_portable(session, caller, version, evaluations=evaluations)
