"""Family trees in the database: walked by one recursive query, in both directions.

The walk goes along all recipes. What a caller is told of them is limited to the recipes of models
that the caller may see, and to what can be reached by those alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    CTE,
    ColumnElement,
    Integer,
    Select,
    String,
    and_,
    bindparam,
    exists,
    literal,
    or_,
    select,
    true,
    union_all,
)
from sqlalchemy.orm import Session

from pool_server.database.records import (
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    RoundContributionRecord,
    RoundRecord,
    SiteRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.http.identity import Caller
from pool_server.registry.access import curates_pool, readable, readable_by
from pool_server.registry.repository import among
from pool_server.wire.models.models import CONTRIBUTION, OPTIMISER_STATE, SECURE_SUM


class Step(NamedTuple):
    """A step from a parent to what was made of it, as the recipe of one version tells of it."""

    parent: str
    child: str
    weight: float
    method: str
    version_id: int


class Place(NamedTuple):
    """A version of a file of a family; `withdrawn` is the reason of a withdrawal."""

    version_id: int
    digest: str
    site: str
    name: str
    number: int
    kind: str
    withdrawn: str | None
    flagged: bool


RecipeRow = tuple[str, dict[str, Any], bool]


def ancestors_of(digest: ColumnElement[str]) -> CTE:
    """Return the digests of all ancestors, `digest` among them.

    UNION drops what was seen before, so that the walk ends even if recipes that contradict each
    other form a circle.
    """
    tree = select(digest.label("digest")).cte("ancestors", recursive=True)
    return tree.union(
        select(ParentRecord.parent_digest).join(
            tree, and_(ParentRecord.child_digest == tree.c.digest, ParentRecord.followed)
        )
    )


def descendants_of(digest: ColumnElement[str]) -> CTE:
    """Return the digests of all descendants, `digest` among them."""
    tree = select(digest.label("digest")).cte("descendants", recursive=True)
    return tree.union(
        select(ParentRecord.child_digest).join(
            tree, and_(ParentRecord.parent_digest == tree.c.digest, ParentRecord.followed)
        )
    )


def steps_around(session: Session, digest: str) -> tuple[list[Step], list[Step]]:
    """Return every step from `digest` to its ancestors, and every one to its descendants.

    Whoever asks: what is shown to whom, the places of the children tell. A step of several
    versions comes several times.
    """
    rows = session.connection().execute(_steps_around(), {"digest": digest}).all()
    above = [Step(*row[1:]) for row in rows if row.is_above]
    below = [Step(*row[1:]) for row in rows if not row.is_above]
    return above, below


def places_of(session: Session, caller: Caller, digests: Sequence[str]) -> list[Place]:
    """Return every version of these files that the caller may ask for."""
    values = {"digests": digests, "caller_site": caller.site_id}
    rows = session.connection().execute(_places(curates=curates_pool(caller)), values).all()
    return list(map(Place._make, rows))


def round_files_among(session: Session, digests: Sequence[str]) -> dict[str, str]:
    """Return which of these files rounds keep, whose ever they are, with their kinds."""
    columns = {
        CONTRIBUTION: RoundContributionRecord.digest,
        OPTIMISER_STATE: RoundRecord.state_digest,
    }
    found = {
        digest: kind
        for kind, column in columns.items()
        for digest in session.scalars(
            select(column).where(among(column, "digests")), {"digests": digests}
        )
        if digest is not None
    }
    digest = RoundContributionRecord.digest
    sums = session.scalars(
        select(digest)
        .join(RoundRecord, RoundRecord.id == RoundContributionRecord.round_id)
        .where(RoundRecord.secure.is_not(None), among(digest, "digests")),
        {"digests": digests},
    )
    return found | dict.fromkeys(sums, SECURE_SUM)


def recipes_of_all(
    session: Session, caller: Caller, digests: Sequence[str], version_id: int
) -> list[RecipeRow]:
    """Return the recipe of every version of these files that the caller may see, oldest last.

    That of `version_id` comes after all. Rows are (digest, recipe, whether its inputs' names are
    the caller's to know).
    """
    rows = session.execute(
        _recipes(caller)
        .where(among(ModelVersionRecord.digest, "digests"), readable_by(caller))
        .order_by(ModelVersionRecord.id == version_id, ModelVersionRecord.id.desc()),
        {"digests": digests},
    )
    return [(digest, document, knows_inputs) for digest, document, knows_inputs in rows]


def recipes_of(session: Session, caller: Caller, digest: str, version_id: int) -> list[RecipeRow]:
    """Return the recipe of a version of this file, or else the oldest that makes the same file.

    As `recipes_of_all`.
    """
    rows = session.execute(
        _recipes(caller)
        .where(ModelVersionRecord.digest == digest, readable_by(caller))
        .order_by(ModelVersionRecord.id != version_id, ModelVersionRecord.id)
        .limit(1)
    )
    return [(digest, document, knows_inputs) for digest, document, knows_inputs in rows]


def knows(session: Session, caller: Caller, digest: str) -> bool:
    """Return whether the caller may see a version of this digest, or a recipe that names it."""
    version = (
        select(ModelVersionRecord.id)
        .join(ModelVersionRecord.model)
        .where(ModelVersionRecord.digest == digest, readable_by(caller))
    )
    edge = _edges(caller).where(ParentRecord.parent_digest == digest, ParentRecord.followed)
    return bool(session.scalar(select(or_(version.exists(), edge.exists()))))


def _recipes(caller: Caller) -> Select[str, dict[str, Any], bool]:
    knows_inputs = true() if curates_pool(caller) else ModelRecord.site_id == caller.site_id
    return (
        select(
            ModelVersionRecord.digest,
            RecipeRecord.document,
            knows_inputs.label("knows_inputs"),
        )
        .join(RecipeRecord, RecipeRecord.version_id == ModelVersionRecord.id)
        .join(ModelVersionRecord.model)
    )


def _edges(caller: Caller) -> Select[int]:
    """Select the versions whose recipes name parents that the caller may be told of."""
    return (
        select(ParentRecord.version_id)
        .join(ModelVersionRecord, ModelVersionRecord.id == ParentRecord.version_id)
        .join(ModelVersionRecord.model)
        .where(readable_by(caller))
    )


# To make these statements takes as long as to find a large family.


@cache
def _steps_around() -> Any:
    root = bindparam("digest", type_=String)
    steps = select(
        ParentRecord.parent_digest,
        ParentRecord.child_digest,
        ParentRecord.weight,
        ParentRecord.method,
        ParentRecord.version_id,
    )
    above, below = ancestors_of(root), descendants_of(root)
    return union_all(
        steps.with_only_columns(literal(1).label("is_above"), *steps.selected_columns).join(
            above, and_(ParentRecord.child_digest == above.c.digest, ParentRecord.followed)
        ),
        steps.with_only_columns(literal(0).label("is_above"), *steps.selected_columns).join(
            below, and_(ParentRecord.parent_digest == below.c.digest, ParentRecord.followed)
        ),
    )


@cache
def _places(*, curates: bool) -> Any:
    return (
        select(
            ModelVersionRecord.id,
            ModelVersionRecord.digest,
            SiteRecord.name,
            ModelRecord.name,
            ModelVersionRecord.number,
            ModelVersionRecord.kind,
            WithdrawalRecord.reason,
            exists().where(WithdrawalFlagRecord.version_id == ModelVersionRecord.id),
        )
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .outerjoin(WithdrawalRecord, WithdrawalRecord.version_id == ModelVersionRecord.id)
        .where(
            among(ModelVersionRecord.digest, "digests"),
            readable(bindparam("caller_site", type_=Integer), curates=curates),
        )
        .order_by(ModelVersionRecord.id)
    )
