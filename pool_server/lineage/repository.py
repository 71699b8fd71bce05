"""Family trees in the database: walked by one recursive query in each direction."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import CTE, Row, Select, literal, select, union
from sqlalchemy.orm import Session

from pool_server.records import (
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    SiteRecord,
)

EdgeRow = Row[str, str, float, str]
PlaceRow = Row[str, str, str, int, str]


def ancestors_of(digest: str) -> CTE:
    """Return the digests of all ancestors, `digest` among them.

    UNION drops what was seen before, so that the walk ends even if recipes that contradict each
    other form a circle.
    """
    tree = select(literal(digest).label("digest")).cte("ancestors", recursive=True)
    return tree.union(
        select(ParentRecord.parent_digest).join(tree, ParentRecord.child_digest == tree.c.digest)
    )


def descendants_of(digest: str) -> CTE:
    """Return the digests of all descendants, `digest` among them."""
    tree = select(literal(digest).label("digest")).cte("descendants", recursive=True)
    return tree.union(
        select(ParentRecord.child_digest).join(tree, ParentRecord.parent_digest == tree.c.digest)
    )


def edges_above(session: Session, digest: str) -> Sequence[EdgeRow]:
    """Return (parent, child, weight, method) of every step from `digest` to its ancestors."""
    tree = ancestors_of(digest)
    return session.execute(_edges().join(tree, ParentRecord.child_digest == tree.c.digest)).all()


def edges_below(session: Session, digest: str) -> Sequence[EdgeRow]:
    """Return (parent, child, weight, method) of every step from `digest` to its descendants."""
    tree = descendants_of(digest)
    return session.execute(_edges().join(tree, ParentRecord.parent_digest == tree.c.digest)).all()


def places_of_family(session: Session, digest: str) -> Sequence[PlaceRow]:
    """Return (digest, site, name, number, kind) of every version in the family of `digest`."""
    family = union(
        select(ancestors_of(digest).c.digest), select(descendants_of(digest).c.digest)
    ).subquery()
    return session.execute(
        select(
            ModelVersionRecord.digest,
            SiteRecord.name,
            ModelRecord.name,
            ModelVersionRecord.number,
            ModelVersionRecord.kind,
        )
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .join(family, ModelVersionRecord.digest == family.c.digest)
        .order_by(ModelVersionRecord.id)
    ).all()


def find_recipe(session: Session, version_id: int) -> RecipeRecord | None:
    return session.get(RecipeRecord, version_id)


def _edges() -> Select[str, str, float, str]:
    return select(
        ParentRecord.parent_digest,
        ParentRecord.child_digest,
        ParentRecord.weight,
        ParentRecord.method,
    ).distinct()
