"""Routes of the board: sessions, their messages, their files."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from pool_server.database.engine import write_with_retry
from pool_server.errors import StorageFullError, TooLargeError
from pool_server.http.error_responses import document_errors
from pool_server.http.file_response import CONTENT_RESPONSES
from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, read_cursor
from pool_server.http.session import LookingSession, Parts, ReadingSession
from pool_server.secure import files, service
from pool_server.transfers.check_slots import Checks
from pool_server.transfers.endpoints import UploadId
from pool_server.wire.names import DIGEST_PATTERN
from pool_server.wire.secure import (
    RoundKey,
    SecureFileRequest,
    SecurePostList,
    SecurePostRequest,
    SecurePostResponse,
    SecureSessionPage,
    SecureSessionRequest,
    SecureSessionResponse,
)
from pool_server.wire.uploads import UploadResponse

router = APIRouter(prefix="/secure/sessions", tags=["secure"], dependencies=[needs("rounds")])

_EXAMPLE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
SessionId = Annotated[
    str, Path(pattern=DIGEST_PATTERN, description="SHA-256 of the descriptor.", examples=[_EXAMPLE])
]
FileDigest = Annotated[
    str, Path(pattern=DIGEST_PATTERN, description="SHA-256 of the file.", examples=[_EXAMPLE])
]


def _known(model: type[Any]) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model, "description": "It was there already."}}


@router.post("", status_code=201, summary="Open a session", responses=_known(SecureSessionResponse))
def open_session(
    caller: Uploader, parts: Parts, request: SecureSessionRequest, response: Response
) -> SecureSessionResponse:
    """Open a session among sites that the caller's own is one of."""
    answer, is_new = write_with_retry(
        parts.database, lambda session: service.open_session(session, caller, request)
    )
    if not is_new:
        response.status_code = 200
    return answer


@router.get("", summary="List the sessions")
def list_sessions(
    caller: SignedIn,
    session: ReadingSession,
    round_id: Annotated[
        RoundKey | None,
        Query(alias="round", description="Only of this round.", examples=["4f1d2c3b4a596877"]),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> SecureSessionPage:
    """Return the sessions that one's own site takes part in, newest first; all for admins."""
    before_id = None if cursor is None else read_cursor(cursor)
    return service.list_sessions(
        session, caller, round_key=round_id, before_id=before_id, limit=limit
    )


@router.get("/{session_id}", summary="Describe a session")
def describe(
    caller: SignedIn, session: ReadingSession, session_id: SessionId
) -> SecureSessionResponse:
    """Return the descriptor and the sites."""
    return service.describe_session(service.get_session(session, caller, session_id))


@router.post(
    "/{session_id}/posts",
    status_code=201,
    summary="Post a message",
    responses=_known(SecurePostResponse),
)
def post(
    caller: Uploader,
    parts: Parts,
    session_id: SessionId,
    request: SecurePostRequest,
    response: Response,
) -> SecurePostResponse:
    """Add a signed message of one's own site; it cannot be changed or taken back."""
    answer, is_new = write_with_retry(
        parts.database, lambda session: service.post(session, caller, session_id, request)
    )
    if not is_new:
        response.status_code = 200
    return answer


@router.get("/{session_id}/posts", summary="Read the messages")
def list_posts(
    caller: SignedIn,
    session: LookingSession,
    session_id: SessionId,
    after: Annotated[
        int, Query(ge=0, description="Number of the last message known.", examples=[0])
    ] = 0,
) -> SecurePostList:
    """Return up to 20 messages in the order of their arrival."""
    return service.list_posts(session, caller, session_id, after)


@router.post(
    "/{session_id}/files",
    status_code=201,
    summary="Announce a file",
    responses=document_errors(TooLargeError, StorageFullError) | _known(UploadResponse),
)
def announce(
    caller: Uploader,
    parts: Parts,
    session_id: SessionId,
    request: SecureFileRequest,
    response: Response,
) -> UploadResponse:
    """Begin to send a file; its parts go where those of any upload go."""
    answer, is_new = files.announce_file(parts, caller, session_id, request)
    if not is_new:
        response.status_code = 200
    return answer


@router.post(
    "/{session_id}/files/uploads/{upload_id}/complete",
    status_code=201,
    summary="Complete a file",
    responses=document_errors(StorageFullError),
)
async def complete(
    caller: Uploader, parts: Parts, checks: Checks, session_id: SessionId, upload_id: UploadId
) -> UploadResponse:
    """Verify the digest; the sites of the session can then fetch the file."""
    return await checks.run(caller.site, files.complete_file, parts, caller, session_id, upload_id)


@router.head(
    "/{session_id}/files/{digest}",
    summary="Ask about a file",
    response_class=Response,
    responses=CONTENT_RESPONSES,
)
@router.get(
    "/{session_id}/files/{digest}",
    summary="Download a file",
    response_class=Response,
    responses=CONTENT_RESPONSES,
)
def download(caller: SignedIn, parts: Parts, session_id: SessionId, digest: FileDigest) -> Response:
    """Return the file's bytes, or the range asked for."""
    return files.send_file(parts, caller, session_id, digest)
