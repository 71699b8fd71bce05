"""Addresses under which versions are withdrawn, and withdrawals are listed."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, ModelName, Reference, SiteName, read_cursor
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.lineage.withdrawals import service
from pool_server.registry.service import resolve_version
from pool_server.wire.names import Name
from pool_server.wire.withdrawals import (
    CheckRequest,
    CheckResponse,
    SuccessorRequest,
    SuccessorResponse,
    WithdrawalPage,
    WithdrawalPreview,
    WithdrawalRequest,
    WithdrawalResponse,
)

router = APIRouter(tags=["withdrawals"])


@router.get(
    "/models/{site}/{name}/versions/{reference}/withdrawal-preview",
    summary="Preview a withdrawal",
    dependencies=[needs("withdrawals")],
)
def preview(
    caller: Uploader,
    session: ReadingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
) -> WithdrawalPreview:
    """Return what would be flagged and which sites would be notified, without changing anything.

    For those who may withdraw the version. Sites are named even where their models are not for
    the caller to see: who withdraws something has to know who has it.
    """
    version = service.find_own(session, caller, site, name, reference)
    return service.preview(session, caller, version)


@router.post(
    "/models/{site}/{name}/versions/{reference}/withdraw",
    summary="Withdraw a version",
    dependencies=[needs("withdrawals")],
)
def withdraw(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    request: WithdrawalRequest,
) -> WithdrawalResponse:
    """Withdraw a version of one's own site, or, as a curator or admin of the pool, any.

    Of a file that several sites have, only the site that published it first can do so.

    It cannot be undone. Everything that was merged from it is flagged, through any number of
    merges; owners, and sites that have fetched any of it, find an event. Downloads of the
    withdrawn bytes are refused or carry a warning, as the reason demands; those of a version in
    quarantine are always refused. A draft is not withdrawn but deleted.
    """
    version = service.find_own(session, caller, site, name, reference)
    return service.withdraw(session, caller, version, request)


@router.post(
    "/models/{site}/{name}/versions/{reference}/successors",
    summary="Name what replaces a version",
    dependencies=[needs("withdrawals")],
)
def name_successor(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    reference: Reference,
    request: SuccessorRequest,
) -> SuccessorResponse:
    """Name a version, of any site, that replaces one of your own site.

    What your own site publishes with a recipe that says so is linked without this. What another
    site publishes is not: there is an event `version.successor-offered` then. Curators and admins
    of the pool may name a successor of any version.
    """
    version = resolve_version(session, caller, site, name, reference)
    return service.name_successor(session, caller, version, request.successor)


@router.get("/withdrawals", summary="List what was withdrawn", dependencies=[needs("models:read")])
def list_withdrawals(
    caller: SignedIn,
    session: ReadingSession,
    site: Annotated[
        Name | None, Query(description="Only of this site's models.", examples=["site-a"])
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> WithdrawalPage:
    """Return the withdrawals of models that one may see, newest first, a page at a time."""
    before_id = None if cursor is None else read_cursor(cursor)
    return service.list_withdrawals(session, caller, site=site, before_id=before_id, limit=limit)


@router.post(
    "/withdrawals/check",
    summary="Ask whether files were withdrawn",
    dependencies=[needs("models:read")],
)
def check(caller: SignedIn, session: ReadingSession, request: CheckRequest) -> CheckResponse:
    """Return which of the files with these digests were withdrawn, or hold something that was.

    Meant for copies that were downloaded before, and therefore told whoever may see the models
    now; to others than those without names, explanations and successors. Files in good standing,
    and files that the pool does not know, are both left out.
    """
    return service.check_digests(session, caller, request.digests)
