"""Loading a page of versions: what belongs to them comes as plain rows.

For hundreds of labels and metrics, making a record of each takes longer than finding the versions.
Whoever only reads `label.key` does not tell a row from a record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, contains_eager, joinedload, load_only
from sqlalchemy.orm.attributes import set_committed_value

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
    TermRecord,
)
from pool_server.registry.sharing import visible_to
from pool_server.registry.standing import standing_options
from pool_server.registry.states import listed_for
from pool_server.wire.models import StateChoice

# Of each list of a version: whose row it is, what is read of it, in which order.
_LISTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "labels": (LabelRecord.version_id, (LabelRecord.key, LabelRecord.value)),
    "metrics": (MetricRecord.version_id, (MetricRecord.name, MetricRecord.value)),
    "merge_keys": (MergeKeyRecord.version_id, (MergeKeyRecord.method, MergeKeyRecord.key)),
    "parents": (ParentRecord.version_id, (ParentRecord.position, ParentRecord.parent_digest)),
    "terms": (TermRecord.version_id, (TermRecord.code, TermRecord.detail, TermRecord.inherited)),
    "aliases": (AliasRecord.version_id, (AliasRecord.name,)),
}


def versions_and_standing() -> Select[ModelVersionRecord]:
    """Select versions with model, site and standing, but without the lists of `fill_lists`."""
    return (
        select(ModelVersionRecord)
        .join(ModelVersionRecord.model)
        .join(ModelRecord.site)
        .options(
            contains_eager(ModelVersionRecord.model).contains_eager(ModelRecord.site),
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


def fill_lists(session: Session, versions: Sequence[ModelVersionRecord]) -> None:
    """Give versions their labels, metrics, merge keys, parents, terms and aliases, to be read."""
    identifiers = [version.id for version in versions]
    for name, (owner, columns) in _LISTS.items():
        found = defaultdict[int, list[Any]](list)
        rows = session.execute(
            select(owner, *columns).where(owner.in_(identifiers)).order_by(*columns)
        )
        for row in rows:
            found[row[0]].append(row)
        for version in versions:
            set_committed_value(version, name, found[version.id])


def load_versions(
    session: Session, caller: Caller, version_ids: Sequence[int], state: StateChoice | None
) -> list[ModelVersionRecord]:
    """Return the versions with these ids, in this order, as far as the caller is shown them."""
    if not version_ids:
        return []
    query = versions_and_standing().where(
        ModelVersionRecord.id.in_(version_ids), visible_to(caller), listed_for(caller, state)
    )
    found = {version.id: version for version in session.scalars(query)}
    versions = [found[each] for each in version_ids if each in found]
    fill_lists(session, versions)
    return versions
