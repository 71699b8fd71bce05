"""What sites give to a round: announced, received as models are, checked against the base."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from pool_server.database.engine import write_with_retry
from pool_server.database.records import (
    RoundContributionRecord,
    RoundRecord,
    SiteRecord,
    UploadRecord,
    now_utc,
)
from pool_server.errors import (
    ConflictError,
    MissingError,
    NotAllowedError,
    RefusedError,
    RoundClosedError,
)
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.limited import run_limited
from pool_server.people.sites.quotas import require_room
from pool_server.people.sites.repository import get_site
from pool_server.rounds import repository, service
from pool_server.rounds.describing import describe_round
from pool_server.rounds.methods import find_round_method
from pool_server.transfers.announcing import (
    AnnouncedFile,
    begin_upload,
    find_resumable,
    new_upload,
    require_size,
)
from pool_server.transfers.checking import check_limits
from pool_server.transfers.completing import Destination, complete_upload
from pool_server.transfers.service import describe_upload, get_upload
from pool_server.wire.rounds import ContributionRequest, RoundResponse
from pool_server.wire.transfers.uploads import UploadResponse

PURPOSE = "contribution"


def announce_contribution(
    parts: ServerParts, caller: Caller, key: str, request: ContributionRequest
) -> tuple[UploadResponse, bool]:
    """Begin to receive a contribution, or find the one under way, or find that it is there.

    Returns
    -------
    UploadResponse
    bool
        True when something new was made.

    Raises
    ------
    RoundClosedError
        It is too late; a site that was asked is then known as late.
    ConflictError
        The site has contributed a file with another digest, or the base was withdrawn.
    """
    with parts.database.read() as session:
        found = service.get_round(session, caller, key)
    _require_participant(caller, found, request.site)
    require_size(parts.settings, request.file_name, request.size_bytes)
    checked = _check_sum_of_servers(parts, found, request)

    def settle(session: Session) -> tuple[UploadResponse, bool]:
        return _settle_announcement(parts, session, caller, found.id, request, checked=checked)

    with _noting_lateness(parts, found, request.site):
        return write_with_retry(parts.database, settle)


def complete_contribution(
    parts: ServerParts, caller: Caller, key: str, upload_id: str
) -> UploadResponse:
    """Check a contribution whose parts are all there, and make it count.

    Raises
    ------
    RoundClosedError, ConflictError
        It came too late, or after another one of this site.
    DigestMismatchError, FormatRefusedError, RefusedError
        The file is refused for good.
    """
    with parts.database.read() as session:
        found = service.get_round(session, caller, key)
        upload = get_upload_of(session, caller, found, upload_id)
    with _noting_lateness(parts, found, upload.site.name):
        return complete_upload(parts, caller, upload_id, CONTRIBUTION)


def take_back_contribution(
    parts: ServerParts, caller: Caller, key: str, site: str
) -> RoundResponse:
    """Remove a site's contribution and its file.

    Raises
    ------
    RoundClosedError
        The round is finished: its result holds the contribution.
    MissingError
        The site has not contributed.
    """
    with parts.database.write() as session:
        found = service.get_round(session, caller, key)
        caller.require_upload_to(site)
        current = repository.lock_round(session, found.id)
        if current.state == repository.FINISHED:
            raise RoundClosedError(
                f"round {key} is finished, and its result holds the contribution of {site!r}",
                hint="Who has the result may withdraw it: `poolctl models withdraw`.",
            )
        contribution = next((e for e in current.contributions if e.site.name == site), None)
        if contribution is None:
            raise MissingError(
                f"site {site!r} has not contributed to round {key}",
                code="contribution_not_found",
                hint=f"`poolctl rounds info {key}` shows who has.",
            )
        digest = contribution.digest
        session.delete(contribution)
        record_act(session, caller, "round.take-back", key, site=site, digest=digest)
        session.flush()
        is_needed = repository.is_needed(session, digest)
        described = describe_round(repository.lock_round(session, current.id))
    if not is_needed:
        parts.storage.remove_content(digest)
    return described


def _settle_announcement(
    parts: ServerParts,
    session: Session,
    caller: Caller,
    round_id: int,
    request: ContributionRequest,
    *,
    checked: CheckedSum | None,
) -> tuple[UploadResponse, bool]:
    current = repository.lock_round(session, round_id)
    site = get_site(session, request.site)
    file = AnnouncedFile(
        current.key, request.digest, request.size_bytes, request.file_name, PURPOSE
    )
    own = find_own(current, site.id, request.digest)
    # A file that the storage has lost since then comes back when it is sent again.
    if own is not None and parts.storage.has_content(own.digest):
        upload = new_upload(parts, caller, site, file, "complete")
        upload.round_id = current.id
        session.add(upload)
        session.flush()
        return describe_upload(parts, upload), False
    if own is None:
        service.require_contributions_taken(current)
        service.require_usable_base(current, despite_withdrawal=request.despite_withdrawal)
    if own is None and (known := find_sum(current, request.digest)) is not None:
        checked = CheckedSum(known.size_bytes, known.summary)
    if own is None and checked is not None and parts.storage.has_content(request.digest):
        confirmed = new_upload(parts, caller, site, file, "complete")
        confirmed.round_id, confirmed.size_bytes = current.id, checked.size_bytes
        session.add(confirmed)
        settle_contribution(session, caller, confirmed, checked.summary)
        return describe_upload(parts, confirmed), True
    under_way = find_resumable(parts, session, site.id, file)
    if under_way is not None:
        under_way.expires_at = now_utc() + parts.settings.upload_lifetime
        return describe_upload(parts, under_way), False
    upload = new_upload(parts, caller, site, file, "receiving")
    upload.round_id = current.id
    return begin_upload(parts, session, upload), True


@dataclass(frozen=True)
class CheckedSum:
    """The sum of a secure round that the pool has already, and what the check read from it."""

    size_bytes: int
    summary: dict[str, Any]


def _check_sum_of_servers(
    parts: ServerParts, found: RoundRecord, request: ContributionRequest
) -> CheckedSum | None:
    """Look at the sum that the servers of a secure round sent; None where they did not.

    So no lab has to send it.
    """
    if found.secure is None or found.contributions:
        return None
    with parts.database.read() as session:
        size_bytes = repository.size_of_session_file(session, found.id, request.digest)
    if size_bytes is None or not parts.storage.has_content(request.digest):
        return None
    upload = UploadRecord(round_id=found.id, file_name=request.file_name, size_bytes=size_bytes)
    with parts.storage.content_file(request.digest) as path:
        return CheckedSum(size_bytes, check_contribution(parts, upload, path))


def find_sum(found: RoundRecord, digest: str) -> RoundContributionRecord | None:
    """Return the sum of a secure round, if a site has sent it; None in other rounds.

    Raises
    ------
    ConflictError
        The sum that another site sent has another digest.
    """
    if found.secure is None or not found.contributions:
        return None
    first = found.contributions[0]
    if first.digest != digest:
        raise ConflictError(
            f"the sum of round {found.key} that site {first.site.name!r} sent has other bytes "
            f"(SHA-256 {first.digest}, expected {digest})",
            code="sums_differ",
            hint="One of you did not send the sum that the servers signed: compare the digests.",
            details={"found": first.digest, "expected": digest},
        )
    return first


def find_own(found: RoundRecord, site_id: int, digest: str) -> RoundContributionRecord | None:
    """Return the site's contribution if it is this one; None if there is none.

    Raises
    ------
    ConflictError
        It contributed something else.
    """
    for contribution in found.contributions:
        if contribution.site_id != site_id:
            continue
        if contribution.digest == digest:
            return contribution
        raise ConflictError(
            f"site {contribution.site.name!r} has contributed to round {found.key} on "
            f"{contribution.created_at:%Y-%m-%d %H:%M} UTC, with other bytes "
            f"(SHA-256 {contribution.digest})",
            code="contribution_exists",
            hint=f"Take it back to send another: `poolctl rounds take-back {found.key}`",
            details={"found": digest, "expected": contribution.digest},
        )
    return None


def check_contribution(parts: ServerParts, upload: UploadRecord, path: Path) -> dict[str, Any]:
    """Look at a contribution, in another process, beside the base that it should fit.

    Returns
    -------
    dict
        What is told of it.
    """
    with parts.database.read() as session:
        found = repository.get_round(session, round_of(upload))
    base, method = found.base_version, find_round_method(found.method)
    with parts.storage.content_file(base.digest) as base_path:
        answer = run_limited(
            "pool_server.rounds.contribution_check",
            {
                "path": str(path),
                "name": upload.file_name,
                "method": method.name,
                "base": str(base_path),
                "base_digest": base.digest,
                "options": found.options,
            },
            check_limits(parts.settings, upload.size_bytes + base.size_bytes),
            activity=f"{upload.file_name}: reading the file",
        )
    if not answer["accepted"]:
        raise RefusedError(
            str(answer["message"]),
            code="contribution_refused",
            hint=f"`poolctl rounds contribute {found.key} --data {method.data}` makes one that "
            "fits.",
        )
    summary: dict[str, Any] = answer["summary"]
    return summary


def settle_contribution(
    session: Session, caller: Caller, upload: UploadRecord, summary: dict[str, Any]
) -> None:
    """Make a checked contribution count, if it is still in time and the site's first."""
    current = repository.lock_round(session, round_of(upload))
    if find_own(current, upload.site_id, upload.digest) is not None:
        return
    find_sum(current, upload.digest)
    service.require_contributions_taken(current)
    require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=False)
    session.add(
        RoundContributionRecord(
            round_id=current.id,
            site_id=upload.site_id,
            digest=upload.digest,
            size_bytes=upload.size_bytes,
            file_name=upload.file_name,
            summary=summary,
            created_by=service.name_of(caller),
            token_id=caller.token_id,
        )
    )
    record_act(
        session,
        caller,
        CONTRIBUTION.action,
        current.key,
        site=upload.site.name,
        digest=upload.digest,
        size_bytes=upload.size_bytes,
    )
    session.flush()


CONTRIBUTION = Destination(PURPOSE, "round.contribute", check_contribution, settle_contribution)


def get_upload_of(
    session: Session, caller: Caller, found: RoundRecord, upload_id: str
) -> UploadRecord:
    """Return an upload that belongs to a round."""
    upload = get_upload(session, caller, upload_id)
    if upload.round_id != found.id:
        raise MissingError(
            f"round {found.key} has no upload {upload_id}",
            code="upload_not_found",
            hint="Announce the file again.",
        )
    return upload


def round_of(upload: UploadRecord) -> int:
    assert upload.round_id is not None, f"upload {upload.id} belongs to no round"
    return upload.round_id


def _require_participant(caller: Caller, found: RoundRecord, site: str) -> None:
    caller.require_upload_to(site)
    if not service.takes_part(found, site):
        raise NotAllowedError(f"site {site!r} was not asked to take part in round {found.key}")


@contextmanager
def _noting_lateness(parts: ServerParts, found: RoundRecord, site: str) -> Iterator[None]:
    """Remember that a site came after the round had ended."""
    try:
        yield
    except RoundClosedError:
        with parts.database.write() as session:
            lagging: SiteRecord = get_site(session, site)
            repository.mark_late(session, found.id, lagging.id)
        raise
