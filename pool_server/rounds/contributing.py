"""Contributions to a round: received as all files are, and checked against the base."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy.orm import Session

from pool_server.database import records
from pool_server.errors import ConflictError, RefusedError, RoundClosedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.limited import run_limited
from pool_server.people.sites import get_site, require_room
from pool_server.rounds import repository, service
from pool_server.rounds.methods import find_round_method
from pool_server.transfers.checking import check_limits
from pool_server.transfers.receiving import announce_upload, complete_upload
from pool_server.wire.models import CONTRIBUTION
from pool_server.wire.rounds import DEFAULT_LEAST_OTHERS, ContributionRequest


@dataclass(frozen=True)
class CheckedSum:
    """The sum of a secure round that the pool has already, and its checked summary."""

    size_bytes: int
    summary: dict[str, object]


def announce_contribution(
    parts: ServerParts, caller: Caller, round_: records.RoundRecord, offer: ContributionRequest
) -> tuple[records.UploadRecord, bool]:
    """Announce a contribution to a round; see `announce_upload`."""
    sum_of_servers = check_sum_of_servers(parts, round_, offer)
    admit = partial(_admit, parts=parts, round_=round_, offer=offer)
    copy = partial(_copy_sum, parts=parts, round_id=round_.id, sum_of_servers=sum_of_servers)
    return announce_upload(parts, caller, offer, admit, copy)


def complete_contribution(
    parts: ServerParts, caller: Caller, round_: records.RoundRecord, upload_id: str
) -> records.UploadRecord:
    """Count a contribution after all parts have arrived; see `complete_upload`."""

    def check(upload: records.UploadRecord, path: Path) -> dict[str, object]:
        return check_contribution(parts, round_, upload.file_name, path)

    return complete_upload(
        parts,
        caller,
        upload_id,
        check,
        partial(_count, round_id=round_.id),
        purpose=CONTRIBUTION,
        place=round_.key,
    )


def _admit(
    session: Session,
    _caller: Caller,
    upload: records.UploadRecord,
    *,
    parts: ServerParts,
    round_: records.RoundRecord,
    offer: ContributionRequest,
) -> bool:
    upload.purpose, upload.model_name = CONTRIBUTION, round_.key
    upload.file_name, upload.round_id = offer.file_name, round_.id
    upload.least_others = offer.least_others
    current = repository.lock_round(session, round_.id)
    known = find_own(current, upload.site_id, upload.digest)
    if known is not None:
        # Sending the file again restores it if the storage has lost it.
        return parts.storage.has_content(known.digest)
    service.require_open(current)
    service.require_usable_base(current, despite_withdrawal=offer.despite_withdrawal)
    require_same_sum(current, upload.digest)
    _require_enough_others(current, upload.site.name, offer.least_others)
    return False


def _copy_sum(
    session: Session,
    caller: Caller,
    upload: records.UploadRecord,
    *,
    parts: ServerParts,
    round_id: int,
    sum_of_servers: CheckedSum | None,
) -> bool:
    """Count the sum of a secure round that the servers, or another site, have sent."""
    current = repository.lock_round(session, round_id)
    known = sum_of_servers
    if current.secure is not None and current.contributions:
        first = current.contributions[0]
        known = CheckedSum(first.size_bytes, first.summary)
    if known is None or not parts.storage.has_content(upload.digest):
        return False
    upload.size_bytes = known.size_bytes
    _count(session, caller, upload, known.summary, round_id=round_id)
    return True


def _count(
    session: Session,
    caller: Caller,
    upload: records.UploadRecord,
    summary: dict[str, object],
    *,
    round_id: int,
) -> None:
    """Count a checked contribution, if it is in time and the site's first."""
    current = repository.lock_round(session, round_id)
    if find_own(current, upload.site_id, upload.digest) is not None:
        return
    require_same_sum(current, upload.digest)
    service.require_open(current)
    require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=False)
    session.add(
        records.RoundContributionRecord(
            round_id=current.id,
            site_id=upload.site_id,
            digest=upload.digest,
            size_bytes=upload.size_bytes,
            file_name=upload.file_name,
            summary=summary,
            least_others=max(upload.least_others or DEFAULT_LEAST_OTHERS, current.least_others),
            created_by=caller.name,
            token_id=caller.token_id,
        )
    )
    record_act(
        session,
        caller,
        "round.contribute",
        current.key,
        site=upload.site.name,
        digest=upload.digest,
        size_bytes=upload.size_bytes,
    )
    session.flush()


