"""Addresses under which scores are posted and shown."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pool_server.evaluations import service
from pool_server.evaluations.repository import MatrixQuery
from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, ModelName, Reference, SiteName, read_cursor
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.registry.service import resolve_version
from pool_server.wire.evaluations import (
    EvaluationMatrix,
    EvaluationPage,
    EvaluationRequest,
    EvaluationResponse,
)
from pool_server.wire.names import Digest, LabelKey, Name

router = APIRouter(tags=["evaluations"])


@router.post(
    "/evaluations",
    status_code=201,
    summary="Post scores of a model",
    dependencies=[needs("evaluations:write")],
)
def post_evaluation(
    caller: Uploader, session: WritingSession, request: EvaluationRequest
) -> EvaluationResponse:
    """Keep how a model did on a site's own data, which stay at the site.

    Any site may, for any model that it may see. Of the same site, data and protocol the newest
    counts; earlier ones stay and can be asked for.
    """
    return service.post_evaluation(session, caller, request)


@router.get("/evaluations", summary="Show models x sites", dependencies=[needs("models:read")])
def matrix(  # noqa: PLR0917 - FastAPI gives them by name
    caller: SignedIn,
    session: ReadingSession,
    score: Annotated[LabelKey, Query(description="Which score.", examples=["mean_error"])],
    kind: Annotated[
        str | None,
        Query(description="`hog-svm`, `ert` or `network`.", max_length=16, examples=["ert"]),
    ] = None,
    site: Annotated[
        Name | None, Query(description="Only models of this site.", examples=["site-a"])
    ] = None,
    name: Annotated[
        Name | None, Query(description="Only models of this name.", examples=["face-68"])
    ] = None,
    measured_by: Annotated[
        Name | None, Query(description="Only scores by this site.", examples=["site-b"])
    ] = None,
    dataset_digest: Annotated[
        Digest | None, Query(description="Only on this data set.", examples=["60ab" * 16])
    ] = None,
    protocol: Annotated[
        str | None,
        Query(description="Only measured in this way.", max_length=128, examples=["inter-ocular"]),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> EvaluationMatrix:
    """Return one score of all models by all sites, newest models first, a page at a time.

    A site may have several cells in a row: one for each of its data sets and protocols.
    """
    query = MatrixQuery(
        score=score,
        kind=kind,
        site=site,
        name=name,
        measured_by=measured_by,
        dataset_digest=dataset_digest,
        protocol=protocol,
        limit=limit,
        before_id=None if cursor is None else read_cursor(cursor),
    )
    return service.show_matrix(session, caller, query)


@router.get(
    "/models/{site}/{name}/versions/{reference}/evaluations",
    summary="Tell who measured what of a version",
    dependencies=[needs("models:read")],
)
def list_evaluations(  # noqa: PLR0917
    caller: SignedIn,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    history: Annotated[
        bool, Query(description="Include evaluations that were repeated since.", examples=[False])
    ] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> EvaluationPage:
    """Return the evaluations of a version's file, newest first, a page at a time."""
    version = resolve_version(session, caller, site, name, reference)
    before_id = None if cursor is None else read_cursor(cursor)
    return service.list_evaluations(
        session, caller, version, history=history, before_id=before_id, limit=limit
    )
