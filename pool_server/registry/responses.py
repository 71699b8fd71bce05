"""Versions as clients see them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.orm import Session, contains_eager

from pool_server.database import records
from pool_server.http.identity import Caller
from pool_server.registry import withdrawal_status
from pool_server.registry.access import curates_pool, readable, viewing_site
from pool_server.registry.query import MergeKey
from pool_server.registry.repository import among
from pool_server.wire.data_use import label_of
from pool_server.wire.models import ModelVersionResponse

MergeGroups = Sequence[Sequence[MergeKey]]

_RESPONSES = TypeAdapter(list[ModelVersionResponse])


class ListEntry(NamedTuple):
    """One label, metric, merge key, term or parent of a version."""

    key: str
    value: str
    number: float


def describe_versions(
    session: Session, caller: Caller, version_ids: Sequence[int], merge_groups: MergeGroups = ()
) -> list[ModelVersionResponse]:
    """Return the versions with these ids, in this order, that the caller may see.

    `mergeable_by` has only the methods for which a version has a key in every one of
    `merge_groups`.
    """
    if not version_ids:
        return []
    values = {"versions": list(version_ids), "caller_site": caller.site_id}
    rows = session.execute(_readable_rows(curates=curates_pool(caller)), values).all()
    return _describe(session, rows, version_ids, viewing_site(caller), merge_groups)


def describe_version(session: Session, version_id: int, viewer: int | None) -> ModelVersionResponse:
    """Return a version as the site `viewer` sees it; None sees everything."""
    rows = session.execute(
        _rows().add_columns(records.ModelVersionRecord.fingerprint_lists),
        {"versions": [version_id]},
    ).all()
    [described] = _describe(session, rows, [version_id], viewer)
    described.fingerprint |= rows[0].fingerprint_lists
    return described


def _describe(
    session: Session,
    rows: Sequence[sa.Row[*tuple[Any, ...]]],
    version_ids: Sequence[int],
    viewer: int | None,
    merge_groups: MergeGroups = (),
) -> list[ModelVersionResponse]:
    """Describe versions by one query of all their lists; ORM records would take longer."""
    lists = _read_lists(session, [row.id for row in rows])
    marked = [row.id for row in rows if row.is_marked]
    standings = (
        {
            version.id: {
                "withdrawal": version.withdrawal
                and withdrawal_status.describe_withdrawal(version.withdrawal, version),
                "flags": withdrawal_status.flags_of(version, viewer),
                "successors": withdrawal_status.successors_of(version),
            }
            for version in session.scalars(_standings(), {"versions": marked})
        }
        if marked
        else {}
    )
    responses = _RESPONSES.validate_python(
        [
            {
                **row._mapping,
                **standings.get(row.id, {}),
                "labels": {key: value for key, value, _ in lists["labels", row.id]},
                "metrics": {name: number for name, _, number in lists["metrics", row.id]},
                "mergeable_by": _methods(lists["merge_keys", row.id], merge_groups),
                "terms": [
                    {
                        "code": code,
                        "label": label_of(code),
                        "detail": detail,
                        "inherited": bool(inherited),
                    }
                    for code, detail, inherited in lists["terms", row.id]
                ],
                "has_recipe": row.method is not None,
                "parent_digests": list(
                    dict.fromkeys(digest for digest, *_ in lists["parents", row.id])
                ),
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
            for row in rows
        ]
    )
    by_id = {row.id: response for row, response in zip(rows, responses, strict=True)}
    return [by_id[version_id] for version_id in version_ids if version_id in by_id]


def _read_lists(
    session: Session, version_ids: Sequence[int]
) -> Mapping[tuple[str, int], list[ListEntry]]:
    """Return the entries of each list of each version, in the list's order."""
    lists = defaultdict[tuple[str, int], list[ListEntry]](list)
    rows = session.execute(_list_statement(), {"versions": version_ids}).all()
    for name, version_id, _, *entry in sorted(rows, key=itemgetter(2, 3, 4)):
        lists[name, version_id].append(ListEntry(*entry))
    return lists