def check_sum_of_servers(
    parts: ServerParts, round_: records.RoundRecord, request: ContributionRequest
) -> CheckedSum | None:
    """Check the sum sent by the servers of a secure round, so that no lab has to send it.

    Return None if the servers have not sent it.
    """
    if round_.secure is None or round_.contributions:
        return None
    with parts.database.read() as session:
        size_bytes = repository.size_of_session_file(session, round_.id, request.digest)
    if size_bytes is None or not parts.storage.has_content(request.digest):
        return None
    with parts.storage.content_file(request.digest) as path:
        return CheckedSum(size_bytes, check_contribution(parts, round_, request.file_name, path))


def require_same_sum(round_: records.RoundRecord, digest: str) -> None:
    """Raise `ConflictError` if another site sent a sum of a secure round with another digest."""
    if round_.secure is None or not round_.contributions:
        return
    first = round_.contributions[0]
    if first.digest != digest:
        raise ConflictError(
            f"the sum of round {round_.key} that site {first.site.name!r} sent has other bytes "
            f"(SHA-256 {first.digest}, expected {digest})",
            code="sums_differ",
            hint="One of the two is not the sum that the servers signed: compare the digests.",
        )


def _require_enough_others(round_: records.RoundRecord, site: str, least_others: int) -> None:
    """Raise `RefusedError` if the round has fewer other sites than this site demands."""
    others = sum(participant.site.name != site for participant in round_.participants)
    if others < least_others:
        raise RefusedError(
            f"round {round_.key} has {others} other sites, and {site!r} demands contributions of "
            f"at least "
            f"{least_others}",
            code="too_few_others",
            hint="--least-others lowers it; with one other site, that site can compute your "
            "contribution from the result.",
        )


def find_own(
    round_: records.RoundRecord, site_id: int, digest: str
) -> records.RoundContributionRecord | None:
    """Return the site's contribution if it has this digest, or None."""
    for contribution in round_.contributions:
        if contribution.site_id != site_id:
            continue
        if contribution.digest == digest:
            return contribution
        raise ConflictError(
            f"site {contribution.site.name!r} has contributed to round {round_.key} on "
            f"{contribution.created_at:%Y-%m-%d %H:%M} UTC, with other bytes "
            f"(SHA-256 {contribution.digest})",
            code="contribution_exists",
            hint=f"Take it back to send another: `poolctl rounds take-back {round_.key}`",
        )
    return None


def check_contribution(
    parts: ServerParts, round_: records.RoundRecord, file_name: str, path: Path
) -> dict[str, object]:
    """Compare a contribution with the round's base, and return its summary.

    Runs in another process, because its bytes come from outside.
    """
    base, method = round_.base_version, find_round_method(round_.method)
    with parts.storage.content_file(base.digest) as base_path:
        answer = run_limited(
            "pool_server.rounds.methods",
            {
                "path": str(path),
                "name": file_name,
                "method": method.name,
                "base": str(base_path),
                "base_digest": base.digest,
                "options": round_.options,
            },
            check_limits(parts.settings, path.stat().st_size + base.size_bytes),
            activity=f"{file_name}: reading the file",
        )
    if not answer["accepted"]:
        raise RefusedError(
            str(answer["message"]),
            code="contribution_refused",
            hint=f"`poolctl rounds contribute {round_.key} --data {method.data}` makes one that "
            "fits.",
        )
    summary: dict[str, object] = answer["summary"]
    return summary


@contextmanager
def note_lateness(parts: ServerParts, round_: records.RoundRecord, site: str) -> Iterator[None]:
    """Record that a site's contribution came after the end of the round."""
    try:
        yield
    except RoundClosedError:
        with parts.database.write() as session:
            lagging: records.SiteRecord = get_site(session, site)
            repository.mark_late(session, round_.id, lagging.id)
        raise
