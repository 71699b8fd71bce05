"""Publishing, quarantining, releasing and deleting versions: the work of curators and owners."""

from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy import exists, func, literal, select, update
from sqlalchemy.orm import Session, aliased

from pool_server.activity.events import write_event
from pool_server.database.records import ModelVersionRecord, RoundRecord
from pool_server.errors import ConflictError, NotAllowedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, Curator, Uploader, needs
from pool_server.http.session import Parts, WritingSession
from pool_server.registry import access
from pool_server.registry import repository as registry
from pool_server.registry.repository import descendants_of
from pool_server.registry.responses import describe_version
from pool_server.registry.service import VersionToChange
from pool_server.signatures.statements import require_signed
from pool_server.wire import models

router = APIRouter(tags=["curation"])

VERSION = "/models/{site}/{name}/versions/{reference}"
Force = Annotated[
    bool, Query(description="Delete it even if other models in the pool were made from it.")
]

OPEN_ROUNDS = ("open", "closed")


@router.post(f"{VERSION}/publish", summary="Publish a draft", dependencies=[needs("models:curate")])
def publish(
    caller: Uploader, parts: Parts, session: WritingSession, version: VersionToChange
) -> models.ModelVersionResponse:
    """Publish a draft to all sites that may see its model.

    For curators of the pool if it is curated; otherwise for contributors of the site. If the pool
    demands signatures, the site must sign it first.
    """
    if parts.settings.curated:
        caller.require_role("curator")
    caller.require_role("contributor", version.model.site.name)
    _require_not_quarantined(session, caller, version)
    require_signed(session, parts.settings, version)
    return _take_step(session, caller, version, access.PUBLISH, "version.publish")


@router.post(
    f"{VERSION}/quarantine", summary="Quarantine a version", dependencies=[needs("models:curate")]
)
def quarantine(
    caller: Curator,
    session: WritingSession,
    version: VersionToChange,
    request: models.QuarantineRequest,
) -> models.ModelVersionResponse:
    """Hide a published version from other sites until it has been investigated.

    Its site is notified of the reason.
    """
    caller.require_role("curator", version.model.site.name)
    return _take_step(
        session, caller, version, access.QUARANTINE, "version.quarantine", reason=request.reason
    )


@router.post(
    f"{VERSION}/release",
    summary="Release a quarantined version",
    dependencies=[needs("models:curate")],
)
def release(
    caller: Curator, session: WritingSession, version: VersionToChange
) -> models.ModelVersionResponse:
    """Show a quarantined version again.

    A site can release versions that it quarantined itself; curators of the whole pool can release
    any.
    """
    caller.require_role("curator", version.model.site.name)
    registry.lock_state(session, version)
    _require_not_quarantined(session, caller, version)
    return _take_step(session, caller, version, access.RELEASE, "version.release")


@router.delete(
    VERSION, status_code=204, summary="Delete a version", dependencies=[needs("models:write")]
)
def delete_version(
    caller: Uploader, session: WritingSession, version: VersionToChange, force: Force = False
) -> None:
    """Delete a version for good; for its own site, and admins.

    Its number is never used again, its digest stays in family trees. The file is removed by the
    next clean-up unless another version has the same bytes. Refused while a round refines it or it
    is quarantined and, without `force`, if other models in the pool were made from it.
    """
    site = version.model.site.name
    caller.require_role("contributor", site)
    registry.lock_state(session, version)
    _require_deletable(session, version, force=force)
    access.move(version, access.DELETE, caller.name)
    drop_states(session, version.id)
    record_act(session, caller, "version.delete", version.subject, digest=version.digest)
    if caller.site != site:
        write_event(session, version.model.site_id, "version.deleted", version.address)


def _take_step(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    step: access.Step,
    action: str,
    *,
    reason: str = "",
) -> models.ModelVersionResponse:
    registry.lock_state(session, version)
    access.move(version, step, caller.name, reason)
    details = {"reason": reason} if reason else {}
    record_act(session, caller, action, version.subject, digest=version.digest, **details)
    if caller.site_id != version.model.site_id:
        write_event(
            session, version.model.site_id, f"version.{step.word}", version.address, **details
        )
    session.flush()
    session.expire(version)
    return describe_version(session, version.id, access.viewing_site(caller))


def _require_not_quarantined(session: Session, caller: Caller, version: ModelVersionRecord) -> None:
    """Raise if anyone but its site has quarantined the version's file, under any name.

    Curators of the pool are exempt.
    """
    prefix = f"{version.model.site.name}/"
    others = [
        actor
        for actor in registry.find_quarantining_actors(
            session, version.model.site_id, version.digest
        )
        if not actor.startswith(prefix)
    ]
    if others and not access.curates_pool(caller):
        raise NotAllowedError(
            f"the file of {version.subject} was quarantined by others, under this name or "
            "another, and cannot be published",
            hint="Ask a curator of the pool to investigate and release it.",
        )


def _require_deletable(session: Session, version: ModelVersionRecord, *, force: bool) -> None:
    subject = version.subject
    key = session.scalar(
        select(RoundRecord.key)
        .where(RoundRecord.base_version_id == version.id, RoundRecord.state.in_(OPEN_ROUNDS))
        .limit(1)
    )
    if key is not None:
        raise ConflictError(
            f"{subject} cannot be deleted: round {key} refines it",
            code="wrong_state",
            hint=f"Finish the round, or cancel it: `poolctl rounds cancel {key}`.",
        )
    if heirs := 0 if force else count_descendants(session, version.digest):
        raise ConflictError(
            f"{heirs} files in the pool were made from {subject}",
            code="has_descendants",
            hint="To stop its use, withdraw it, which flags all of them and notifies their owners. "
            "To delete it nevertheless, give `force`.",
        )


def count_descendants(session: Session, digest: str) -> int:
    """Return the number of files in the pool that were made from a file, visible or not."""
    tree = descendants_of(literal(digest))
    made = select(func.count(ModelVersionRecord.digest.distinct())).where(
        ModelVersionRecord.digest.in_(select(tree.c.digest)),
        ModelVersionRecord.digest != digest,
        ModelVersionRecord.state != access.DELETED,
    )
    return session.scalar(made) or 0


def drop_states(session: Session, version_id: int) -> None:
    """Drop the optimiser states of the rounds that made a version.

    States of earlier rounds are dropped with the last result of their series.
    """
    later = aliased(RoundRecord)
    goes_on = exists().where(
        later.predecessor_id == RoundRecord.id, later.result_version_id.is_not(None)
    )
    ended = select(RoundRecord.id, RoundRecord.predecessor_id, goes_on.label("goes_on"))
    for finished in session.execute(ended.where(RoundRecord.result_version_id == version_id)).all():
        series, earlier = [finished.id], finished.predecessor_id
        while earlier is not None and not finished.goes_on:
            series.append(earlier)
            earlier = session.scalar(
                select(RoundRecord.predecessor_id).where(RoundRecord.id == earlier)
            )
        session.execute(
            update(RoundRecord)
            .where(RoundRecord.id.in_(series))
            .values(state_digest=None, state_size_bytes=None)
        )
