"""Correcting description, labels and metrics; the audit keeps what they were before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete
from sqlalchemy.orm import Session

from pool_server.activity.events.service import NewEvent, write_events
from pool_server.database.records import LabelRecord, MetricRecord, ModelVersionRecord
from pool_server.errors import ConflictError, RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.lineage.withdrawals.repository import downloaders_of
from pool_server.models.access import rights_of_site
from pool_server.models.registry import repository as registry
from pool_server.models.registry.describing import describe_version
from pool_server.models.registry.standing import address_of, subject_of
from pool_server.models.states import PUBLIC, WITHDRAWN
from pool_server.signatures.statements import sign_change
from pool_server.wire.models.curation import DescriptionRequest
from pool_server.wire.models.labels import VOCABULARY
from pool_server.wire.models.models import ModelVersionResponse

CHANGED_EVENT = "version.changed"
_MOST_SHOWN = 200


def require_labels(labels: Mapping[str, str]) -> None:
    """Raise `RefusedError` unless labels of the core vocabulary have values that they can have."""
    if problems := VOCABULARY.problems_of(labels):
        raise RefusedError(
            "; ".join(problems),
            code="labels_refused",
            hint="`poolctl models vocabulary` lists these keys; any other key is free.",
            details={"problems": problems},
        )


def change_description(
    session: Session, caller: Caller, version: ModelVersionRecord, request: DescriptionRequest
) -> ModelVersionResponse:
    """Replace what is said of a version, which was loaded as a whole.

    Raises
    ------
    NotAllowedError, RefusedError, ConflictError
        It is another site's, a label has an impossible value, or the version is withdrawn.
    RefusedError, StatementRefusedError
        The version is signed, and the new description is not.
    """
    caller.require_upload_to(version.model.site.name)
    require_labels(request.labels)
    registry.lock_state(session, version)
    if version.state == WITHDRAWN:
        raise ConflictError(
            "the version is withdrawn; its description stays as it is",
            code="wrong_state",
            details={"found": WITHDRAWN},
        )
    changes = _changes(version, request)
    if not changes:
        return describe_version(session, version.id)
    version.description = request.description
    _replace(session, version, request.labels, request.metrics)
    session.flush()
    session.expire(version)
    version = registry.get_version(session, version.id)
    sign_change(session, caller, version, request.statement)
    record_act(
        session,
        caller,
        "version.change",
        subject_of(version),
        digest=version.digest,
        changes=changes,
    )
    session.flush()
    _tell(session, caller, version, changes)
    session.expire(version)
    return describe_version(session, version.id)


def _changes(version: ModelVersionRecord, request: DescriptionRequest) -> dict[str, list[Any]]:
    """Return what differs, each with what it was and what it is to be."""
    before: dict[str, Any] = {"description": version.description[:_MOST_SHOWN]}
    before |= {f"label {each.key}": each.value for each in version.labels}
    before |= {f"metric {each.name}": each.value for each in version.metrics}
    after: dict[str, Any] = {"description": request.description[:_MOST_SHOWN]}
    after |= {f"label {key}": value for key, value in request.labels.items()}
    after |= {f"metric {name}": value for name, value in request.metrics.items()}
    changes = {
        name: [before.get(name), after.get(name)]
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    }
    if version.description != request.description:
        changes.setdefault("description", [before["description"], after["description"]])
    return changes


def _replace(
    session: Session,
    version: ModelVersionRecord,
    labels: Mapping[str, str],
    metrics: Mapping[str, float],
) -> None:
    for kind in (LabelRecord, MetricRecord):
        session.execute(delete(kind).where(kind.version_id == version.id))
    session.add_all(
        LabelRecord(version_id=version.id, key=key, value=value) for key, value in labels.items()
    )
    session.add_all(
        MetricRecord(version_id=version.id, name=name, value=value)
        for name, value in metrics.items()
    )


def _tell(
    session: Session, caller: Caller, version: ModelVersionRecord, changes: Mapping[str, Any]
) -> None:
    """Tell the owner, if another did it, and sites that downloaded the version and may see it."""
    owner = version.model.site_id
    site_ids = {
        site_id
        for site_id in downloaders_of(session, version.id)
        if version.state in PUBLIC and "see" in rights_of_site(site_id, version.model)
    }
    if caller.site_id != owner:
        site_ids.add(owner)
    details = {"changes": [_words(name, *values) for name, values in changes.items()]}
    write_events(
        session,
        [
            NewEvent(site_id, CHANGED_EVENT, address_of(version), details)
            for site_id in sorted(site_ids)
        ],
    )


def _words(name: str, before: Any, after: Any) -> str:
    if name == "description":
        return name
    return f"{name}: {'none' if before is None else before} -> {'none' if after is None else after}"
