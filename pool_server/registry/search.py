"""Search of versions: one statement over the tables of the records, on both databases.

The conditions on labels, metrics and merge keys are read from the indexes of their tables; words
are looked for in the texts themselves. So there is no index of its own that could differ from the
records, at the price of reading all descriptions for a word.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session, aliased

from pool_server.database.records import (
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    SiteRecord,
    WithdrawalFlagRecord,
)
from pool_server.http.identity import Caller
from pool_server.registry import query
from pool_server.registry.access import listed_for
from pool_server.wire.models import ModelFilters, ModelQuery, StateChoice

_LETTER = "a-z0-9\x80-\U0010ffff"
_SHORT_WORD = re.compile(f"^[{_LETTER}]{{1,2}}$")


class Hit(NamedTuple):
    """A version that matches a search; `key` is its sort key."""

    version_id: int
    key: int | float | str
    kind: str
    site: str
    state: str


def find_versions(
    session: Session,
    caller: Caller,
    filters: ModelFilters,
    merge_groups: Sequence[Sequence[query.MergeKey]] = (),
    *,
    other_than: str | None = None,
    limit: int,
) -> list[Hit]:
    """Return the first visible versions that pass every filter, in the order of the query.

    A version must have at least one key of each of `merge_groups`; those of the file `other_than`
    are left out.
    """
    groups = tuple(tuple(group) for group in merge_groups)
    is_sqlite = session.get_bind().dialect.name == "sqlite"
    rights = replace(caller, address="", request_id="")
    document = filters.model_dump_json(exclude_defaults=True)
    statement = _search(type(filters), document, rights, groups, other_than, limit, is_sqlite)
    return [Hit._make(row) for row in session.execute(statement)]


@lru_cache(128)
def _search(  # noqa: PLR0917 - a cache takes them by place
    kind: type[ModelFilters],
    document: str,
    caller: Caller,
    merge_groups: tuple[tuple[query.MergeKey, ...], ...],
    other_than: str | None,
    limit: int,
    is_sqlite: bool,
) -> sa.Select[*tuple[Any, ...]]:
    """Return the statement of a search; building it takes longer than running it."""
    version, filters = ModelVersionRecord, kind.model_validate_json(document)
    order, after = query.Order(), None
    if isinstance(filters, ModelQuery):
        order = query.Order.parse(filters.sort)
        after = None if filters.cursor is None else order.read_cursor(filters.cursor)
    key = _sort_key(order, is_sqlite=is_sqlite)
    conditions = [*_exact_conditions(caller, filters), *map(_has_key_of, merge_groups)]
    conditions += [_has_number(condition) for condition in query.read_conditions(filters)]
    conditions += [_has_word(word) for word in query.read_words(filters)]
    if other_than is not None:
        conditions.append(version.digest != other_than)
    statement = (
        sa.select(version.id, key, version.kind, SiteRecord.name, version.state)
        .select_from(version)
        .join(ModelRecord, version.model_id == ModelRecord.id)
        .join(SiteRecord, ModelRecord.site_id == SiteRecord.id)
    )
    if order.by == "metric":
        statement = statement.join(
            MetricRecord,
            sa.and_(MetricRecord.version_id == version.id, MetricRecord.name == order.metric),
        )
    # The id makes the order total; within a model it grows with the number.
    place = sa.tuple_(key, version.id)
    if after is not None:
        end = sa.tuple_(sa.literal(after.key), sa.literal(after.version_id))
        conditions.append(place < end if order.descending else place > end)
    turn = sa.desc if order.descending else sa.asc
    return statement.where(*conditions).order_by(turn(key), turn(version.id)).limit(limit)


def _exact_conditions(caller: Caller, filters: ModelFilters) -> list[sa.ColumnElement[bool]]:
    state: StateChoice | None = filters.state
    if filters.latest and state is None:
        state = "available"
    conditions = [listed_for(caller, state)]
    if filters.kind is not None:
        conditions.append(ModelVersionRecord.kind == filters.kind)
    if filters.site is not None:
        conditions.append(SiteRecord.name == filters.site)
    if filters.name is not None:
        conditions.append(ModelRecord.name == filters.name)
    if filters.latest:
        conditions.append(ModelVersionRecord.id == _newest())
    return conditions


def _newest() -> sa.ScalarSelect[int]:
    """Return the newest version of a model and state: of those with nothing withdrawn, if any."""
    other = aliased(ModelVersionRecord)
    is_flagged = sa.exists().where(WithdrawalFlagRecord.version_id == other.id)
    return (
        sa.select(other.id)
        .where(
            other.model_id == ModelVersionRecord.model_id, other.state == ModelVersionRecord.state
        )
        .order_by(is_flagged, other.number.desc())
        .limit(1)
        .scalar_subquery()
    )


def _has_key_of(group: Sequence[query.MergeKey]) -> sa.ColumnElement[bool]:
    is_key = [
        sa.and_(MergeKeyRecord.method == merge_key.method, MergeKeyRecord.key == merge_key.key)
        for merge_key in group
    ]
    return _is_among(MergeKeyRecord.version_id, sa.or_(*is_key))


def _has_number(condition: str | query.Range) -> sa.ColumnElement[bool]:
    """Return the condition that a version has a label, or a label or metric within a bound."""
    if isinstance(condition, str):
        key, has_value, value = condition.partition("=")
        is_value = [LabelRecord.value == value] if has_value else []
        return _is_among(LabelRecord.version_id, LabelRecord.key == key, *is_value)
    if condition.table == "labels":
        within = LabelRecord.number.op(condition.relation)(condition.bound)
        return _is_among(LabelRecord.version_id, LabelRecord.key == condition.name, within)
    within = MetricRecord.value.op(condition.relation)(condition.bound)
    return _is_among(MetricRecord.version_id, MetricRecord.name == condition.name, within)


def _has_word(word: str) -> sa.ColumnElement[bool]:
    """Return the condition that names, description or labels have a word, in any case.

    One of one or two letters must be a whole word: most texts have any two letters somewhere.
    """
    # Both sides are lowered by the database: SQLite's knows the letters of ASCII only.
    part = sa.func.lower("%" + re.sub(r"([\\%_])", r"\\\1", word) + "%")
    whole: Any = None
    if _SHORT_WORD.fullmatch(word.lower()):
        whole = f"(^|[^{_LETTER}])" + sa.func.lower(word) + f"($|[^{_LETTER}])"

    def has(text: Any) -> sa.ColumnElement[bool]:
        lowered = sa.func.lower(text)
        has_part = lowered.like(part, escape="\\")
        return has_part if whole is None else sa.and_(has_part, lowered.regexp_match(whole))

    texts = (ModelRecord.name, SiteRecord.name, SiteRecord.display_name)
    label = LabelRecord.key + "=" + LabelRecord.value
    return sa.or_(
        *map(has, (*texts, ModelVersionRecord.description)),
        _is_among(LabelRecord.version_id, has(label)),
    )


def _is_among(version_id: Any, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return ModelVersionRecord.id.in_(sa.select(version_id).where(*conditions))


def _sort_key(order: query.Order, *, is_sqlite: bool) -> Any:
    if order.by == "metric":
        return MetricRecord.value
    if order.by == "created":
        return ModelVersionRecord.id
    # In the order of its characters, whatever the language of the database; names have no spaces.
    return (ModelRecord.name + " " + SiteRecord.name).collate("BINARY" if is_sqlite else "C")
