"""Addresses under which models are listed, described and fetched."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from pool_server.database.records import ModelVersionRecord
from pool_server.errors import (
    VersionWithdrawnError,
)
from pool_server.http.content import send_content
from pool_server.http.error_responses import documented
from pool_server.http.identity import Caller, SignedIn
from pool_server.http.scopes import needs
from pool_server.http.session import LookingSession, Parts, ReadingSession, ServerParts
from pool_server.models.access import require_right, viewing_site
from pool_server.models.registry import describing, service
from pool_server.models.registry.downloads import note_download
from pool_server.models.registry.filters import ModelQuery
from pool_server.models.registry.query_parameters import (
    MOST_ITEMS,
    ListingCursor,
    ModelFilters,
    Sort,
    paged,
)
from pool_server.models.registry.standing import require_not_withdrawn, warning_of
from pool_server.wire.errors import ErrorResponse
from pool_server.wire.models.facets import FacetsResponse
from pool_server.wire.models.models import ModelPage, ModelVersionResponse
from pool_server.wire.names import Name
from pool_server.wire.withdrawals import WARNING_HEADER

router = APIRouter(tags=["models"], dependencies=[needs("models:read")])

SiteName = Annotated[Name, Path(description="Name of the site.", examples=["site-a"])]
ModelName = Annotated[Name, Path(description="Name of the model.", examples=["face-68"])]
Reference = Annotated[
    str,
    Path(
        description="Which version: its number, `latest` (the newest available), an alias, or "
        "`sha256:` and its digest.",
        examples=["2", "latest"],
        max_length=80,
    ),
]


Limit = Annotated[
    int, Query(ge=1, le=MOST_ITEMS, description="Most items of the page.", examples=[50])
]
Cursor = Annotated[
    str | None,
    Query(
        description="`next_cursor` of the page before.",
        max_length=200,
        examples=["djE6YmVmb3JlPTQy"],
    ),
]


@router.get("/models", summary="List model versions")
def list_models(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: LookingSession,
    filters: ModelFilters,
    sort: Sort = "-created",
    limit: Limit = 50,
    cursor: ListingCursor = None,
) -> ModelPage:
    """Return the versions that pass all filters, a page at a time.

    Whether two models can be merged is known before anything is downloaded: with
    `mergeable_with` or `mergeable_key`, `mergeable_by` names the methods that can merge each
    version with the given model.
    """
    return service.list_models(session, caller, paged(filters, sort, limit, cursor))


@router.get("/models/facets", summary="Count what models have in common")
def list_facets(caller: SignedIn, session: LookingSession, filters: ModelFilters) -> FacetsResponse:
    """Return kinds, sites, states and core labels of the versions that pass all filters.

    Of large listings only the newest versions are counted; `complete` tells.
    """
    return service.list_facets(session, caller, filters)


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
    query = paged(ModelQuery(site=site, name=name), "-created", limit, cursor)
    return service.list_versions_of(session, caller, site, name, query)


@router.get("/models/{site}/{name}/versions/{reference}", summary="Describe a version")
def describe_version(
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> ModelVersionResponse:
    """Return labels, metrics, fingerprint and all else that the pool knows of a version."""
    version = service.resolve_version(session, caller, site, name, reference)
    return describing.describe_version(session, version.id, viewing_site(caller))


CONTENT_RESPONSES = documented(VersionWithdrawnError) | {
    200: {
        "description": "The whole file.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    206: {
        "description": "The range asked for.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    304: {"description": "The client has this content already (`If-None-Match`)."},
    307: {"description": "The file lies elsewhere; follow `Location` without the token."},
    416: {"model": ErrorResponse, "description": "There is no such byte in the file."},
}


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
    warning = warning_of(version)
    return send_content(
        parts,
        version.digest,
        version.size_bytes,
        version.file_name,
        {WARNING_HEADER: warning} if warning else None,
    )


def find_downloadable(
    parts: ServerParts, caller: Caller, address: tuple[str, str, str]
) -> ModelVersionRecord:
    """Return the version at site, name and reference, as far as it is given out."""
    with parts.database.read() as session:
        version = service.resolve_version(session, caller, *address)
    require_right(caller, version.model, "download")
    require_not_withdrawn(version)
    return version
