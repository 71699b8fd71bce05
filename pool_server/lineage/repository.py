"""Family trees in the database: walked by one recursive query in each direction.

The walks go along all recipes. What a caller is told of them is limited to the recipes of models
that the caller may see, and to what can be reached by those alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    CTE,
    Row,
    Select,
    exists,
    literal,
    or_,
    select,
    true,
)
from sqlalchemy.orm import Session

from pool_server.http.identity import Caller
from pool_server.records import (
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    SiteRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.registry.sharing import has_all_rights, visible_to
from pool_server.registry.sql import among
from pool_server.registry.states import ANY, DELETED, readable_by, shown_to

EdgeRow = Row[str, str, float, str]
RecipeRow = tuple[str, dict[str, Any], bool]
PlaceRow = tuple[str, str, str, int, str, str | None, bool]


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


def edges_above(session: Session, caller: Caller, digest: str) -> Sequence[EdgeRow]:
    """Return (parent, child, weight, method) of every step from `digest` to its ancestors."""
    tree = ancestors_of(digest)
    edges = _edges(caller).join(tree, ParentRecord.child_digest == tree.c.digest)
    return session.execute(edges).all()


def edges_below(session: Session, caller: Caller, digest: str) -> Sequence[EdgeRow]:
    """Return (parent, child, weight, method) of every step from `digest` to its descendants."""
    tree = descendants_of(digest)
    edges = _edges(caller).join(tree, ParentRecord.parent_digest == tree.c.digest)
    return session.execute(edges).all()


def places_of(session: Session, caller: Caller, digests: Sequence[str]) -> list[PlaceRow]:
    """Return every version of these files that the caller may see.

    Rows are (digest, site, name, number, kind, reason of a withdrawal or None, flagged).
    """
    rows = session.execute(
        select(
            ModelVersionRecord.digest,
            SiteRecord.name,
            ModelRecord.name,
            ModelVersionRecord.number,
            ModelVersionRecord.kind,
            WithdrawalRecord.reason,
            exists().where(WithdrawalFlagRecord.version_id == ModelVersionRecord.id),
            shown_to(caller, ANY),
        )
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .outerjoin(WithdrawalRecord, WithdrawalRecord.version_id == ModelVersionRecord.id)
        .where(among(ModelVersionRecord.digest, "digests"))
        .order_by(ModelVersionRecord.id),
        {"digests": digests},
    )
    return [row[:-1] for row in rows if row.is_shown]


def recipes_of_all(session: Session, caller: Caller, digests: Sequence[str]) -> list[RecipeRow]:
    """Return the recipe of every version of these files that the caller may see, oldest last.

    Rows are (digest, recipe, whether its inputs' names are the caller's to know).
    """
    rows = session.execute(
        _recipes(caller)
        .add_columns(shown_to(caller, ANY))
        .where(among(ModelVersionRecord.digest, "digests"))
        .order_by(ModelVersionRecord.id.desc()),
        {"digests": digests},
    )
    return [row[:-1] for row in rows if row.is_shown]


def recipes_of(session: Session, caller: Caller, digest: str) -> list[RecipeRow]:
    """Return the oldest recipe that makes the file of this digest, if there is one to be seen.

    As `recipes_of_all`.
    """
    rows = session.execute(
        _recipes(caller)
        .where(ModelVersionRecord.digest == digest, visible_to(caller), readable_by(caller))
        .order_by(ModelVersionRecord.id)
        .limit(1)
    )
    return [(digest, document, knows_inputs) for digest, document, knows_inputs in rows]


def knows(session: Session, caller: Caller, digest: str) -> bool:
    """Tell whether the caller may see a version of this digest, or a recipe that names it."""
    version = (
        select(ModelVersionRecord.id)
        .join(ModelVersionRecord.model)
        .where(ModelVersionRecord.digest == digest, visible_to(caller), readable_by(caller))
    )
    edge = _edges(caller).where(ParentRecord.parent_digest == digest)
    return bool(session.scalar(select(or_(version.exists(), edge.exists()))))


def _recipes(caller: Caller) -> Select[str, dict[str, Any], bool]:
    knows_inputs = true() if has_all_rights(caller) else ModelRecord.site_id == caller.site_id
    return (
        select(
            ModelVersionRecord.digest,
            RecipeRecord.document,
            knows_inputs.label("knows_inputs"),
        )
        .join(RecipeRecord, RecipeRecord.version_id == ModelVersionRecord.id)
        .join(ModelVersionRecord.model)
    )


def _edges(caller: Caller) -> Select[str, str, float, str]:
    """Select the steps in recipes that the caller may see; deleted versions keep theirs.

    A step of several versions comes several times: to leave that out takes longer than to read it.
    """
    return (
        select(
            ParentRecord.parent_digest,
            ParentRecord.child_digest,
            ParentRecord.weight,
            ParentRecord.method,
        )
        .join(ModelVersionRecord, ModelVersionRecord.id == ParentRecord.version_id)
        .join(ModelVersionRecord.model)
        .where(visible_to(caller), or_(readable_by(caller), ModelVersionRecord.state == DELETED))
    )
