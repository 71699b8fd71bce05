"""Publishing, quarantining, releasing and deleting versions."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from pool_server.activity.events import write_event
from pool_server.database.records import ModelVersionRecord
from pool_server.errors import ConflictError, NotAllowedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.parameters import write_cursor
from pool_server.models.curation import repository
from pool_server.registry import repository as registry
from pool_server.registry.access import curates_pool, viewing_site
from pool_server.registry.responses import describe_page, describe_version
from pool_server.registry.service import get_model
from pool_server.registry.states import DELETE, PUBLISH, QUARANTINE, RELEASE, Step, move
from pool_server.registry.withdrawal_status import address_of, subject_of
from pool_server.settings import PoolSettings
from pool_server.signatures.statements import require_signed
from pool_server.wire.models.curation import DeletionResponse
from pool_server.wire.models.models import ModelPage, ModelVersionResponse


def list_queue(session: Session, caller: Caller, *, before_id: int | None, limit: int) -> ModelPage:
    """Return one page of what waits for the caller as a curator, newest first."""
    found = repository.list_waiting(
        session,
        caller,
        site_id=None if caller.has_role("curator") else caller.site_id,
        before_id=before_id,
        limit=limit,
    )
    page = found[:limit]
    return ModelPage(
        items=describe_page(session, [version.id for version in page], viewing_site(caller)),
        next_cursor=write_cursor(page[-1].id) if len(found) > len(page) else None,
    )


def publish(
    session: Session, caller: Caller, settings: PoolSettings, version: ModelVersionRecord
) -> ModelVersionResponse:
    """Show a draft to everybody who may see its model; in a curated pool only its curators may."""
    if settings.curated:
        caller.require_role("curator")
    caller.require_role("contributor", version.model.site.name)
    _require_not_doubted(session, caller, version)
    require_signed(session, settings, version)
    return _take_step(session, caller, version, PUBLISH, "version.publish")


def quarantine(
    session: Session, caller: Caller, version: ModelVersionRecord, reason: str
) -> ModelVersionResponse:
    """Hide a published version from other sites until it has been looked into."""
    caller.require_role("curator", version.model.site.name)
    return _take_step(session, caller, version, QUARANTINE, "version.quarantine", reason=reason)


def release(session: Session, caller: Caller, version: ModelVersionRecord) -> ModelVersionResponse:
    """Show a quarantined version again."""
    caller.require_role("curator", version.model.site.name)
    registry.lock_state(session, version)
    _require_not_doubted(session, caller, version)
    return _take_step(session, caller, version, RELEASE, "version.release")


def delete_version(
    session: Session, caller: Caller, version: ModelVersionRecord, *, force: bool
) -> DeletionResponse:
    """Delete a version: its number and digest stay in the records, its file becomes garbage.

    So do the optimiser's states of rounds that made it.
    """
    site = version.model.site.name
    caller.require_role("contributor", site)
    # First the model, whose aliases go with the version.
    registry.lock_model(session, version.model)
    registry.lock_state(session, version)
    heirs = repository.heirs_of(session, version.digest)
    _require_deletable(session, subject_of(version), [version.id], heirs, force=force)
    _delete(session, caller, version)
    if caller.site != site:
        write_event(session, version.model.site_id, "version.deleted", address_of(version))
    return DeletionResponse(
        deleted=[address_of(version)],
        descendants=sorted(registry.visible_homes(session, caller, heirs)),
        file_remains=repository.is_elsewhere(session, caller, version),
    )


def delete_model(
    session: Session, caller: Caller, site: str, name: str, *, force: bool
) -> DeletionResponse:
    """Delete a model with all its versions; its name is never used again."""
    model = get_model(session, caller, site, name)
    caller.require_role("contributor", model.site.name)
    registry.lock_model(session, model)
    # Somebody else may have deleted it meanwhile; from now on nobody adds a version to it.
    get_model(session, caller, site, name)
    versions = repository.living_versions(session, model.id)
    for version in versions:
        version.model = model
    heirs = sorted(
        {
            digest
            for version in versions
            for digest in repository.heirs_of(session, version.digest, model.id)
        }
    )
    ids = [version.id for version in versions]
    _require_deletable(session, f"{site}/{name}", ids, heirs, force=force)
    remains = False
    for version in versions:
        _delete(session, caller, version)
        remains = remains or repository.is_elsewhere(session, caller, version)
    repository.mark_model_deleted(session, model.id)
    record_act(session, caller, "model.delete", f"{site}/{name}", versions=len(versions))
    if caller.site != site:
        write_event(session, model.site_id, "model.deleted", f"pool://{site}/{name}")
    return DeletionResponse(
        deleted=[address_of(version) for version in versions],
        descendants=sorted(registry.visible_homes(session, caller, heirs)),
        file_remains=remains,
    )


def _take_step(
    session: Session,
    caller: Caller,
    version: ModelVersionRecord,
    step: Step,
    action: str,
    *,
    reason: str = "",
) -> ModelVersionResponse:
    registry.lock_state(session, version)
    move(version, step, f"{caller.site}/{caller.token_name}", reason)
    details = {"reason": reason} if reason else {}
    record_act(session, caller, action, subject_of(version), digest=version.digest, **details)
    if caller.site_id != version.model.site_id:
        write_event(
            session,
            version.model.site_id,
            f"version.{step.word}",
            address_of(version),
            **details,
        )
    session.flush()
    session.expire(version)
    return describe_version(session, version.id, viewing_site(caller))


def _delete(session: Session, caller: Caller, version: ModelVersionRecord) -> None:
    move(version, DELETE, f"{caller.site}/{caller.token_name}")
    repository.drop_aliases(session, [version.id])
    repository.drop_states(session, version.id)
    record_act(session, caller, "version.delete", subject_of(version), digest=version.digest)


def _require_not_doubted(session: Session, caller: Caller, version: ModelVersionRecord) -> None:
    """Raise if others than the site quarantined a version's file, under any name.

    Curators of the pool pass all the same.
    """
    own = f"{version.model.site.name}/"
    others = [
        each
        for each in registry.quarantined_by(session, version.model.site_id, version.digest)
        if not each.startswith(own)
    ]
    if others and not curates_pool(caller):
        raise NotAllowedError(
            f"the file of {subject_of(version)} is quarantined by others, under this name or "
            "another, and cannot be shown",
            hint="Ask a curator of the pool to look into it and to release it.",
        )


def _require_deletable(
    session: Session, subject: str, version_ids: Sequence[int], heirs: Sequence[str], *, force: bool
) -> None:
    key = repository.round_on(session, version_ids)
    if key is not None:
        raise ConflictError(
            f"{subject} cannot be deleted: round {key} refines it",
            code="wrong_state",
            hint=f"Finish the round, or call it off: `poolctl rounds cancel {key}`.",
            details={"round": key},
        )
    if heirs and not force:
        raise ConflictError(
            f"{len(heirs)} files in the pool were made from {subject}",
            code="has_descendants",
            hint="If it must not be used any more, withdraw it: then all of them are flagged and "
            "their owners told. To delete it all the same, give `force`.",
            details={"descendants": len(heirs)},
        )
