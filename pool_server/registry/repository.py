"""Models and versions in the database."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import (
    InstrumentedAttribute,
    Session,
    contains_eager,
    joinedload,
    load_only,
    selectinload,
)

from pool_server.database.engine import wait_for_turn
from pool_server.database.records import (
    LabelRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    SiteKeyRecord,
    SiteRecord,
    StatementRecord,
    WithdrawalFlagRecord,
)
from pool_server.http.identity import Caller
from pool_server.registry import access
from pool_server.registry.withdrawal_status import standing_options
from pool_server.wire.names import ModelAddress

AnySelect = sa.Select[*tuple[Any, ...]]
Versions = Callable[[], sa.Select[ModelVersionRecord]]
"""A choice of loaded attributes: `whole_versions`, `brief_versions`, `bare_versions`."""


@cache
def whole_versions() -> sa.Select[ModelVersionRecord]:
    """Select versions with all attributes of a response, in a fixed number of queries."""
    return granted_versions().options(
        # Recipes and signed statements can be long; a response only says whether one exists.
        joinedload(ModelVersionRecord.recipe).load_only(RecipeRecord.method),
        joinedload(ModelVersionRecord.statement).options(
            load_only(StatementRecord.key_id, StatementRecord.origin, StatementRecord.created_at),
            joinedload(StatementRecord.key).load_only(
                SiteKeyRecord.revoked_at, SiteKeyRecord.revocation
            ),
        ),
        *standing_options(),
        selectinload(ModelVersionRecord.labels),
        selectinload(ModelVersionRecord.metrics),
        selectinload(ModelVersionRecord.merge_keys),
        selectinload(ModelVersionRecord.parents),
        selectinload(ModelVersionRecord.terms),
    )


@cache
def bare_versions() -> sa.Select[ModelVersionRecord]:
    """Select versions with only their model and its site."""
    return (
        sa.select(ModelVersionRecord)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(contains_eager(ModelVersionRecord.model).contains_eager(ModelRecord.site))
    )


@cache
def granted_versions() -> sa.Select[ModelVersionRecord]:
    """Select versions with their model, its site and its grants."""
    return bare_versions().options(
        contains_eager(ModelVersionRecord.model).selectinload(ModelRecord.grants)
    )


@cache
def brief_versions() -> sa.Select[ModelVersionRecord]:
    """Select versions with their merge keys, for callers that need no more."""
    return bare_versions().options(selectinload(ModelVersionRecord.merge_keys))


def find_model(session: Session, site: str, name: str) -> ModelRecord | None:
    """Return a model with its site and grants, without checking rights."""
    return session.scalar(models_named(site, name))


def find_visible_model(
    session: Session, caller: Caller, site: str, name: str
) -> ModelRecord | None:
    """Return a model with its site and grants, if the caller may see it."""
    return session.scalar(
        models_named(site, name).where(access.visible_to(caller), ModelRecord.deleted_at.is_(None))
    )


def models_named(site: str, name: str) -> sa.Select[ModelRecord]:
    return (
        sa.select(ModelRecord)
        .join(ModelRecord.site)
        .options(contains_eager(ModelRecord.site), selectinload(ModelRecord.grants))
        .where(SiteRecord.name == site, ModelRecord.name == name)
    )


class VersionQuery(NamedTuple):
    """A query for one version of the model `name` of `site`, for which all conditions hold."""

    site: str
    name: str
    conditions: Sequence[sa.ColumnElement[bool]]


def find_versions(
    session: Session, caller: Caller, queries: Sequence[VersionQuery], versions: Versions
) -> list[ModelVersionRecord | None]:
    """Return the best version for each query that the caller may see, by one statement.

    Of several, the newest that is available and contains no withdrawn file; else the newest that is
    available; else the newest.
    """
    ids = [
        _first_of(
            sa.select(ModelVersionRecord.id, sa.literal(place).label("place"))
            .join(ModelVersionRecord.model)
            .join(ModelRecord.site),
            caller,
            version_query,
        ).subquery()
        for place, version_query in enumerate(queries)
    ]
    chosen = sa.union_all(*(sa.select(version_ids) for version_ids in ids)).subquery()
    rows = session.execute(
        versions().join(chosen, chosen.c.id == ModelVersionRecord.id).add_columns(chosen.c.place)
    )
    by_place = {place: version for version, place in rows}
    return [by_place.get(place) for place in range(len(queries))]


def _first_of(query: AnySelect, caller: Caller, version_query: VersionQuery) -> AnySelect:
    return (
        query.where(
            SiteRecord.name == version_query.site,
            ModelRecord.name == version_query.name,
            ModelRecord.deleted_at.is_(None),
            access.readable_by(caller),
            *version_query.conditions,
        )
        .order_by(
            sa.case((ModelVersionRecord.state == access.AVAILABLE, 0), else_=1),
            sa.exists().where(WithdrawalFlagRecord.version_id == ModelVersionRecord.id),
            ModelVersionRecord.number.desc(),
        )
        .limit(1)
    )


def find_by_digest(session: Session, model_id: int, digest: str) -> ModelVersionRecord | None:
    """Return a model's version of a file in any state, without checking rights."""
    return session.scalar(
        whole_versions().where(
            ModelVersionRecord.model_id == model_id, ModelVersionRecord.digest == digest
        )
    )


