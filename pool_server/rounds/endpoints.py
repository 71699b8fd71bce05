"""Routes of rounds."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from aggregators.methods.networks.replies import encode_reply
from aggregators.methods.networks.round_files import decode_optimiser_state
from pool_server import errors
from pool_server.database.records import RoundRecord, now_utc
from pool_server.http.audit import record_act
from pool_server.http.identity import SignedIn, Uploader, needs
from pool_server.http.parameters import Cursor, Limit, SiteName, find_page
from pool_server.http.session import Parts, ReadingSession, WritingSession
from pool_server.jobs.check_slots import Checks
from pool_server.people.sites import get_site
from pool_server.registry.repository import get_version
from pool_server.registry.withdrawal_status import require_not_withdrawn
from pool_server.rounds import repository, service
from pool_server.rounds.contributing import (
    announce_contribution,
    complete_contribution,
    note_lateness,
)
from pool_server.rounds.finishing import request_finish
from pool_server.rounds.methods import find_round_method
from pool_server.rounds.repository import describe_round, has_enough, missing_sites, state_of
from pool_server.transfers.endpoints import UploadId
from pool_server.transfers.receiving import check_in_turn, describe_upload, get_upload
from pool_server.wire import rounds
from pool_server.wire.merges import MergeJobResponse
from pool_server.wire.signatures.keys import Envelope
from pool_server.wire.uploads import UploadResponse

LONGEST = timedelta(days=366)
router = APIRouter(prefix="/rounds", tags=["rounds"], dependencies=[needs("rounds")])

RoundId = Annotated[
    str, Path(pattern=rounds.ROUND_KEY_PATTERN, description="Identifier of the round.")
]


@router.post("", status_code=201, summary="Start a round")
def start(
    caller: Uploader, session: WritingSession, request: rounds.RoundRequest
) -> rounds.RoundResponse:
    """Invite sites to train a model together, your own among them unless you are an admin."""
    names = sorted(set(request.sites))
    service.require_own_site_among(caller, names)
    method = find_round_method(request.method)
    if len(names) < repository.FEWEST_CONTRIBUTIONS:
        raise errors.RoundRefusedError(
            f"a round needs at least {repository.FEWEST_CONTRIBUTIONS} sites: the result of one "
            "contribution would reveal it",
            hint=f"`{method.alone}` does the same with data sets on one machine.",
        )
    if len(names) <= request.least_others:
        raise errors.RoundRefusedError(
            f"each contribution must be combined with {request.least_others} others, but the "
            f"round has {len(names)} sites; expected at least {request.least_others + 1}"
        )
    base = service.find_base(session, caller, request.base)
    if request.secure is not None:
        service.require_summable(session, method, names, request.secure)
    options = method.full_options(request.options)
    method.require_sites(len(names), options)
    method.require_base(base)
    now = now_utc()
    if not now < request.deadline <= now + LONGEST:
        raise errors.RoundRefusedError(
            f"the deadline {request.deadline:%Y-%m-%d %H:%M %Z} cannot be kept; expected "
            f"one between now and {LONGEST.days} days from now"
        )
    sites = [get_site(session, name) for name in names]
    service.require_usable_by_all(base, sites)
    started = service.open_round(
        session,
        caller,
        base,
        sites,
        site_id=caller.site_id,
        token_id=caller.token_id,
        created_by=caller.name,
        method=request.method,
        method_version=method.aggregation.version,
        mode=request.mode,
        options=method.cover_rounds(options, request.rounds),
        description=request.description,
        number=1,
        rounds_total=request.rounds,
        deadline=request.deadline,
        duration_s=int((request.deadline - now).total_seconds()) + 1,
        least_others=request.least_others,
        created_at=now,
        secure=None if request.secure is None else request.secure.model_dump(mode="json"),
    )
    return describe_round(started)


@router.get("", summary="List the rounds")
def list_rounds(
    caller: SignedIn,
    session: ReadingSession,
    state: Annotated[
        rounds.RoundState | None, Query(description="Only rounds in this state.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> rounds.RoundPage:
    """Return the rounds of your own site, newest first; admins get all rounds."""
    query = repository.select_rounds(None if caller.is_admin else caller.site_id, state)
    page, next_cursor = find_page(session, query, RoundRecord.id, cursor, limit)
    return rounds.RoundPage(
        items=[describe_round(round_) for round_ in page], next_cursor=next_cursor
    )


@router.get("/waiting", summary="Count the rounds that await your site")
def count_waiting(caller: SignedIn, session: ReadingSession) -> rounds.WaitingRounds:
    """Return the number of open rounds to which your own site has not contributed yet."""
    return rounds.WaitingRounds(count=repository.count_waiting(session, caller.site_id))


@router.get("/{round_id}", summary="Describe a round")
def describe(caller: SignedIn, session: ReadingSession, round_id: RoundId) -> rounds.RoundResponse:
    """Return the round with its sites, contributions, missing sites, and result."""
    return describe_round(service.get_round(session, caller, round_id))


@router.put("/{round_id}/terms", summary="Sign the terms of a round")
def sign(
    caller: Uploader, session: WritingSession, round_id: RoundId, terms: Envelope
) -> rounds.RoundResponse:
    """Store the signed terms of a round: its base, method, options and sites.

    The pool compares them with the round, and each site checks the signature of the starting site
    before it contributes. The following rounds of the series have the same terms.
    """
    round_ = repository.lock_round(session, service.get_round(session, caller, round_id).id)
    service.require_starter(caller, round_, "sign its terms")
    service.require_open(round_)
    expected = rounds.RoundTerms.of(describe_round(round_))
    try:
        signed = rounds.RoundTerms.from_envelope(terms)
    except ValueError as error:
        raise errors.RefusedError(str(error), code="terms_refused") from error
    if round_.number > 1 or terms.body() != expected.to_bytes():
        raise errors.RefusedError(
            f"the signed terms are not those of round {round_id}", code="terms_refused"
        )
    round_.terms = terms.model_dump(mode="json")
    record_act(session, caller, "round.sign", round_id, digest=signed.digest)
    session.flush()
    return describe_round(round_)


@router.post("/{round_id}/close", summary="Close a round early")
def close(caller: Uploader, session: WritingSession, round_id: RoundId) -> rounds.RoundResponse:
    """Move the deadline to the present. For the site that started the round, and admins."""
    round_ = repository.lock_round(session, service.get_round(session, caller, round_id).id)
    service.require_starter(caller, round_, "close it early")
    if state_of(round_) == "open":
        if not has_enough(round_):
            raise errors.ConflictError(
                f"round {round_id} has {len(round_.contributions)} contributions, expected at "
                f"least {service.describe_floor(round_)}",
                code="round_open",
                hint=f"Wait for another, or end it: `poolctl rounds cancel {round_id}`",
            )
        round_.deadline = now_utc()
        record_act(session, caller, "round.close", round_id, missing=sorted(missing_sites(round_)))
        session.flush()
    return describe_round(round_)


@router.post("/{round_id}/cancel", summary="Cancel a round")
def cancel(caller: Uploader, session: WritingSession, round_id: RoundId) -> rounds.RoundResponse:
    """End a round without a result. For the site that started the round, and admins.

    Its contributions are kept.
    """
    round_ = service.get_round(session, caller, round_id)
    service.require_starter(caller, round_, "cancel it")
    if repository.end_round(session, round_.id, repository.CANCELLED, caller.name):
        record_act(session, caller, "round.cancel", round_id)
    round_ = repository.lock_round(session, round_.id)
    if round_.state == repository.FINISHED:
        raise errors.RoundClosedError(f"round {round_id} is finished and cannot be cancelled")
    return describe_round(round_)


@router.post("/{round_id}/contributions", status_code=201, summary="Announce a contribution")
def contribute(
    caller: Uploader,
    parts: Parts,
    round_id: RoundId,
    request: rounds.ContributionRequest,
    response: Response,
) -> UploadResponse:
    """Begin to send a contribution; its parts go to the addresses of any upload's parts.

    A site has one contribution, and may take it back to send another. Announcing the same file
    again returns the upload under way, or completes at once. Nobody can download it.
    """
    with parts.database.read() as session:
        round_ = service.get_round(session, caller, round_id)
    caller.require_upload_to(request.site)
    if not service.takes_part(round_, request.site):
        raise errors.NotAllowedError(
            f"site {request.site!r} was not asked to take part in round {round_.key}"
        )
    with note_lateness(parts, round_, request.site):
        upload, is_new = announce_contribution(parts, caller, round_, request)
    if not is_new:
        response.status_code = 200
    return describe_upload(parts, upload)


@router.post(
    "/{round_id}/contributions/uploads/{upload_id}/complete",
    status_code=201,
    summary="Complete a contribution",
)
async def complete_sent_contribution(
    caller: Uploader, parts: Parts, checks: Checks, round_id: RoundId, upload_id: UploadId
) -> UploadResponse:
    """Compare the file with the round's base and settings, then count it as the contribution."""

    def act() -> UploadResponse:
        with parts.database.read() as session:
            round_ = service.get_round(session, caller, round_id)
            site = get_upload(session, caller, upload_id).site.name
        with note_lateness(parts, round_, site):
            upload = complete_contribution(parts, caller, round_, upload_id)
        return describe_upload(parts, upload)

    return await check_in_turn(parts, checks, caller.site, upload_id, act)


