"""The end of a round: the pool combines it, publishes the result, and opens the next round.

Only the combination takes long. The rest happens in one transaction: of several processes that
finish a round at once, the first ends it; the others are told its result.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from aggregators.methods.networks import state_path
from pool_server.database.engine import write_with_retry
from pool_server.database.records import ModelVersionRecord, RoundRecord, UploadRecord, now_utc
from pool_server.errors import ConflictError, RoundClosedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, look_again
from pool_server.http.session import ServerParts
from pool_server.models.access import CONSORTIUM
from pool_server.models.registry import repository as registry
from pool_server.models.sharing.service import share_alike
from pool_server.people.sites.repository import get_site
from pool_server.rounds import repository, service
from pool_server.rounds.combining import combine_contributions
from pool_server.rounds.contributing import round_of
from pool_server.rounds.describing import (
    address_of,
    describe_round,
    files_to_combine,
    missing_sites,
)
from pool_server.rounds.methods import find_round_method
from pool_server.rounds.optimiser_states import keep_state
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.announcing import (
    AnnouncedFile,
    begin_upload,
    find_resumable,
    new_upload,
    require_size,
)
from pool_server.transfers.checking import CheckedModel
from pool_server.transfers.completing import Destination, check_merged, complete_upload
from pool_server.transfers.descriptions import (
    arrives_as_draft,
    require_description,
    take_description,
)
from pool_server.transfers.parts import store_parts
from pool_server.transfers.publishing import add_version
from pool_server.transfers.service import describe_upload
from pool_server.wire.models.labels import shared_labels
from pool_server.wire.rounds import FinishRequest, RoundResponse
from pool_server.wire.transfers.uploads import UploadRequest, UploadResponse

PURPOSE = "result"


def finish_round(
    parts: ServerParts, caller: Caller, key: str, request: FinishRequest
) -> RoundResponse:
    """Combine what has been contributed, publish the result, and end the round.

    A round that is finished already is returned as it is.

    Raises
    ------
    NotAuthenticatedError, NotAllowedError
        The caller was shut out while the pool combined.
    ConflictError, RoundClosedError
        It cannot be finished now, or not any more.
    FormatRefusedError
        The contributions cannot be combined.
    """
    caller.require_upload_to(request.site)
    with parts.database.read() as session:
        found = service.get_round(session, caller, key)
        if found.state == repository.FINISHED:
            return describe_round(found)
        service.require_finishable(found)
        service.require_usable_base(found, despite_withdrawal=request.despite_withdrawal)
    with ScratchFolder(parts.settings.scratch_folder).room() as folder:
        result = folder / "result"
        made = combine_contributions(parts, found, result)
        caller = _look_again(parts, caller, request.site)
        if (state := made["recipe"]["output"].get("state")) is not None:
            keep_state(parts, caller, found, state_path(result), digest=state, site=request.site)
            caller = _look_again(parts, caller, request.site)
        upload = _announce(parts, caller, found, _describe_result(found, request, made, result))
        if upload is not None:
            if upload.state == "receiving":
                store_parts(parts, caller, upload, result)
                caller = _look_again(parts, caller, request.site)
            complete_upload(parts, caller, upload.upload_id, RESULT)
    with parts.database.read() as session:
        return describe_round(service.get_round(session, caller, key))


def _look_again(parts: ServerParts, caller: Caller, site: str) -> Caller:
    """Return what who asked may now: a token revoked while minutes passed ends no round."""
    with parts.database.read() as session:
        caller = look_again(session, caller)
    caller.require_upload_to(site)
    return caller


def _describe_result(
    found: RoundRecord, request: FinishRequest, made: dict[str, Any], result: Path
) -> UploadRequest:
    return UploadRequest(
        site=request.site,
        name=request.name,
        size_bytes=result.stat().st_size,
        digest=made["digest"],
        file_name=found.base_version.file_name,
        description=f"Round {found.number} of {found.rounds_total} ({found.key}), combined by the "
        "pool",
        recipe=made["recipe"],
        despite_withdrawal=request.despite_withdrawal,
    )


def _announce(
    parts: ServerParts, caller: Caller, found: RoundRecord, request: UploadRequest
) -> UploadResponse | None:
    """Begin to store the result, or find what another process has begun; None once published."""
    require_size(parts.settings, request.file_name, request.size_bytes)
    file = AnnouncedFile.of(request, PURPOSE)

    def settle(session: Session) -> UploadResponse | None:
        current = repository.lock_round(session, found.id)
        if current.state == repository.FINISHED:
            return None
        service.require_finishable(current)
        service.require_usable_base(current, despite_withdrawal=request.despite_withdrawal)
        site = get_site(session, request.site)
        require_description(session, site, request, request.recipe)
        upload = find_resumable(parts, session, site.id, file)
        is_new = upload is None
        upload = upload or new_upload(parts, caller, site, file, "receiving")
        upload.round_id = current.id
        base = current.base_version.model
        if base.visibility != CONSORTIUM:
            # What came out of a round is shown to nobody who may not see what went in.
            upload.visibility = base.visibility
        take_description(upload, request, request.recipe)
        labels = registry.get_version(session, current.base_version_id).labels
        upload.labels = shared_labels([{each.key: each.value for each in labels}])
        is_last = found.number == found.rounds_total
        upload.as_draft = is_last and arrives_as_draft(parts.settings, caller)
        if is_new:
            return begin_upload(parts, session, upload)
        upload.expires_at = now_utc() + parts.settings.upload_lifetime
        return describe_upload(parts, upload)

    return write_with_retry(parts.database, settle)


def settle_result(
    session: Session, caller: Caller, upload: UploadRecord, checked: CheckedModel
) -> ModelVersionRecord:
    """Publish the result, end its round and open the next; or find that another was first."""
    current = repository.lock_round(session, round_of(upload))
    if current.state == repository.FINISHED:
        return _result_of(session, current)
    service.require_finishable(current)
    _require_unchanged(current, upload.recipe or {})
    if not repository.end_round(session, current.id, repository.FINISHED, service.name_of(caller)):
        ended = repository.lock_round(session, current.id)
        if ended.state != repository.FINISHED:
            raise RoundClosedError(f"round {current.key} was cancelled")
        return _result_of(session, ended)
    version = add_version(session, caller, upload, upload.site.name, checked)
    if version.number == 1:
        base = current.base_version.model
        share_alike(version.model, registry.find_model(session, base.site.name, base.name))
    ended = repository.lock_round(session, current.id)
    ended.result_version_id = version.id
    record_act(
        session,
        caller,
        RESULT.action,
        ended.key,
        result=address_of(version),
        digest=version.digest,
        left_out=sorted(missing_sites(ended)),
    )
    session.flush()
    if ended.number < ended.rounds_total:
        _open_successor(session, caller, ended, version)
    # The round has loaded of it only what it needs itself.
    session.expire(version)
    return registry.get_version(session, version.id)


def _require_unchanged(found: RoundRecord, recipe: dict[str, Any]) -> None:
    """Raise `ConflictError` if a contribution came or went while the pool combined."""
    # Counted: two sites may well contribute the same bytes, and both count.
    there = Counter([found.base_version.digest, *(each.digest for each in files_to_combine(found))])
    if found.predecessor is not None and found.predecessor.state_digest is not None:
        there[found.predecessor.state_digest] += 1
    inputs = Counter(each["digest"] for each in recipe["inputs"])
    # Another process may have kept the state of other contributions meanwhile.
    if inputs != there or recipe["output"].get("state") != found.state_digest:
        raise ConflictError(
            f"a contribution to round {found.key} was taken back or sent while the pool combined",
            code="round_changed",
            hint=f"Combine what is there now: `poolctl rounds finish {found.key}`",
        )


RESULT = Destination(PURPOSE, "round.finish", check_merged, settle_result)


def _open_successor(
    session: Session, caller: Caller, ended: RoundRecord, base: ModelVersionRecord
) -> None:
    """Open the next round on the result: same starter and sites, as long as the last was."""
    now = now_utc()
    service.open_round(
        session,
        caller,
        base,
        [each.site for each in ended.participants],
        site_id=ended.site_id,
        token_id=ended.token_id,
        created_by=ended.created_by,
        method=ended.method,
        method_version=ended.method_version,
        mode=ended.mode,
        options=find_round_method(ended.method).options_of_next(ended.options, base),
        description=ended.description,
        number=ended.number + 1,
        rounds_total=ended.rounds_total,
        predecessor_id=ended.id,
        created_at=now,
        deadline=now + timedelta(seconds=ended.duration_s),
        duration_s=ended.duration_s,
        secure=ended.secure,
    )


def _result_of(session: Session, finished: RoundRecord) -> ModelVersionRecord:
    assert finished.result_version_id is not None, f"round {finished.key} has no result"
    return registry.get_version(session, finished.result_version_id)
