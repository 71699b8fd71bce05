"""Pages of versions, described by what few queries tell of all of them.

Of hundreds of labels, metrics and keys nobody makes records here: that takes longer than to find
the versions. Whether a version is withdrawn, flagged or replaced is asked along with the rest;
the few that are get loaded with all that there is to tell of that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import (
    Integer,
    Row,
    ScalarSelect,
    Select,
    Text,
    cast,
    literal,
    null,
    or_,
    select,
    union_all,
)
from sqlalchemy.orm import Session

from pool_server.database.records import (
    AliasRecord,
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    SiteKeyRecord,
    SiteRecord,
    StatementRecord,
    SuccessorRecord,
    TermRecord,
    WithdrawalFlagRecord,
    WithdrawalRecord,
)
from pool_server.http.identity import Caller
from pool_server.models.registry.describing import describe_version
from pool_server.models.registry.filters import MergeKey
from pool_server.models.registry.repository import whole_versions
from pool_server.models.registry.sharing import may
from pool_server.models.registry.sql import among, exact_text, json_rows
from pool_server.models.registry.states import is_listed, is_shown, standing_columns
from pool_server.wire.models.data_use import label_of
from pool_server.wire.models.models import ModelVersionResponse, StateChoice

MergeGroups = Sequence[Sequence[MergeKey]]

_RESPONSES = TypeAdapter(list[ModelVersionResponse])


def describe_versions(
    session: Session,
    caller: Caller,
    version_ids: Sequence[int],
    state: StateChoice | None,
    merge_groups: MergeGroups = (),
) -> list[ModelVersionResponse]:
    """Return the versions with these ids, in this order, as far as the caller is shown them.

    Parameters
    ----------
    merge_groups : sequence of sequences of MergeKey
        `mergeable_by` has only methods of which a version has a key in every group.
    """
    if not version_ids:
        return []
    wanted = {"versions": list(version_ids), "caller_site": caller.site_id}
    rows = session.connection().execute(_described(), wanted).all()
    shown = [row for row in rows if is_shown(caller, row, state)]
    good = [row for row in shown if not row.is_marked]
    responses = _RESPONSES.validate_python([_describe(row, merge_groups) for row in good])
    found = {row.id: response for row, response in zip(good, responses, strict=True)}
    marked = [row.id for row in shown if row.is_marked]
    if marked:
        for version in session.scalars(_whole(), {"versions": marked}):
            # Somebody may have changed it since.
            model = version.model
            listed = is_listed(caller, model.site_id, version.state, state)
            if not (listed and may(caller, model, "see")):
                continue
            keys = [(each.method, each.key) for each in version.merge_keys]
            found[version.id] = describe_version(version, _shared_methods(keys, merge_groups))
    return [found[each] for each in version_ids if each in found]


def _describe(row: Row[*tuple[Any, ...]], merge_groups: MergeGroups) -> dict[str, Any]:
    """Return a version in good standing as the fields of `ModelVersionResponse`."""
    lists: dict[str, list[tuple[Any, ...]]] = {name: [] for name in _LISTS}
    for name, *values in sorted(row.lists):
        lists[name].append(tuple(values))
    keys = [(method, key) for _, method, key in lists["merge_keys"]]
    shared = _shared_methods(keys, merge_groups)
    return {
        **row._mapping,
        "labels": {key: value for _, key, value in lists["labels"]},
        "metrics": {name: float(value) for _, name, value in lists["metrics"]},
        "mergeable_by": [method for method, _ in keys if shared is None or method in shared],
        "terms": [
            {"code": code, "label": label_of(code), "detail": detail, "inherited": inherited}
            for inherited, code, detail in sorted(lists["terms"], key=lambda term: term[1:])
        ],
        "aliases": [name for _, name, _ in lists["aliases"]],
        "has_recipe": row.method is not None,
        "parent_digests": list(dict.fromkeys(digest for _, digest, _ in lists["parents"])),
        "signed_by": None
        if row.key_id is None
        else {
            "key_id": row.key_id,
            "origin": row.origin or None,
            "accepted_at": row.accepted_at,
            "revoked_at": row.revoked_at,
            "revoked_as": row.revocation or None,
        },
    }


def _shared_methods(keys: Sequence[tuple[str, str]], groups: MergeGroups) -> set[str] | None:
    """Return the methods of `keys` that have one in every group; None: there are no groups."""
    if not groups:
        return None
    own = {MergeKey(*each) for each in keys}
    return set.intersection(*({each.method for each in own & set(group)} for group in groups))


@cache
def _described() -> Select[*tuple[Any, ...]]:
    """Select all that is told of versions in good standing.

    To make this statement takes longer than to run it.
    """
    version, signature, key = ModelVersionRecord, StatementRecord, SiteKeyRecord
    marks = (
        WithdrawalRecord.version_id,
        WithdrawalFlagRecord.version_id,
        SuccessorRecord.version_id,
    )
    return (
        select(
            version.id,
            SiteRecord.name.label("site"),
            ModelRecord.name.label("name"),
            version.number.label("version"),
            version.kind,
            version.format,
            version.digest,
            version.size_bytes,
            version.file_name,
            version.description,
            version.fingerprint,
            version.state_reason,
            version.state_changed_at,
            version.state_changed_by,
            version.has_card.label("has_card"),
            version.created_at,
            version.created_by,
            # Of a recipe only that there is one; its document can be long.
            RecipeRecord.method,
            signature.key_id,
            signature.origin,
            signature.created_at.label("accepted_at"),
            key.revoked_at,
            key.revocation,
            _lists().label("lists"),
            or_(*(select(mark).where(mark == version.id).exists() for mark in marks)).label(
                "is_marked"
            ),
            *standing_columns(),
        )
        .join(version.model)
        .join(ModelRecord.site)
        .outerjoin(version.recipe)
        .outerjoin(version.statement)
        .outerjoin(signature.key)
        .where(among(version.id, "versions"))
    )


_NO_NUMBER, _NO_TEXT = cast(null(), Integer), cast(null(), Text)
# What a version has several of: a number to order by, and two texts.
_LISTS: dict[str, tuple[Any, ...]] = {
    "labels": (LabelRecord.version_id, _NO_NUMBER, LabelRecord.key, LabelRecord.value),
    "metrics": (
        MetricRecord.version_id,
        _NO_NUMBER,
        MetricRecord.name,
        exact_text(MetricRecord.value),
    ),
    "merge_keys": (
        MergeKeyRecord.version_id,
        _NO_NUMBER,
        MergeKeyRecord.method,
        MergeKeyRecord.key,
    ),
    "parents": (
        ParentRecord.version_id,
        ParentRecord.position,
        ParentRecord.parent_digest,
        _NO_TEXT,
    ),
    "terms": (
        TermRecord.version_id,
        cast(TermRecord.inherited, Integer),
        TermRecord.code,
        TermRecord.detail,
    ),
    "aliases": (AliasRecord.version_id, _NO_NUMBER, AliasRecord.name, _NO_TEXT),
}


def _lists() -> ScalarSelect[Any]:
    """Select all lists of a version as one value: to read one JSON is quicker than six."""
    parts = [
        select(
            literal(name, Text).label("name"),
            number.label("number"),
            first.label("first"),
            second.label("second"),
        )
        .where(version_id == ModelVersionRecord.id)
        .correlate(ModelVersionRecord)
        for name, (version_id, number, first, second) in _LISTS.items()
    ]
    rows = union_all(*parts).subquery("lists").c
    return select(json_rows(rows.name, rows.number, rows.first, rows.second)).scalar_subquery()


@cache
def _whole() -> Select[ModelVersionRecord]:
    return whole_versions().where(among(ModelVersionRecord.id, "versions"))