def find_anywhere(
    session: Session, caller: Caller, digest: str, versions: Versions = whole_versions
) -> ModelVersionRecord | None:
    """Return the oldest version with this digest of a model that the caller may see."""
    return session.scalar(
        versions()
        .where(ModelVersionRecord.digest == digest, access.readable_by(caller))
        .order_by(ModelVersionRecord.id)
        .limit(1)
    )


def find_original(
    session: Session, site_id: int, digest: str, *, other_than: int | None = None
) -> ModelVersionRecord | None:
    """Return the oldest version of a file that a site knows and that is not deleted.

    It is loaded with its model, site and grants. Its publisher decides on others' rights to the
    file. `other_than` is the id of a version to ignore.
    """
    values = {"digest": digest, "site_id": site_id, "other_than": other_than or 0}
    return session.scalar(_original(), values)


@cache
def _original() -> sa.Select[ModelVersionRecord]:
    return (
        granted_versions()
        .where(
            ModelVersionRecord.digest == sa.bindparam("digest"),
            ModelVersionRecord.state != access.DELETED,
            ModelVersionRecord.id != sa.bindparam("other_than"),
            access.known_to(sa.bindparam("site_id")),
        )
        .order_by(ModelVersionRecord.id)
        .limit(1)
    )


def oldest_elsewhere(session: Session, site_id: int, digest: str) -> int | None:
    """Return the id of the oldest version of a file at other sites, visible or not."""
    return session.scalar(_oldest(digest).where(ModelRecord.site_id != site_id))


def oldest_of(session: Session, site_id: int, digest: str) -> int:
    """Return the id of the oldest version of a file at a site that has one."""
    version_id = session.scalar(_oldest(digest).where(ModelRecord.site_id == site_id))
    assert version_id is not None
    return version_id


def _oldest(digest: str) -> sa.Select[int]:
    return (
        sa.select(sa.func.min(ModelVersionRecord.id))
        .join(ModelVersionRecord.model)
        .where(ModelVersionRecord.digest == digest, ModelVersionRecord.state != access.DELETED)
    )


def followed_parents(session: Session, digest: str) -> set[str]:
    """Return the digests of a file's parents in recipes that the pool trusts."""
    return set(
        session.scalars(
            sa.select(ParentRecord.parent_digest).where(
                ParentRecord.child_digest == digest, ParentRecord.followed
            )
        )
    )


def are_older(session: Session, digests: Collection[str], version_id: int) -> bool:
    """Return whether all of these files that the pool has are older than a version."""
    oldest = (
        sa.select(sa.func.min(ModelVersionRecord.id).label("first_id"))
        .where(among(ModelVersionRecord.digest, "digests"))
        .group_by(ModelVersionRecord.digest)
        .subquery()
    )
    newest = session.scalar(sa.select(sa.func.max(oldest.c.first_id)), {"digests": list(digests)})
    return newest is None or newest < version_id


def find_quarantining_actors(session: Session, site_id: int, digest: str) -> Sequence[str]:
    """Return the actors (``SITE/TOKEN``) of a file's quarantines under any name.

    Omits sites' quarantines of their own versions that `site_id` does not know.
    """
    return session.scalars(_quarantining(), {"digest": digest, "site_id": site_id}).all()


@cache
def _quarantining() -> sa.Select[str]:
    site_id: sa.BindParameter[int] = sa.bindparam("site_id")
    by_owner = ModelVersionRecord.state_changed_by.startswith(SiteRecord.name + "/")
    shared = sa.or_(access.shared_with(site_id), access.known_to(site_id))
    return (
        sa.select(ModelVersionRecord.state_changed_by)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .where(
            ModelVersionRecord.digest == sa.bindparam("digest"),
            ModelVersionRecord.state == access.QUARANTINED,
            sa.or_(sa.not_(by_owner), shared),
        )
    )


