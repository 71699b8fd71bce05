"""Routes of the board: sessions, their messages, their files."""

import pathlib
from datetime import timedelta
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from sqlalchemy.orm import Session

from pool_server.database import records
from pool_server.database.engine import count_rows, write_with_retry
from pool_server.errors import ConflictError, MissingError
from pool_server.http.audit import record_act
from pool_server.http.file_response import CONTENT_RESPONSES, send_content
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, find_page
from pool_server.http.session import Parts, ReadingSession, ServerParts
from pool_server.jobs.check_slots import Checks
from pool_server.people.sites import require_room
from pool_server.rounds.repository import is_needed
from pool_server.secure import service
from pool_server.transfers import receiving
from pool_server.transfers.endpoints import UploadId
from pool_server.wire import rounds as secure
from pool_server.wire.names import DIGEST_PATTERN
from pool_server.wire.uploads import UploadResponse

FILE = "secure"
"""The purpose of uploads to a session."""
MOST_FILES = 64
"""Maximum number of files of one site in one session; the protocol has one or two."""
RETENTION = timedelta(days=30)
"""Time for which sessions are kept after their end."""


def admit_file(
    session: Session,
    caller: Caller,
    upload: records.UploadRecord,
    *,
    parts: ServerParts,
    board_session: records.SecureSessionRecord,
    offer: secure.SecureFileRequest,
) -> bool:
    """Admit an announced file of a session, as `pool_server.transfers.receiving.Admit`."""
    upload.purpose, upload.model_name = FILE, board_session.key
    upload.file_name = f"{offer.site}-{offer.digest[:16]}.bin"
    upload.secure_session_id = board_session.id
    service.require_participant(caller, board_session, offer.site)
    known = session.get(records.SecureFileRecord, (board_session.id, upload.site_id, upload.digest))
    if known is not None:
        return parts.storage.has_content(known.digest)
    of_session = records.SecureFileRecord.session_id == board_session.id
    of_site = records.SecureFileRecord.site_id == upload.site_id
    if count_rows(session, of_session, of_site) >= MOST_FILES:
        raise ConflictError(
            f"site {offer.site!r} has sent {MOST_FILES} files to session {board_session.key}, "
            "which is the most allowed",
            code="too_many_files",
        )
    return False


def accept_any(_upload: records.UploadRecord, _path: pathlib.Path) -> None:
    """Accept any bytes with the announced digest: only the receivers can read them."""


def add_file(
    session: Session, caller: Caller, upload: records.UploadRecord, _checked: None
) -> None:
    """Add a received file to its session."""
    if upload.secure_session_id is None:
        raise ConflictError("the session of this file was deleted", code="session_not_found")
    service.lock_session(session, upload.secure_session_id)
    key = (upload.secure_session_id, upload.site_id, upload.digest)
    if session.get(records.SecureFileRecord, key) is not None:
        return
    require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=False)
    session.add(
        records.SecureFileRecord(
            session_id=upload.secure_session_id,
            site_id=upload.site_id,
            digest=upload.digest,
            size_bytes=upload.size_bytes,
            token_id=caller.token_id,
        )
    )
    record_act(
        session,
        caller,
        "secure.send",
        upload.model_name,
        site=upload.site.name,
        digest=upload.digest,
        size_bytes=upload.size_bytes,
    )
    session.flush()


def delete_ended_sessions(parts: ServerParts) -> int:
    """Delete sessions that ended long ago, and their files; return the number of removed files."""
    with parts.database.alone("secure sessions") as is_first:
        if not is_first:
            return 0
        with parts.database.write() as session:
            digests = service.delete_ended(session, records.now_utc() - RETENTION)
        with parts.database.read() as session:
            unneeded = [digest for digest in sorted(digests) if not is_needed(session, digest)]
        for digest in unneeded:
            parts.storage.remove_content(digest)
    return len(unneeded)


router = APIRouter(prefix="/secure/sessions", tags=["secure"], dependencies=[needs("rounds")])

