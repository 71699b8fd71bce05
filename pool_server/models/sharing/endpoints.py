"""Addresses under which models are shared."""

from __future__ import annotations

from fastapi import APIRouter

from pool_server.http.identity import SignedIn, needs
from pool_server.http.parameters import ModelName, SiteName
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.models.sharing import service
from pool_server.registry.service import get_model
from pool_server.wire.models.sharing import SharingRequest, SharingResponse
from pool_server.wire.names import ModelAddress

router = APIRouter(prefix="/models/{site}/{name}/sharing", tags=["models"])


@router.get("", dependencies=[needs("models:read")], summary="Show whom a model is shared with")
def show(
    caller: SignedIn, session: ReadingSession, site: SiteName, name: ModelName
) -> SharingResponse:
    """Return who sees a model, what they may do with it, and what oneself may.

    Only the model's own site sees which other sites are listed.
    """
    return service.describe_sharing(session, caller, get_model(session, caller, site, name))


@router.put("", dependencies=[needs("models:write")], summary="Share a model")
def share(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    parts: Parts,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    request: SharingRequest,
) -> SharingResponse:
    """Say who sees a model and what they may do with it. For contributors of its site.

    Files that were fetched before stay where they are; what is refused from now on is finding,
    fetching, merging and handing on within the pool.
    """
    return service.share_model(session, caller, parts.settings, ModelAddress(site, name), request)
