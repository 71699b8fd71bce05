"""States of versions in the database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, exists, literal, select, update
from sqlalchemy.orm import Session, aliased

from pool_server.database.records import (
    AliasRecord,
    ModelRecord,
    ModelVersionRecord,
    RoundRecord,
    now_utc,
)
from pool_server.http.identity import Caller
from pool_server.lineage.family.repository import descendants_of
from pool_server.registry.access import readable_by
from pool_server.registry.repository import whole_versions
from pool_server.registry.states import DELETED, HIDDEN

OPEN_ROUNDS = ("open", "closed")


def list_waiting(
    session: Session, caller: Caller, *, site_id: int | None, before_id: int | None, limit: int
) -> Sequence[ModelVersionRecord]:
    """Return drafts and quarantined versions, newest first, one more than `limit`."""
    conditions = [readable_by(caller), ModelVersionRecord.state.in_(HIDDEN)]
    if site_id is not None:
        conditions.append(ModelRecord.site_id == site_id)
    if before_id is not None:
        conditions.append(ModelVersionRecord.id < before_id)
    return session.scalars(
        whole_versions().where(*conditions).order_by(ModelVersionRecord.id.desc()).limit(limit + 1)
    ).all()


def living_versions(session: Session, model_id: int) -> Sequence[ModelVersionRecord]:
    """Return the versions of a model that are not deleted, locked against changes of state."""
    return session.scalars(
        select(ModelVersionRecord)
        .where(ModelVersionRecord.model_id == model_id, ModelVersionRecord.state != DELETED)
        .order_by(ModelVersionRecord.number)
        .with_for_update()
    ).all()


def heirs_of(session: Session, digest: str, other_than_model: int | None = None) -> Sequence[str]:
    """Return the digests of what was made from a file and is in the pool, whoever may see it."""
    tree = descendants_of(literal(digest))
    query = (
        select(ModelVersionRecord.digest)
        .where(
            ModelVersionRecord.digest.in_(select(tree.c.digest)),
            ModelVersionRecord.digest != digest,
            ModelVersionRecord.state != DELETED,
        )
        .distinct()
        .order_by(ModelVersionRecord.digest)
    )
    if other_than_model is not None:
        query = query.where(ModelVersionRecord.model_id != other_than_model)
    return session.scalars(query).all()


def is_elsewhere(session: Session, caller: Caller, version: ModelVersionRecord) -> bool:
    """Return whether the caller sees another version with the same file."""
    return (
        session.scalar(
            select(ModelVersionRecord.id)
            .join(ModelVersionRecord.model)
            .where(
                ModelVersionRecord.digest == version.digest,
                ModelVersionRecord.id != version.id,
                readable_by(caller),
            )
            .limit(1)
        )
        is not None
    )


def round_on(session: Session, version_ids: Sequence[int]) -> str | None:
    """Return the key of a round that goes on and has one of these versions as its base."""
    return session.scalar(
        select(RoundRecord.key)
        .where(RoundRecord.base_version_id.in_(version_ids), RoundRecord.state.in_(OPEN_ROUNDS))
        .limit(1)
    )


def drop_states(session: Session, version_id: int) -> None:
    """Give up the optimiser's states of the rounds that made a version.

    Those of earlier rounds go with the last result of their series.
    """
    later = aliased(RoundRecord)
    goes_on = exists().where(
        later.predecessor_id == RoundRecord.id, later.result_version_id.is_not(None)
    )
    ended = select(RoundRecord.id, RoundRecord.predecessor_id, goes_on.label("goes_on"))
    for found in session.execute(ended.where(RoundRecord.result_version_id == version_id)).all():
        series, earlier = [found.id], found.predecessor_id
        while earlier is not None and not found.goes_on:
            series.append(earlier)
            earlier = session.scalar(
                select(RoundRecord.predecessor_id).where(RoundRecord.id == earlier)
            )
        session.execute(
            update(RoundRecord)
            .where(RoundRecord.id.in_(series))
            .values(state_digest=None, state_size_bytes=None)
        )


def drop_aliases(session: Session, version_ids: Sequence[int]) -> None:
    session.execute(delete(AliasRecord).where(AliasRecord.version_id.in_(version_ids)))


def mark_model_deleted(session: Session, model_id: int) -> None:
    session.execute(
        update(ModelRecord).where(ModelRecord.id == model_id).values(deleted_at=now_utc())
    )