SessionId = Annotated[str, Path(pattern=DIGEST_PATTERN, description="SHA-256 of the descriptor.")]
FileDigest = Annotated[str, Path(pattern=DIGEST_PATTERN, description="SHA-256 of the file.")]


@router.post("", status_code=201, summary="Open a session")
def open_session(
    caller: Uploader, parts: Parts, request: secure.SecureSessionRequest, response: Response
) -> secure.SecureSessionResponse:
    """Open a session among sites that include the caller's own."""
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
        secure.RoundKey | None, Query(alias="round", description="Only of this round.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> secure.SecureSessionPage:
    """Return the sessions of your own site, newest first; admins get all sessions."""
    query = service.select_sessions(None if caller.is_admin else caller.site_id, round_id)
    page, next_cursor = find_page(session, query, records.SecureSessionRecord.id, cursor, limit)
    items = [service.describe_as(secure.SecureSessionSummary, row) for row in page]
    return secure.SecureSessionPage(items=items, next_cursor=next_cursor)


@router.get("/{session_id}", summary="Describe a session")
def describe(
    caller: SignedIn, session: ReadingSession, session_id: SessionId
) -> secure.SecureSessionResponse:
    """Return the descriptor and the sites."""
    return service.describe_session(service.get_session(session, caller, session_id))


@router.post("/{session_id}/posts", status_code=201, summary="Post a message")
def post(
    caller: Uploader,
    parts: Parts,
    session_id: SessionId,
    request: secure.SecurePostRequest,
    response: Response,
) -> secure.SecurePostResponse:
    """Add a signed message of your own site; it cannot be changed or taken back."""
    answer, is_new = write_with_retry(
        parts.database, lambda session: service.post(session, caller, session_id, request)
    )
    if not is_new:
        response.status_code = 200
    return answer


@router.get("/{session_id}/posts", summary="Read the messages")
def list_posts(
    caller: SignedIn,
    session: ReadingSession,
    session_id: SessionId,
    after: Annotated[int, Query(ge=0, description="Number of the last message known.")] = 0,
) -> secure.SecurePostList:
    """Return up to 20 messages in the order of their arrival."""
    board_session = service.get_session(session, caller, session_id)
    posts, more = service.read_page(session, board_session.id, after)
    return secure.SecurePostList(items=[service.describe_post(post) for post in posts], more=more)


@router.post("/{session_id}/files", status_code=201, summary="Announce a file")
def announce(
    caller: Uploader,
    parts: Parts,
    session_id: SessionId,
    request: secure.SecureFileRequest,
    response: Response,
) -> UploadResponse:
    """Begin to send a file; its parts go to the addresses of any upload's parts."""
    with parts.database.read() as session:
        board_session = service.get_session(session, caller, session_id)
    admit = partial(admit_file, parts=parts, board_session=board_session, offer=request)
    upload, is_new = receiving.announce_upload(parts, caller, request, admit)
    if not is_new:
        response.status_code = 200
    return receiving.describe_upload(parts, upload)


@router.post(
    "/{session_id}/files/uploads/{upload_id}/complete", status_code=201, summary="Complete a file"
)
async def complete(
    caller: Uploader, parts: Parts, checks: Checks, session_id: SessionId, upload_id: UploadId
) -> UploadResponse:
    """Verify the digest; the sites of the session can then fetch the file."""

    def act() -> UploadResponse:
        with parts.database.read() as session:
            service.get_session(session, caller, session_id)
        upload = receiving.complete_upload(
            parts, caller, upload_id, accept_any, add_file, purpose=FILE, place=session_id
        )
        return receiving.describe_upload(parts, upload)

    return await receiving.check_in_turn(parts, checks, caller.site, upload_id, act)


@router.head(
    "/{session_id}/files/{digest}",
    summary="Get the headers of a file",
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
    """Return the file's bytes, or the requested range."""
    with parts.database.read() as session:
        board_session = service.get_session(session, caller, session_id)
        file = service.find_file(session, board_session.id, digest)
    if file is None:
        raise MissingError(f"session {session_id} has no file {digest}", code="file_not_found")
    return send_content(parts, digest, file.size_bytes, f"{digest[:16]}.bin")
