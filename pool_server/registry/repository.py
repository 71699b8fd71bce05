"""Models and versions in the database."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, exists, func, or_, select
from sqlalchemy.orm import (
    Session,
    aliased,
    contains_eager,
    joinedload,
    load_only,
    selectinload,
)

from pool_server.http.identity import Caller
from pool_server.records import (
    AliasRecord,
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    RecipeRecord,
    SiteKeyRecord,
    SiteRecord,
    StatementRecord,
)
from pool_server.registry.filters import (
    LabelFilter,
    MergeKey,
    MetricFilter,
    MetricRelation,
    ModelQuery,
)
from pool_server.registry.sharing import visible_to
from pool_server.registry.standing import standing_options
from pool_server.registry.states import AVAILABLE, QUARANTINED, listed_for, readable_by
from pool_server.wire.names import ModelAddress

# How many values one statement may name; SQLite takes 32766.
MOST_VALUES = 10_000

RELATIONS: dict[MetricRelation, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
}


def whole_versions() -> Select[ModelVersionRecord]:
    """Select versions with all that a response needs, in a fixed number of queries."""
    return (
        select(ModelVersionRecord)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(
            contains_eager(ModelVersionRecord.model).options(
                contains_eager(ModelRecord.site), selectinload(ModelRecord.grants)
            ),
            selectinload(ModelVersionRecord.labels),
            selectinload(ModelVersionRecord.metrics),
            selectinload(ModelVersionRecord.merge_keys),
            selectinload(ModelVersionRecord.parents),
            selectinload(ModelVersionRecord.terms),
            selectinload(ModelVersionRecord.aliases),
            *standing_options(),
            # Of the recipe only that there is one; its document can be long.
            joinedload(ModelVersionRecord.recipe).load_only(RecipeRecord.method),
            # And of what was signed, only with which key.
            joinedload(ModelVersionRecord.statement).options(
                load_only(
                    StatementRecord.key_id, StatementRecord.origin, StatementRecord.created_at
                ),
                joinedload(StatementRecord.key).load_only(
                    SiteKeyRecord.revoked_at, SiteKeyRecord.revocation
                ),
            ),
        )
    )


def find_model(session: Session, site: str, name: str) -> ModelRecord | None:
    """Return a model with its site and grants, whoever asks."""
    return session.scalar(models_named(site, name))


def find_visible_model(
    session: Session, caller: Caller, site: str, name: str
) -> ModelRecord | None:
    """Return a model with its site and grants, if the caller may see it."""
    return session.scalar(
        models_named(site, name).where(visible_to(caller), ModelRecord.deleted_at.is_(None))
    )


def models_named(site: str, name: str) -> Select[ModelRecord]:
    return (
        select(ModelRecord)
        .join(ModelRecord.site)
        .options(contains_eager(ModelRecord.site), selectinload(ModelRecord.grants))
        .where(SiteRecord.name == site, ModelRecord.name == name)
    )


def find_by_number(
    session: Session, model_id: int, number: int, *conditions: ColumnElement[bool]
) -> ModelVersionRecord | None:
    return session.scalar(
        whole_versions().where(
            ModelVersionRecord.model_id == model_id,
            ModelVersionRecord.number == number,
            *conditions,
        )
    )


def find_by_digest(
    session: Session, model_id: int, digest: str, *conditions: ColumnElement[bool]
) -> ModelVersionRecord | None:
    return session.scalar(
        whole_versions().where(
            ModelVersionRecord.model_id == model_id,
            ModelVersionRecord.digest == digest,
            *conditions,
        )
    )


def find_by_alias(
    session: Session, model_id: int, alias: str, *conditions: ColumnElement[bool]
) -> ModelVersionRecord | None:
    return session.scalar(
        whole_versions()
        .join(AliasRecord, AliasRecord.version_id == ModelVersionRecord.id)
        .where(AliasRecord.model_id == model_id, AliasRecord.name == alias, *conditions)
    )


def find_newest(
    session: Session, model_id: int, *conditions: ColumnElement[bool]
) -> ModelVersionRecord | None:
    """Return the newest version that is available; where none is, the newest there is."""
    return session.scalar(
        whole_versions()
        .where(ModelVersionRecord.model_id == model_id, *conditions)
        .order_by(
            case((ModelVersionRecord.state == AVAILABLE, 0), else_=1),
            ModelVersionRecord.number.desc(),
        )
        .limit(1)
    )


def find_anywhere(session: Session, caller: Caller, digest: str) -> ModelVersionRecord | None:
    """Return the oldest version with this digest of a model that the caller may see."""
    return session.scalar(
        whole_versions()
        .where(ModelVersionRecord.digest == digest, visible_to(caller), readable_by(caller))
        .order_by(ModelVersionRecord.id)
        .limit(1)
    )


def is_quarantined(session: Session, digest: str) -> bool:
    """Tell whether a version with this digest is quarantined, whatever model it belongs to."""
    return (
        session.scalar(
            select(ModelVersionRecord.id)
            .where(ModelVersionRecord.digest == digest, ModelVersionRecord.state == QUARANTINED)
            .limit(1)
        )
        is not None
    )


def visible_homes(
    session: Session, caller: Caller, digests: Collection[str]
) -> dict[str, list[ModelRecord]]:
    """Return, for each digest, the models that the caller may see and that have a version of it.

    The models come with their sites and grants; digests of none are left out.
    """
    homes: dict[str, list[ModelRecord]] = defaultdict(list)
    wanted = sorted(set(digests))
    for start in range(0, len(wanted), MOST_VALUES):
        rows = session.execute(
            select(ModelVersionRecord.digest, ModelRecord)
            .join(ModelVersionRecord.model)
            .join(ModelRecord.site)
            .options(contains_eager(ModelRecord.site), selectinload(ModelRecord.grants))
            .where(
                ModelVersionRecord.digest.in_(wanted[start : start + MOST_VALUES]),
                visible_to(caller),
                readable_by(caller),
            )
            .order_by(ModelVersionRecord.id)
        )
        for digest, model in rows:
            homes[digest].append(model)
    return dict(homes)


def visible_addresses(session: Session, caller: Caller, digests: Collection[str]) -> dict[str, str]:
    """Return the address of the oldest version with each digest, of those the caller may see."""
    addresses: dict[str, str] = {}
    wanted = sorted(set(digests))
    for start in range(0, len(wanted), MOST_VALUES):
        rows = session.execute(
            select(
                ModelVersionRecord.digest,
                SiteRecord.name,
                ModelRecord.name,
                ModelVersionRecord.number,
            )
            .join(ModelVersionRecord.model)
            .join(ModelRecord.site)
            .where(
                ModelVersionRecord.digest.in_(wanted[start : start + MOST_VALUES]),
                visible_to(caller),
                readable_by(caller),
            )
            .order_by(ModelVersionRecord.id)
        )
        for digest, site, name, number in rows:
            addresses.setdefault(digest, str(ModelAddress(site, name, str(number))))
    return addresses


def get_version(session: Session, version_id: int) -> ModelVersionRecord:
    return session.scalars(whole_versions().where(ModelVersionRecord.id == version_id)).one()


def list_versions(
    session: Session,
    caller: Caller,
    query: ModelQuery,
    merge_groups: Sequence[Sequence[MergeKey]] = (),
    other_than: str | None = None,
) -> Sequence[ModelVersionRecord]:
    """Return versions that the caller may see, newest first, one more than `query.limit`.

    Parameters
    ----------
    merge_groups : sequence of sequences of MergeKey
        Of each group, a version must have at least one key.
    other_than : str, optional
        A digest to leave out.
    """
    conditions = [visible_to(caller), listed_for(caller, query.state)]
    if query.kind is not None:
        conditions.append(ModelVersionRecord.kind == query.kind)
    if query.site is not None:
        conditions.append(SiteRecord.name == query.site)
    if query.name is not None:
        conditions.append(ModelRecord.name == query.name)
    if query.before_id is not None:
        conditions.append(ModelVersionRecord.id < query.before_id)
    conditions += [has_label(wanted) for wanted in query.labels]
    conditions += [has_metric(wanted) for wanted in query.metrics]
    conditions += [has_word(word) for word in query.words]
    conditions += [has_merge_key(group) for group in merge_groups]
    if other_than is not None:
        conditions.append(ModelVersionRecord.digest != other_than)
    if query.latest:
        conditions.append(is_newest_of_its_model())
        if query.state is None:
            conditions.append(ModelVersionRecord.state == AVAILABLE)
    return session.scalars(
        whole_versions()
        .where(*conditions)
        .order_by(ModelVersionRecord.id.desc())
        .limit(query.limit + 1)
    ).all()


# Filters are lists of versions that the database may begin with (`id IN (SELECT ...)`): a rare
# label is then found by its index, whatever the number of versions.


def has_label(wanted: LabelFilter) -> ColumnElement[bool]:
    versions = select(LabelRecord.version_id).where(LabelRecord.key == wanted.key)
    if wanted.value is not None:
        versions = versions.where(LabelRecord.value == wanted.value)
    return ModelVersionRecord.id.in_(versions)


def has_metric(wanted: MetricFilter) -> ColumnElement[bool]:
    return ModelVersionRecord.id.in_(
        select(MetricRecord.version_id).where(
            MetricRecord.name == wanted.name,
            RELATIONS[wanted.relation](MetricRecord.value, wanted.bound),
        )
    )


def has_word(word: str) -> ColumnElement[bool]:
    """Match a part of the name, site, description, or of a label's key or value."""
    labelled = select(LabelRecord.version_id).where(
        or_(contains(LabelRecord.key, word), contains(LabelRecord.value, word))
    )
    named = (
        select(ModelRecord.id)
        .join(ModelRecord.site)
        .where(
            or_(
                contains(ModelRecord.name, word),
                contains(SiteRecord.name, word),
                contains(SiteRecord.display_name, word),
            )
        )
    )
    return or_(
        ModelVersionRecord.model_id.in_(named),
        contains(ModelVersionRecord.description, word),
        ModelVersionRecord.id.in_(labelled),
    )


def contains(column: Any, word: str) -> ColumnElement[bool]:
    # autoescape: % and _ in a word mean themselves.
    condition: ColumnElement[bool] = column.icontains(word, autoescape=True)
    return condition


def has_merge_key(keys: Sequence[MergeKey]) -> ColumnElement[bool]:
    return ModelVersionRecord.id.in_(
        select(MergeKeyRecord.version_id).where(
            or_(
                *(
                    and_(MergeKeyRecord.method == each.method, MergeKeyRecord.key == each.key)
                    for each in keys
                )
            )
        )
    )


def is_newest_of_its_model() -> ColumnElement[bool]:
    newer = aliased(ModelVersionRecord)
    return ~exists().where(
        newer.model_id == ModelVersionRecord.model_id,
        newer.number > ModelVersionRecord.number,
        newer.state == ModelVersionRecord.state,
    )


def next_number(session: Session, model_id: int) -> int:
    newest = session.scalar(
        select(func.max(ModelVersionRecord.number)).where(ModelVersionRecord.model_id == model_id)
    )
    return (newest or 0) + 1