@router.delete("/{round_id}/contributions/{site}", summary="Take a contribution back")
def take_back(
    caller: Uploader, parts: Parts, round_id: RoundId, site: SiteName
) -> rounds.RoundResponse:
    """Remove a contribution of your own site, unless the round is finished.

    While the round is open, the site may contribute again.
    """
    with parts.database.write() as session:
        round_ = service.get_round(session, caller, round_id)
        caller.require_upload_to(site)
        current = repository.lock_round(session, round_.id)
        if current.state == repository.FINISHED:
            raise errors.RoundClosedError(
                f"round {round_id} is finished, and its result contains the contribution of "
                f"{site!r}",
                hint="The result's site may withdraw it: `poolctl models withdraw`.",
            )
        contribution = next((e for e in current.contributions if e.site.name == site), None)
        if contribution is None:
            raise errors.MissingError(
                f"site {site!r} has not contributed to round {round_id}",
                code="contribution_not_found",
                hint=f"`poolctl rounds ls {round_id}` lists the contributions.",
            )
        digest = contribution.digest
        session.delete(contribution)
        record_act(session, caller, "round.take-back", round_id, site=site, digest=digest)
        session.flush()
        is_needed = repository.is_needed(session, digest)
        described = describe_round(repository.lock_round(session, current.id))
    if not is_needed:
        parts.storage.remove_content(digest)
    return described


