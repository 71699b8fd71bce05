"""The address of family trees."""

from __future__ import annotations

from fastapi import APIRouter

from pool_server.errors import (
    ModelNotFoundError,
    NotAuthenticatedError,
    QueryError,
    VersionNotFoundError,
)
from pool_server.http.error_responses import documented
from pool_server.http.identity import SignedIn
from pool_server.http.session import ReadingSession
from pool_server.lineage.service import trace_lineage
from pool_server.registry.endpoints import ModelName, Reference, SiteName
from pool_server.registry.service import resolve_version
from pool_server.wire.models import LineageResponse

router = APIRouter(tags=["lineage"])


@router.get(
    "/models/{site}/{name}/versions/{reference}/lineage",
    summary="Tell where a version comes from",
    responses=documented(
        NotAuthenticatedError, ModelNotFoundError, VersionNotFoundError, QueryError
    ),
)
def lineage(
    _caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> LineageResponse:
    """Return all ancestors and descendants, and the recipe.

    Ancestors that the pool does not have appear by their digest alone.
    """
    return trace_lineage(session, resolve_version(session, site, name, reference))
