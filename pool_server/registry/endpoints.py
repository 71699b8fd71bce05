"""Routes that list, describe and download models, and the record of who downloaded what."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from pool_server.activity.events import write_event
from pool_server.database.records import DownloadRecord, ModelVersionRecord, now_utc
from pool_server.errors import WriteConflictError
from pool_server.http.file_response import CONTENT_RESPONSES, send_content
from pool_server.http.identity import Caller, SignedIn, needs
from pool_server.http.parameters import Limit, ModelName, Reference, SiteName
from pool_server.http.session import LookingSession, Parts, ReadingSession, ServerParts
from pool_server.registry import access, repository, responses, service
from pool_server.registry.query import ListingCursor, ModelFilters, ModelQuery
from pool_server.registry.withdrawal_status import address_of, require_not_withdrawn, warning_of
from pool_server.wire.models import FacetsResponse, ModelPage, ModelVersionResponse
from pool_server.wire.withdrawals import WARNING_HEADER

router = APIRouter(tags=["models"], dependencies=[needs("models:read")])

DOWNLOADED_EVENT = "version.downloaded"
# Writing at every download would make every reader a writer.
REMEMBER_STEP = timedelta(days=1)


@router.get("/models", summary="List model versions")
def list_models(
    caller: SignedIn, session: LookingSession, query: Annotated[ModelQuery, Query()]
) -> ModelPage:
    """Return the versions that pass all filters, a page at a time.

    Whether two models can be merged is known before anything is downloaded: with
    `mergeable_with` or `mergeable_key`, `mergeable_by` names the methods that can merge each
    version with the given model.
    """
    return service.list_models(session, caller, query)


@router.get("/models/facets", summary="Count what models have in common")
def list_facets(
    caller: SignedIn, session: LookingSession, query: Annotated[ModelFilters, Query()]
) -> FacetsResponse:
    """Return kinds, sites, states and core labels of the versions that pass all filters.

    Of large listings only the newest versions are counted; `complete` is false then.
    """
    return service.list_facets(session, caller, query)


@router.get("/models/{site}/{name}", summary="List the versions of a model")
def list_versions(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: LookingSession,
    site: SiteName,
    name: ModelName,
    limit: Limit = 50,
    cursor: ListingCursor = None,
) -> ModelPage:
    """Return the versions of one model, newest first, a page at a time."""
    query = ModelQuery(site=site, name=name, limit=limit, cursor=cursor)
    return service.list_versions_of(session, caller, query)


@router.get("/models/{site}/{name}/versions/{reference}", summary="Describe a version")
def describe_version(
    caller: SignedIn, session: ReadingSession, version: service.VersionToName
) -> ModelVersionResponse:
    """Return labels, metrics, fingerprint and all else that the pool knows of a version."""
    return responses.describe_version(session, version.id, access.viewing_site(caller))


@router.head(
    "/models/{site}/{name}/versions/{reference}/content",
    summary="Ask about a model file",
    response_class=Response,
    responses=CONTENT_RESPONSES,
)
@router.get(
    "/models/{site}/{name}/versions/{reference}/content",
    summary="Download a model file",
    response_class=Response,
    responses=CONTENT_RESPONSES,
)
def download(  # noqa: PLR0917 - FastAPI gives them by name
    request: Request,
    caller: SignedIn,
    parts: Parts,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> Response:
    """Return the file's bytes.

    `ETag` is the SHA-256 of the file. To go on with an interrupted download, send
    `Range: bytes=N-` with `If-Range: "DIGEST"`. A version that was withdrawn is refused, or comes
    with the header `X-Pool-Warning`, as the reason demands; so do those that hold one.
    """
    version = find_downloadable(parts, caller, (site, name, reference))
    if request.method == "GET" and note_download(parts, caller, version):
        version = find_downloadable(parts, caller, (site, name, str(version.number)))
    standing, reasons = warning_of(version)
    return send_content(
        parts,
        version.digest,
        version.size_bytes,
        version.file_name,
        {WARNING_HEADER: f"{standing}; reason={reasons}"} if standing else None,
    )


def find_downloadable(
    parts: ServerParts, caller: Caller, address: tuple[str, str, str]
) -> ModelVersionRecord:
    """Return the version at site, name and reference, as far as it is given out."""
    with parts.database.read() as session:
        version = service.resolve_version(session, caller, *address)
    access.require_right(caller, version.model, "download")
    require_not_withdrawn(version)
    return version


def note_download(parts: ServerParts, caller: Caller, version: ModelVersionRecord) -> bool:
    """Remember that the caller's site fetches a version; the owner hears of the first time.

    A site's own models need no note, for it hears of them anyway. True when something was
    written: a withdrawal that ended before then did not know of the site, so that the version has
    to be looked at once more before it is given out.
    """
    if caller.site_id == version.model.site_id:
        return False
    now = now_utc()
    key = (version.id, caller.site_id)
    with parts.database.read() as session:
        known = session.get(DownloadRecord, key)
    if known is not None and now - known.last_at < REMEMBER_STEP:
        return False
    try:
        with parts.database.write() as session:
            repository.hold_families(session)
            found = session.get(DownloadRecord, key)
            if found is None:
                session.add(DownloadRecord(version_id=version.id, site_id=caller.site_id))
                session.flush()
                owner = version.model.site_id
                write_event(session, owner, DOWNLOADED_EVENT, address_of(version), by=caller.site)
            else:
                found.last_at = now
    except WriteConflictError:
        # Another request of the same site has written it at this moment.
        pass
    return True
