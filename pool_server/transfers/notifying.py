"""Events of uploads: for owners whose models were merged or handed on, and for curators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session, contains_eager

from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import ModelRecord, ModelVersionRecord, TokenRecord, now_utc
from pool_server.models.registry.sql import among
from pool_server.models.registry.standing import address_of, name_for_site
from pool_server.models.states import DELETED, DRAFT
from pool_server.settings import PoolSettings

if TYPE_CHECKING:
    from aggregators.methods import Recipe

MERGED_EVENT = "version.merged"
HANDED_ON_EVENT = "version.handed-on"
WAITING_EVENT = "version.waiting"


def tell_owners(session: Session, version: ModelVersionRecord, recipe: Recipe | None) -> None:
    """Tell the first publisher of each input of a new version; of a copy, that of its file.

    They hear which site did it, and its name for the result if they may see that.
    """
    kind, word = (HANDED_ON_EVENT, "as") if recipe is None else (MERGED_EVENT, "into")
    digests = [version.digest] if recipe is None else recipe.input_digests
    write_events(
        session,
        [
            NewEvent(
                owned.model.site_id,
                kind,
                address_of(owned),
                {word: name_for_site(owned.model.site_id, version), "by": version.model.site.name},
            )
            for owned in _first_versions(session, digests, version.id)
            if owned.model.site_id != version.model.site_id
        ],
    )


def tell_curators(session: Session, settings: PoolSettings, version: ModelVersionRecord) -> None:
    """Tell the sites of the pool's curators of a draft that only they can publish."""
    if version.state != DRAFT or not (settings.curated or version.state_reason):
        return
    curators = select(TokenRecord.site_id).where(
        TokenRecord.pool_wide,
        TokenRecord.role.in_(("curator", "admin")),
        TokenRecord.revoked_at.is_(None),
        or_(TokenRecord.expires_at.is_(None), TokenRecord.expires_at > now_utc()),
    )
    write_events(
        session,
        [
            NewEvent(
                site_id,
                WAITING_EVENT,
                name_for_site(site_id, version),
                {"digest": version.digest, "see": "poolctl models queue"},
            )
            for site_id in session.scalars(curators.distinct().order_by(TokenRecord.site_id))
        ],
    )


def _first_versions(
    session: Session, digests: Sequence[str], other_than: int
) -> Sequence[ModelVersionRecord]:
    """Return the oldest version of each file that is not deleted, with its model and site."""
    oldest = (
        select(func.min(ModelVersionRecord.id))
        .where(
            among(ModelVersionRecord.digest, "digests"),
            ModelVersionRecord.state != DELETED,
            ModelVersionRecord.id != other_than,
        )
        .group_by(ModelVersionRecord.digest)
    )
    return session.scalars(
        select(ModelVersionRecord)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(contains_eager(ModelVersionRecord.model).contains_eager(ModelRecord.site))
        .where(ModelVersionRecord.id.in_(oldest))
        .order_by(ModelVersionRecord.id),
        {"digests": list(digests)},
    ).all()
