"""Loading a page of versions: what belongs to them comes as plain rows.

To make a record of each of hundreds of labels and metrics takes longer than to find the versions.
Whoever only reads `label.key` does not tell a row from a record. And of the few versions that are
withdrawn, flagged or replaced, one query tells which they are; only for those is more asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    CompoundSelect,
    Double,
    Select,
    Text,
    bindparam,
    case,
    cast,
    literal,
    null,
    select,
    type_coerce,
    union,
    union_all,
)
from sqlalchemy.orm import Session, contains_eager, joinedload, load_only
from sqlalchemy.orm.attributes import instance_dict

from pool_server.http.identity import Caller
from pool_server.records import (
    AliasRecord,
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    SiteKeyRecord,
    StatementRecord,
    SuccessorRecord,
    TermRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.registry.sharing import visible_to
from pool_server.registry.standing import standing_options
from pool_server.registry.states import listed_for
from pool_server.wire.models import StateChoice


class _Label(NamedTuple):
    key: str
    value: str


class _Metric(NamedTuple):
    name: str
    value: float


class _MergeKey(NamedTuple):
    method: str
    key: str


class _Parent(NamedTuple):
    position: int
    parent_digest: str


class _Term(NamedTuple):
    code: str
    detail: str
    inherited: bool


class _Alias(NamedTuple):
    name: str


@dataclass(frozen=True)
class _List:
    """A list of a version: where its rows are, and what is made of a row's texts and number."""

    version_id: Any
    first: Any
    second: Any
    number: Any
    make: Callable[[str, str, float], Any]


_LISTS = {
    "labels": _List(
        LabelRecord.version_id,
        LabelRecord.key,
        LabelRecord.value,
        null(),
        lambda key, value, _: _Label(key, value),
    ),
    "metrics": _List(
        MetricRecord.version_id,
        MetricRecord.name,
        null(),
        MetricRecord.value,
        lambda name, _, value: _Metric(name, value),
    ),
    "merge_keys": _List(
        MergeKeyRecord.version_id,
        MergeKeyRecord.method,
        MergeKeyRecord.key,
        null(),
        lambda method, key, _: _MergeKey(method, key),
    ),
    "parents": _List(
        ParentRecord.version_id,
        null(),
        ParentRecord.parent_digest,
        cast(ParentRecord.position, Double),
        lambda _, digest, position: _Parent(int(position), digest),
    ),
    "terms": _List(
        TermRecord.version_id,
        TermRecord.code,
        TermRecord.detail,
        case((TermRecord.inherited, 1.0), else_=0.0),
        lambda code, detail, inherited: _Term(code, detail, bool(inherited)),
    ),
    "aliases": _List(
        AliasRecord.version_id,
        AliasRecord.name,
        null(),
        null(),
        lambda name, *_: _Alias(name),
    ),
}
_GOOD_STANDING: dict[str, Any] = {"withdrawal": None, "flags": (), "successors": ()}


def single_versions() -> Select[ModelVersionRecord]:
    """Select versions with model and site, and with whether they have a recipe or a signature."""
    return (
        select(ModelVersionRecord)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(
            contains_eager(ModelVersionRecord.model).contains_eager(ModelRecord.site),
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


def load_versions(
    session: Session, caller: Caller, version_ids: Sequence[int], state: StateChoice | None
) -> list[ModelVersionRecord]:
    """Return the versions with these ids, in this order, as far as the caller is shown them."""
    if not version_ids:
        return []
    shown = visible_to(caller), listed_for(caller, state)
    marked = set(session.scalars(_queries().marked, {"versions": version_ids}))
    found: dict[int, ModelVersionRecord] = {}
    for query, wanted in (
        (_queries().in_good_standing, [each for each in version_ids if each not in marked]),
        (_queries().others, sorted(marked)),
    ):
        if wanted:
            versions = session.scalars(query.where(*shown), {"versions": wanted})
            found.update((version.id, version) for version in versions)
    listed = [found[each] for each in version_ids if each in found]
    for version in listed:
        if version.id not in marked:
            instance_dict(version).update(_GOOD_STANDING)
    fill_lists(session, listed)
    return listed


def fill_lists(session: Session, versions: Sequence[ModelVersionRecord]) -> None:
    """Give versions their labels, metrics, merge keys, parents, terms and aliases, to be read."""
    lists: dict[int, dict[str, list[Any]]] = {
        version.id: {name: [] for name in _LISTS} for version in versions
    }
    for name, version_id, *values in session.execute(_queries().lists, {"versions": list(lists)}):
        lists[version_id][name].append(_LISTS[name].make(*values))
    for version in versions:
        found = lists[version.id]
        for rows in found.values():
            rows.sort()
        instance_dict(version).update(found)


@dataclass(frozen=True)
class _Queries:
    """What a page is loaded by; making them takes as long as sending them."""

    in_good_standing: Select[ModelVersionRecord]
    others: Select[ModelVersionRecord]
    marked: CompoundSelect[int]
    lists: CompoundSelect[Any]


@cache
def _queries() -> _Queries:
    among: BindParameter[Any] = bindparam("versions", expanding=True)
    versions = single_versions().where(ModelVersionRecord.id.in_(among))
    return _Queries(
        in_good_standing=versions,
        others=versions.options(*standing_options()),
        marked=union(
            *(
                select(column).where(column.in_(among))
                for column in (
                    WithdrawalRecord.version_id,
                    WithdrawalFlagRecord.version_id,
                    SuccessorRecord.version_id,
                )
            )
        ),
        lists=union_all(
            *(
                select(
                    literal(name, Text).label("name"),
                    each.version_id.label("version_id"),
                    type_coerce(each.first, Text).label("first"),
                    type_coerce(each.second, Text).label("second"),
                    type_coerce(each.number, Double).label("number"),
                ).where(each.version_id.in_(among))
                for name, each in _LISTS.items()
            )
        ),
    )
