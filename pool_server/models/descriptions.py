"""Descriptions of versions (text, labels, metrics), their correction, and the vocabulary of labels.

The audit keeps earlier descriptions.
"""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from sqlalchemy import delete
from sqlalchemy.orm import Session

from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import LabelRecord, MetricRecord, ModelVersionRecord
from pool_server.errors import RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.lineage.repository import downloaders_of
from pool_server.registry import access, responses, service
from pool_server.registry import repository as registry
from pool_server.signatures.statements import add_statement, require_resigned
from pool_server.wire import models
from pool_server.wire.labels import VOCABULARY, VocabularyResponse

router = APIRouter(tags=["models"])

CHANGED_EVENT = "version.changed"


@router.get("/vocabulary", dependencies=[needs()], summary="List the labels and terms")
def vocabulary(caller: SignedIn, session: ReadingSession) -> VocabularyResponse:
    """Return the labels with a fixed meaning at every site, and the terms of use.

    A label of the core vocabulary must have one of its permitted values; any other key is free.
    Terms are the codes of the Data Use Ontology of GA4GH.
    """
    return VOCABULARY.model_copy(update={"keys_in_use": registry.list_label_keys(session, caller)})


@router.put(
    "/models/{site}/{name}/versions/{reference}/description",
    summary="Correct the description of a version",
    dependencies=[needs("models:write")],
)
def change_description(
    caller: Uploader,
    session: WritingSession,
    version: service.VersionToChange,
    request: models.DescriptionRequest,
) -> models.ModelVersionResponse:
    """Replace description, labels and metrics. The file stays as it is.

    Sites that downloaded the version are notified by an event. A signed version needs a new
    statement, because its signature covers them.
    """
    caller.require_upload_to(version.model.site.name)
    require_labels(request.labels)
    service.lock_to_correct(session, version, "description")
    require_resigned(version, request.statement)
    before = _list_fields(
        version.description,
        {label.key: label.value for label in version.labels},
        {metric.name: metric.value for metric in version.metrics},
    )
    after = _list_fields(request.description, request.labels, request.metrics)
    changes = {
        name: [before.get(name), after.get(name)]
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    }
    if not changes:
        return responses.describe_version(session, version.id, access.viewing_site(caller))
    version.description = request.description
    _replace(session, version, request.labels, request.metrics)
    session.flush()
    session.expire(version)
    version = registry.get_version(session, version.id)
    if request.statement is not None:
        add_statement(caller, session, version, request.statement)
    subject = version.subject
    record_act(session, caller, "version.change", subject, digest=version.digest, changes=changes)
    session.flush()
    _notify(session, caller, version, changes)
    session.expire(version)
    return responses.describe_version(session, version.id, access.viewing_site(caller))


def require_labels(labels: Mapping[str, str]) -> None:
    """Raise `RefusedError` unless labels of the core vocabulary have permitted values."""
    if problems := VOCABULARY.problems_of(labels):
        raise RefusedError(
            "; ".join(problems),
            code="labels_refused",
            hint="`poolctl models vocabulary` lists these keys; any other key is free.",
        )


def _list_fields(
    description: str, labels: Mapping[str, str], metrics: Mapping[str, float]
) -> dict[str, object]:
    return {
        "description": description,
        **{f"label {key}": value for key, value in labels.items()},
        **{f"metric {name}": value for name, value in metrics.items()},
    }


def _replace(
    session: Session,
    version: ModelVersionRecord,
    labels: Mapping[str, str],
    metrics: Mapping[str, float],
) -> None:
    for kind in (LabelRecord, MetricRecord):
        session.execute(delete(kind).where(kind.version_id == version.id))
    key = {"version_id": version.id}
    session.add_all(LabelRecord(**key, key=name, value=text) for name, text in labels.items())
    session.add_all(MetricRecord(**key, name=name, value=x) for name, x in metrics.items())


def _notify(
    session: Session, caller: Caller, version: ModelVersionRecord, changes: Mapping[str, Any]
) -> None:
    """Notify the owner, if the caller is not of its site, and downloaders that see the version."""
    owner = version.model.site_id
    site_ids = {
        site_id
        for site_id in downloaders_of(session, version.id)
        if version.state in access.PUBLIC and "see" in access.rights_of_site(site_id, version.model)
    }
    if caller.site_id != owner:
        site_ids.add(owner)
    listed = [
        name if name == "description" else f"{name}: {before} -> {after}"
        for name, (before, after) in changes.items()
    ]
    write_events(
        session,
        [
            NewEvent(site_id, CHANGED_EVENT, version.address, {"changes": listed})
            for site_id in sorted(site_ids)
        ],
    )
