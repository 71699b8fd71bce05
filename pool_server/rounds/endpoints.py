"""Routes of rounds."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from pool_server.errors import StorageFullError, TooLargeError, VersionWithdrawnError
from pool_server.http.error_responses import document_errors
from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, SiteName, read_cursor
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.rounds import repository, service
from pool_server.rounds.contributing import (
    announce_contribution,
    complete_contribution,
    take_back_contribution,
)
from pool_server.rounds.finishing import request_finish
from pool_server.rounds.replies import read_reply
from pool_server.rounds.repository import describe_round
from pool_server.transfers.check_slots import Checks
from pool_server.transfers.endpoints import UploadId
from pool_server.wire.merges import MergeJobResponse
from pool_server.wire.rounds import (
    ROUND_KEY_PATTERN,
    ContributionRequest,
    FinishRequest,
    RoundPage,
    RoundRequest,
    RoundResponse,
    RoundState,
    WaitingRounds,
)
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.uploads import UploadResponse

router = APIRouter(prefix="/rounds", tags=["rounds"], dependencies=[needs("rounds")])

RoundId = Annotated[
    str,
    Path(
        pattern=ROUND_KEY_PATTERN,
        description="Identifier of the round.",
        examples=["4f1d2c3b4a596877"],
    ),
]
_UNDER_WAY: dict[int | str, dict[str, Any]] = {
    200: {"model": UploadResponse, "description": "It is under way, or nothing need be sent."}
}


@router.post("", status_code=201, summary="Start a round")
def start(caller: Uploader, session: WritingSession, request: RoundRequest) -> RoundResponse:
    """Ask sites to train a model together. One's own site must be among them, save for admins."""
    return service.start_round(session, caller, request)


@router.get("", summary="List the rounds")
def list_rounds(
    caller: SignedIn,
    session: ReadingSession,
    state: Annotated[
        RoundState | None, Query(description="Only rounds in this state.", examples=["open"])
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> RoundPage:
    """Return the rounds that one's own site takes part in, newest first; all for admins."""
    before_id = None if cursor is None else read_cursor(cursor)
    return service.list_rounds(session, caller, state=state, before_id=before_id, limit=limit)


@router.get("/waiting", summary="Count the rounds that wait for one's site")
def count_waiting(caller: SignedIn, session: ReadingSession) -> WaitingRounds:
    """Return how many open rounds one's own site has not contributed to yet."""
    return WaitingRounds(count=repository.count_waiting(session, caller.site_id))


@router.get("/{round_id}", summary="Describe a round")
def describe(caller: SignedIn, session: ReadingSession, round_id: RoundId) -> RoundResponse:
    """Return who takes part, who has contributed, who is missing, and the result."""
    return describe_round(service.get_round(session, caller, round_id))


@router.put("/{round_id}/terms", summary="Sign the terms of a round")
def sign(
    caller: Uploader, session: WritingSession, round_id: RoundId, terms: Envelope
) -> RoundResponse:
    """Keep what the site that started a round has signed: its base, method, options and sites.

    The pool compares it with the round, and each site checks the signature before it contributes.
    The rounds that follow have the same terms.
    """
    return service.keep_terms(session, caller, round_id, terms)


@router.post("/{round_id}/close", summary="Stop waiting")
def close(caller: Uploader, session: WritingSession, round_id: RoundId) -> RoundResponse:
    """Move the deadline to this moment. For the site that started the round, and admins."""
    return service.close_round(session, caller, round_id)


@router.post("/{round_id}/cancel", summary="Cancel a round")
def cancel(caller: Uploader, session: WritingSession, round_id: RoundId) -> RoundResponse:
    """End a round without a result. For the site that started the round, and admins."""
    return service.cancel_round(session, caller, round_id)


@router.post(
    "/{round_id}/contributions",
    status_code=201,
    summary="Announce a contribution",
    responses=document_errors(TooLargeError, StorageFullError) | _UNDER_WAY,
)
def contribute(
    caller: Uploader,
    parts: Parts,
    round_id: RoundId,
    request: ContributionRequest,
    response: Response,
) -> UploadResponse:
    """Begin to send a contribution; its parts go where those of any upload go.

    A site has one contribution, and may take it back to send another. The same file announced
    again gives the upload that is under way, or is complete at once. Nobody can download it.
    """
    answer, is_new = announce_contribution(parts, caller, round_id, request)
    if not is_new:
        response.status_code = 200
    return answer


@router.post(
    "/{round_id}/contributions/uploads/{upload_id}/complete",
    status_code=201,
    summary="Complete a contribution",
    responses=document_errors(StorageFullError),
)
async def complete_sent_contribution(
    caller: Uploader, parts: Parts, checks: Checks, round_id: RoundId, upload_id: UploadId
) -> UploadResponse:
    """Compare the file with the round's base and settings, then count it as the contribution."""
    return await checks.run(caller.site, complete_contribution, parts, caller, round_id, upload_id)


@router.delete("/{round_id}/contributions/{site}", summary="Take a contribution back")
def take_back(caller: Uploader, parts: Parts, round_id: RoundId, site: SiteName) -> RoundResponse:
    """Remove a contribution of one's own site, as long as the round is not finished.

    While the round is open, the site may contribute again.
    """
    return take_back_contribution(parts, caller, round_id, site)


@router.get(
    "/{round_id}/reply",
    summary="Get the reply to one's own contribution",
    response_class=Response,
    responses=document_errors(VersionWithdrawnError)
    | {
        200: {
            "description": "The reply, a safetensors file.",
            "content": {
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
            },
        }
    },
)
def reply(caller: Uploader, parts: Parts, round_id: RoundId) -> Response:
    """Return what a finished round has made for one's own site, as the method fedpac does.

    No other site gets it, and no admin.
    """
    content = read_reply(parts, caller, round_id)
    headers = {"Cache-Control": "no-store"}
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.post("/{round_id}/finish", status_code=202, summary="Finish a round")
def finish(
    caller: Uploader, parts: Parts, round_id: RoundId, request: FinishRequest
) -> MergeJobResponse:
    """Combine the contributions and publish the result with its lineage; the next round opens.

    Any site of the round may ask for it. The answer is a merge in the background
    (`GET /merges/{merge_id}`); asking again, from any site of the round, returns the same one.
    The pool combines, so no site needs to read the contributions of others. It cannot sign for the
    site: the result is published unsigned, even where signatures are required
    (`PUT .../statement`).
    """
    return request_finish(parts, caller, round_id, request)
