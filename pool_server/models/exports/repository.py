"""What a bundle is made of, in the database: a fixed number of queries for any number of models."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from pool_server.database.records import ModelRecord, ModelVersionRecord, ParentRecord, SiteRecord
from pool_server.http.identity import Caller
from pool_server.registry.access import readable_by
from pool_server.registry.repository import among, whole_versions

Place = tuple[str, str, int]
"""Site, name and number of a version."""


def find_places(
    session: Session, caller: Caller, places: Collection[Place]
) -> Sequence[ModelVersionRecord]:
    """Return the versions at these places that the caller may see."""
    return session.scalars(
        whole_versions()
        .where(
            or_(
                *(
                    and_(
                        SiteRecord.name == site,
                        ModelRecord.name == name,
                        ModelVersionRecord.number == number,
                    )
                    for site, name, number in sorted(set(places))
                )
            ),
            readable_by(caller),
        )
        .order_by(ModelVersionRecord.id)
    ).all()


def ancestor_digests(
    session: Session, caller: Caller, digests: Collection[str], most: int
) -> set[str]:
    """Return `digests` and those of all ancestors in recipes that the caller may see.

    At most one more than `most`.
    """
    tree = (
        select(ModelVersionRecord.digest.label("digest"))
        .where(ModelVersionRecord.digest.in_(sorted(digests)))
        .distinct()
        .cte("ancestors", recursive=True)
    )
    tree = tree.union(
        select(ParentRecord.parent_digest)
        .join(tree, ParentRecord.child_digest == tree.c.digest)
        .join(ModelVersionRecord, ModelVersionRecord.id == ParentRecord.version_id)
        .join(ModelVersionRecord.model)
        .where(readable_by(caller))
    )
    return set(session.scalars(select(tree.c.digest).limit(most + 1)))


def find_digests(
    session: Session, caller: Caller, digests: Collection[str]
) -> Sequence[ModelVersionRecord]:
    """Return all versions with these digests that the caller may see, oldest first."""
    return session.scalars(
        whole_versions()
        .where(among(ModelVersionRecord.digest, "digests"), readable_by(caller))
        .order_by(ModelVersionRecord.id),
        {"digests": sorted(digests)},
    ).all()
