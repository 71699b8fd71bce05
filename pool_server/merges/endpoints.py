"""Addresses of merges that the pool makes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, read_cursor
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.merges import service
from pool_server.wire.merges import (
    MERGE_KEY_PATTERN,
    MergeJobPage,
    MergeJobResponse,
    MergeJobState,
    MergeRequest,
)

router = APIRouter(prefix="/merges", tags=["merges"], dependencies=[needs("merges")])

MergeId = Annotated[
    str,
    Path(
        pattern=MERGE_KEY_PATTERN,
        description="Identifier of the merge.",
        examples=["4f1d2c3b4a596877"],
    ),
]


@router.post("", status_code=202, summary="Have the pool merge models")
def request_merge(caller: Uploader, parts: Parts, request: MergeRequest) -> MergeJobResponse:
    """Carry a recipe out in the background and publish the result, with its lineage.

    The result is what `poolctl merge` makes of the same recipe, byte for byte. The pool cannot
    sign it for the site: where signatures are demanded it is a draft, which only its site and
    curators see, until the site has signed it (`PUT .../statement`) and published it.
    """
    return service.request_merge(parts, caller, request)


@router.get("", summary="List merges")
def list_merges(
    caller: SignedIn,
    session: ReadingSession,
    state: Annotated[
        MergeJobState | None, Query(description="Only in this state.", examples=["running"])
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> MergeJobPage:
    """Return the merges that one's own site asked for, newest first; admins see all."""
    before_id = None if cursor is None else read_cursor(cursor)
    return service.list_jobs(session, caller, state, before_id, limit)


@router.get("/{merge_id}", summary="Show the progress of a merge")
def show(caller: SignedIn, session: ReadingSession, merge_id: MergeId) -> MergeJobResponse:
    """Return a merge: its state, its progress, what it became or why it failed."""
    return service.describe_job(session, service.get_job(session, caller, merge_id))


@router.post("/{merge_id}/cancel", summary="Cancel a merge")
def cancel(caller: Uploader, session: WritingSession, merge_id: MergeId) -> MergeJobResponse:
    """End a merge; one that runs ends within seconds, one that is over stays as it is."""
    return service.cancel_merge(session, caller, merge_id)