@router.get(
    "/{round_id}/reply", summary="Get the reply to your own contribution", response_class=Response
)
def reply(caller: Uploader, parts: Parts, round_id: RoundId) -> Response:
    """Return the file that a finished round made for your own site, as the method fedpac does.

    No other site gets it, and no admin. It is part of the round's state: if the result is withdrawn
    or deleted, the reply is gone, too.
    """
    with parts.database.read() as session:
        round_ = service.get_round(session, caller, round_id)
        contribution = next(
            (
                candidate
                for candidate in round_.contributions
                if candidate.site_id == caller.site_id
            ),
            None,
        )
        state, result = round_.state_digest, round_.result_version_id
        replies = find_round_method(round_.method).aggregation.replies
        if contribution is None or state is None or result is None or not replies:
            raise errors.MissingError(
                f"round {round_id} has no reply to site {caller.site!r}",
                code="reply_not_found",
                hint=f"`poolctl rounds ls {round_id}` shows its contributions and how it ended.",
            )
        require_not_withdrawn(get_version(session, result))
    with parts.storage.content_file(state) as path:
        content = encode_reply(decode_optimiser_state(path.read_bytes()), contribution.digest)
    assert content is not None, f"the state of round {round_id} has a reply to each contribution"
    headers = {"Cache-Control": "no-store"}
    return Response(content, media_type="application/octet-stream", headers=headers)


@router.post("/{round_id}/finish", status_code=202, summary="Finish a round")
def finish(
    caller: Uploader, parts: Parts, round_id: RoundId, request: rounds.FinishRequest
) -> MergeJobResponse:
    """Combine the contributions and publish the result with its lineage; the next round opens.

    Any site of the round may request it. The answer is a merge in the background (`GET
    /merges/{merge_id}`); asking again, from any site of the round, returns the same one. The pool
    combines, so no site needs to read the contributions of others. It cannot sign for the site: the
    result is published unsigned, even if signatures are required (`PUT .../statement`).
    """
    return request_finish(parts, caller, round_id, request)
