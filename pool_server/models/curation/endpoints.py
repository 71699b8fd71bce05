"""Addresses under which versions are published, quarantined, released and deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pool_server.http.identity import Curator, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, ModelName, Reference, SiteName, read_cursor
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.models.curation import service
from pool_server.registry.service import resolve_version
from pool_server.wire.models.curation import DeletionResponse, QuarantineRequest
from pool_server.wire.models.models import ModelPage, ModelVersionResponse

router = APIRouter(tags=["curation"])

VERSION = "/models/{site}/{name}/versions/{reference}"
Force = Annotated[
    bool,
    Query(description="Also when something in the pool was made from it.", examples=[False]),
]


@router.get(
    "/queue",
    summary="List what waits for a curator",
    dependencies=[needs("models:curate")],
)
def queue(
    caller: Curator, session: ReadingSession, limit: Limit = 50, cursor: Cursor = None
) -> ModelPage:
    """Return drafts and quarantined versions, newest first, a page at a time.

    Those of one's own site, or of all sites for curators of the whole pool.
    """
    before_id = None if cursor is None else read_cursor(cursor)
    return service.list_queue(session, caller, before_id=before_id, limit=limit)


@router.post(f"{VERSION}/publish", summary="Publish a draft", dependencies=[needs("models:curate")])
def publish(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    parts: Parts,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> ModelVersionResponse:
    """Show a draft to everybody who may see its model.

    For curators of the pool where it is curated; elsewhere for whoever may upload to the site.
    Where the pool demands signatures, the site signs it first.
    """
    version = resolve_version(session, caller, site, name, reference)
    return service.publish(session, caller, parts.settings, version)


@router.post(
    f"{VERSION}/quarantine",
    summary="Quarantine a version",
    dependencies=[needs("models:curate")],
)
def quarantine(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Curator,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    request: QuarantineRequest,
) -> ModelVersionResponse:
    """Hide a published version from other sites until it has been looked into.

    Its site is told why.
    """
    version = resolve_version(session, caller, site, name, reference)
    return service.quarantine(session, caller, version, request.reason)


@router.post(
    f"{VERSION}/release",
    summary="Release a quarantined version",
    dependencies=[needs("models:curate")],
)
def release(
    caller: Curator,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> ModelVersionResponse:
    """Show a quarantined version again.

    A site releases what it quarantined itself; curators of the whole pool release anything.
    """
    version = resolve_version(session, caller, site, name, reference)
    return service.release(session, caller, version)


@router.delete(VERSION, summary="Delete a version", dependencies=[needs("models:write")])
def delete_version(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    force: Force = False,
) -> DeletionResponse:
    """Delete a version for good; for its own site, and admins.

    Its number is never used again, its digest stays in family trees, its aliases are gone. The
    file is removed by the next clean-up unless another version has the same bytes. Refused while
    a round refines it or it is quarantined and, without `force`, when something in the pool was
    made from it.
    """
    version = resolve_version(session, caller, site, name, reference)
    return service.delete_version(session, caller, version, force=force)


@router.delete(
    "/models/{site}/{name}",
    summary="Delete a model",
    dependencies=[needs("models:write")],
)
def delete_model(
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    force: Force = False,
) -> DeletionResponse:
    """Delete a model with all its versions; its name is never used again."""
    return service.delete_model(session, caller, site, name, force=force)
