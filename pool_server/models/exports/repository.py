"""What a bundle is made of, in the database: a fixed number of queries for any number of models."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from pool_server.database.records import ModelRecord, ModelVersionRecord, ParentRecord, SiteRecord
from pool_server.http.identity import Caller
from pool_server.models.access import readable_by
from pool_server.models.registry.repository import MOST_VALUES, whole_versions

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
    """Return the digests of all ancestors that recipes name which the caller may see.

    Parameters
    ----------
    digests : collection of str
        Where to begin; they are among what is returned.
    most : int
        No more than one beyond so many are looked for.
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
    wanted = sorted(digests)
    found: list[ModelVersionRecord] = []
    for start in range(0, len(wanted), MOST_VALUES):
        found += session.scalars(
            whole_versions()
            .where(
                ModelVersionRecord.digest.in_(wanted[start : start + MOST_VALUES]),
                readable_by(caller),
            )
            .order_by(ModelVersionRecord.id)
        ).all()
    return found
