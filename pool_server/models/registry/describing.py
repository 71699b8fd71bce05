"""Versions as clients see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from typing import cast

from sqlalchemy import Integer, Select, bindparam
from sqlalchemy.orm import Session

from pool_server.database.records import ModelVersionRecord, StatementRecord, TermRecord
from pool_server.http.identity import Caller
from pool_server.models.access import curates_pool, readable
from pool_server.models.registry.filters import MergeKey
from pool_server.models.registry.repository import whole_versions
from pool_server.models.registry.sql import among
from pool_server.models.registry.standing import flags_of, successors_of, withdrawal_of
from pool_server.wire.models.data_use import TermResponse, label_of
from pool_server.wire.models.models import ModelVersionResponse, VersionState
from pool_server.wire.models.sharing import Visibility
from pool_server.wire.signatures.statements import Revocation, SignatureSummary

MergeGroups = Sequence[Sequence[MergeKey]]


def describe_versions(
    session: Session, caller: Caller, version_ids: Sequence[int], merge_groups: MergeGroups = ()
) -> list[ModelVersionResponse]:
    """Return the versions with these ids, in this order, that the caller may ask for.

    Parameters
    ----------
    merge_groups : sequence of sequences of MergeKey
        `mergeable_by` has only methods of which a version has a key in every group.
    """
    if not version_ids:
        return []
    values = {"versions": list(version_ids), "caller_site": caller.site_id}
    found = {
        each.id: describe_version(each, _shared_methods(each, merge_groups))
        for each in session.scalars(_readable_versions(curates=curates_pool(caller)), values)
    }
    return [found[each] for each in version_ids if each in found]


@cache
def _readable_versions(*, curates: bool) -> Select[ModelVersionRecord]:
    """Select a page of versions; building this statement takes as long as running it."""
    return whole_versions().where(
        among(ModelVersionRecord.id, "versions"),
        readable(bindparam("caller_site", type_=Integer), curates=curates),
    )


def _shared_methods(version: ModelVersionRecord, groups: MergeGroups) -> set[str] | None:
    """Return the methods of which a version has a key in every group; None without groups."""
    if not groups:
        return None
    own = {MergeKey(each.method, each.key) for each in version.merge_keys}
    return set.intersection(*({each.method for each in own & set(group)} for group in groups))


def describe_version(
    version: ModelVersionRecord, methods: Collection[str] | None = None
) -> ModelVersionResponse:
    """Return a version as clients see it; `mergeable_by` has only `methods`, if given."""
    return ModelVersionResponse(
        site=version.model.site.name,
        name=version.model.name,
        version=version.number,
        kind=version.kind,
        format=version.format,
        digest=version.digest,
        size_bytes=version.size_bytes,
        file_name=version.file_name,
        description=version.description,
        labels={label.key: label.value for label in version.labels},
        metrics={metric.name: metric.value for metric in version.metrics},
        fingerprint=version.fingerprint,
        mergeable_by=[
            each.method for each in version.merge_keys if methods is None or each.method in methods
        ],
        terms=[describe_term(each) for each in version.terms],
        aliases=[each.name for each in version.aliases],
        visibility=cast("Visibility", version.model.visibility),
        state=cast("VersionState", version.state),
        state_reason=version.state_reason,
        state_changed_at=version.state_changed_at,
        state_changed_by=version.state_changed_by,
        has_card=version.has_card,
        created_at=version.created_at,
        created_by=version.created_by,
        has_recipe=version.recipe is not None,
        parent_digests=list(dict.fromkeys(parent.parent_digest for parent in version.parents)),
        withdrawal=withdrawal_of(version),
        flags=flags_of(version),
        successors=successors_of(version),
        signed_by=None if version.statement is None else describe_signature(version.statement),
    )


def describe_signature(statement: StatementRecord) -> SignatureSummary:
    key = statement.key
    return SignatureSummary(
        key_id=statement.key_id,
        origin=statement.origin or None,
        accepted_at=statement.created_at,
        revoked_at=key.revoked_at,
        revoked_as=cast("Revocation | None", key.revocation or None),
    )


def describe_term(term: TermRecord) -> TermResponse:
    return TermResponse(
        code=term.code,
        label=label_of(term.code),
        detail=term.detail,
        inherited=term.inherited,
    )