def visible_homes(
    session: Session, caller: Caller, digests: Collection[str]
) -> dict[str, list[ModelRecord]]:
    """Return, for each digest, the visible models that have a version of it.

    The models are loaded with their sites and grants; digests without a model are omitted.
    """
    homes: dict[str, list[ModelRecord]] = defaultdict(list)
    rows = session.execute(
        sa.select(ModelVersionRecord.digest, ModelRecord)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(contains_eager(ModelRecord.site), selectinload(ModelRecord.grants))
        .where(among(ModelVersionRecord.digest, "digests"), access.readable_by(caller))
        .order_by(ModelVersionRecord.id),
        {"digests": list(digests)},
    )
    for digest, model in rows:
        homes[digest].append(model)
    return dict(homes)


def visible_addresses(session: Session, caller: Caller, digests: Collection[str]) -> dict[str, str]:
    """Return the address of the oldest visible version with each digest."""
    rows = session.execute(
        sa.select(
            ModelVersionRecord.digest, SiteRecord.name, ModelRecord.name, ModelVersionRecord.number
        )
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .where(among(ModelVersionRecord.digest, "digests"), access.readable_by(caller))
        .order_by(ModelVersionRecord.id.desc()),
        {"digests": list(digests)},
    )
    return {
        digest: str(ModelAddress(site, name, str(number))) for digest, site, name, number in rows
    }


def list_label_keys(session: Session, caller: Caller) -> list[str]:
    """Return the label keys of all versions that the caller may see."""
    keys = sa.select(LabelRecord.key).distinct().subquery()
    is_shown = (
        sa.select(LabelRecord.version_id)
        .join(ModelVersionRecord, ModelVersionRecord.id == LabelRecord.version_id)
        .join(ModelVersionRecord.model)
        .where(LabelRecord.key == keys.c.key, access.readable_by(caller))
        .exists()
    )
    return list(session.scalars(sa.select(keys.c.key).where(is_shown).order_by(keys.c.key)))


def get_version(
    session: Session, version_id: int, versions: Versions = whole_versions
) -> ModelVersionRecord:
    return session.scalars(versions().where(ModelVersionRecord.id == version_id)).one()


def lock_state(session: Session, version: ModelVersionRecord) -> None:
    """Reload a version's state and lock it until the transaction ends."""
    session.refresh(version, ["state", "state_changed_by"], with_for_update=True)


def lock_families(session: Session) -> None:
    """Lock out withdrawals and publications by other transactions until this one ends.

    Otherwise a version published while one of its ancestors is withdrawn would be missed by both;
    so would a site that downloads something meanwhile.
    """
    wait_for_turn(session, "families")


def lock_model(session: Session, model: ModelRecord) -> None:
    """Reload and lock a model's deletion and visibility until the transaction ends.

    The lock also blocks new versions. Take it before locking the states of the model's versions.
    """
    session.refresh(model, ["deleted_at", "visibility"], with_for_update={"key_share": True})


def next_number(session: Session, model_id: int) -> int:
    newest = session.scalar(
        sa.select(sa.func.max(ModelVersionRecord.number)).where(
            ModelVersionRecord.model_id == model_id
        )
    )
    return (newest or 0) + 1


def among(column: Any, name: str) -> sa.ColumnElement[bool]:
    """Return the condition that `column` is one of the values in the list parameter `name`."""
    condition: sa.ColumnElement[bool] = column.in_(sa.bindparam(name, expanding=True))
    return condition


def ancestors_of(digest: sa.ColumnElement[str]) -> sa.CTE:
    """Return the digests of all ancestors, `digest` among them.

    UNION drops rows seen before, so the walk ends even if contradictory recipes form a circle.
    """
    return _walk("ancestors", digest, ParentRecord.child_digest, ParentRecord.parent_digest)


def descendants_of(digest: sa.ColumnElement[str]) -> sa.CTE:
    """Return the digests of all descendants, `digest` among them."""
    return _walk("descendants", digest, ParentRecord.parent_digest, ParentRecord.child_digest)


def _walk(
    name: str,
    digest: sa.ColumnElement[str],
    here: InstrumentedAttribute[str],
    there: InstrumentedAttribute[str],
) -> sa.CTE:
    tree = sa.select(digest.label("digest")).cte(name, recursive=True)
    return tree.union(
        sa.select(there).join(tree, sa.and_(here == tree.c.digest, ParentRecord.followed))
    )