def _methods(keys: Sequence[ListEntry], groups: MergeGroups) -> list[str]:
    """Return the methods of `keys`; with groups, those that have a key in every group."""
    if not groups:
        return [key.key for key in keys]
    version_keys = {MergeKey(method, key) for method, key, _ in keys}
    return [
        method
        for method, *_ in keys
        if all(method in {key.method for key in version_keys & set(group)} for group in groups)
    ]


# Building one of these statements takes longer than running it.


@cache
def _rows() -> sa.Select[*tuple[Any, ...]]:
    version, signature, key = (
        records.ModelVersionRecord,
        records.StatementRecord,
        records.SiteKeyRecord,
    )
    marks = (
        records.WithdrawalRecord.version_id,
        records.WithdrawalFlagRecord.version_id,
        records.SuccessorRecord.version_id,
    )
    return (
        sa.select(
            version.id,
            records.SiteRecord.name.label("site"),
            records.ModelRecord.name.label("name"),
            records.ModelRecord.visibility,
            version.number.label("version"),
            version.kind,
            version.format,
            version.digest,
            version.size_bytes,
            version.file_name,
            version.description,
            version.fingerprint,
            version.state,
            version.state_reason,
            version.state_changed_at,
            version.state_changed_by,
            version.has_card.label("has_card"),
            version.created_at,
            version.created_by,
            # Only the method, which shows that a recipe exists; its document can be long.
            records.RecipeRecord.method,
            signature.key_id,
            signature.origin,
            signature.created_at.label("accepted_at"),
            key.revoked_at,
            key.revocation,
            sa.or_(*(sa.exists().where(mark == version.id) for mark in marks)).label("is_marked"),
        )
        .join(version.model)
        .join(records.ModelRecord.site)
        .outerjoin(version.recipe)
        .outerjoin(version.statement)
        .outerjoin(signature.key)
        .where(among(version.id, "versions"))
    )


@cache
def _readable_rows(*, curates: bool) -> sa.Select[*tuple[Any, ...]]:
    return _rows().where(readable(sa.bindparam("caller_site", type_=sa.Integer), curates=curates))


@cache
def _list_statement() -> sa.CompoundSelect[*tuple[Any, ...]]:
    """Select the entries of all lists of versions in columns common to all lists."""
    no_text, no_number = sa.literal("", sa.Text), sa.literal(0.0, sa.Double)
    label, metric, term = records.LabelRecord, records.MetricRecord, records.TermRecord
    merge_key, parent = records.MergeKeyRecord, records.ParentRecord
    # Parents are ordered by position, all others by name.
    position, by_name = parent.position, sa.literal(0, sa.Integer)
    inherited = sa.case((term.inherited, 1.0), else_=0.0)
    columns: dict[str, tuple[Any, Any, Any, Any, Any]] = {
        "labels": (label.version_id, by_name, label.key, label.value, no_number),
        "metrics": (metric.version_id, by_name, metric.name, no_text, metric.value),
        "merge_keys": (merge_key.version_id, by_name, merge_key.method, merge_key.key, no_number),
        "terms": (term.version_id, by_name, term.code, term.detail, inherited),
        "parents": (parent.version_id, position, parent.parent_digest, no_text, no_number),
    }
    return sa.union_all(
        *(
            sa.select(
                sa.literal_column(f"'{name}'", sa.Text).label("list"),
                version_id.label("version_id"),
                place.label("place"),
                key.label("key"),
                value.label("value"),
                number.label("number"),
            ).where(among(version_id, "versions"))
            for name, (version_id, place, key, value, number) in columns.items()
        )
    )


@cache
def _standings() -> sa.Select[records.ModelVersionRecord]:
    """Select versions with their standing."""
    return (
        sa.select(records.ModelVersionRecord)
        .join(records.ModelVersionRecord.model)
        .options(
            contains_eager(records.ModelVersionRecord.model).joinedload(records.ModelRecord.site),
            *withdrawal_status.standing_options(),
        )
        .where(among(records.ModelVersionRecord.id, "versions"))
    )
