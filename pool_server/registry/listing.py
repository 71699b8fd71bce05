"""Loading a page of versions: what belongs to them comes as plain rows.

To make a record of each of hundreds of labels and metrics takes longer than to find the versions.
Whoever only reads `label.key` does not tell a row from a record. And of the few versions that are
withdrawn, flagged or replaced, one query tells which they are; only for those is more asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import BindParameter, CompoundSelect, Select, bindparam, select, union
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

# Of each list of a version: whose row it is, and what is read of it, in which order.
_LISTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "labels": (LabelRecord.version_id, (LabelRecord.key, LabelRecord.value)),
    "metrics": (MetricRecord.version_id, (MetricRecord.name, MetricRecord.value)),
    "merge_keys": (MergeKeyRecord.version_id, (MergeKeyRecord.method, MergeKeyRecord.key)),
    "parents": (ParentRecord.version_id, (ParentRecord.position, ParentRecord.parent_digest)),
    "terms": (TermRecord.version_id, (TermRecord.code, TermRecord.detail, TermRecord.inherited)),
    "aliases": (AliasRecord.version_id, (AliasRecord.name,)),
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
    identifiers = [version.id for version in versions]
    for name, query in _queries().lists.items():
        rows = defaultdict[int, list[Any]](list)
        for row in session.execute(query, {"versions": identifiers}):
            rows[row[0]].append(row)
        for version in versions:
            instance_dict(version)[name] = rows[version.id]


@dataclass(frozen=True)
class _Queries:
    """What a page is loaded by; making them takes as long as sending them."""

    in_good_standing: Select[ModelVersionRecord]
    others: Select[ModelVersionRecord]
    marked: CompoundSelect[int]
    lists: dict[str, Select[Any]]


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
        lists={
            name: select(owner, *columns).where(owner.in_(among)).order_by(*columns)
            for name, (owner, columns) in _LISTS.items()
        },
    )
