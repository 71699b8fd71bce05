"""Descriptions of versions (text, labels, metrics), their correction, and the vocabulary of labels.

The audit keeps earlier descriptions. Aliases, names of versions that their site may move, are set
here, too.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path
from sqlalchemy import delete
from sqlalchemy.orm import Session

from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import (
    AliasRecord,
    LabelRecord,
    MetricRecord,
    ModelVersionRecord,
    now_utc,
)
from pool_server.errors import ConflictError, MissingError, RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, SignedIn, Uploader, needs
from pool_server.http.parameters import ModelName, SiteName
from pool_server.http.session import ReadingSession, WritingSession
from pool_server.lineage.repository import downloaders_of
from pool_server.registry import access, responses, service, withdrawal_status
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
    subject = withdrawal_status.subject_of(version)
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
            details={"problems": problems},
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
            NewEvent(
                site_id, CHANGED_EVENT, withdrawal_status.address_of(version), {"changes": listed}
            )
            for site_id in sorted(site_ids)
        ],
    )


alias_router = APIRouter(
    prefix="/models/{site}/{name}/aliases", tags=["models"], dependencies=[needs("models:write")]
)

AliasName = Annotated[str, Path(max_length=80, description="Begins with a letter.")]

_ALIAS = re.compile(models.ALIAS_PATTERN)


@alias_router.put("/{alias}", summary="Point an alias at a version")
def set_alias(  # noqa: PLR0917 - FastAPI gives them by name
    caller: Uploader,
    session: WritingSession,
    site: SiteName,
    name: ModelName,
    alias: AliasName,
    request: models.AliasRequest,
) -> models.ModelVersionResponse:
    """Point `site/name@alias` at a version, replacing its previous target.

    Move an alias when a better version arrives. To get the same bytes for ever, use the number or
    the digest.
    """
    model = service.get_model(session, caller, site, name)
    caller.require_upload_to(model.site.name)
    require_alias_name(alias)
    # Locking the model serialises changes of its aliases.
    registry.lock_model(session, model)
    version = service.resolve_version(session, caller, site, name, request.version)
    registry.lock_state(session, version)
    if version.state != access.AVAILABLE:
        raise ConflictError(
            f"{site}/{name}@{version.number} is {version.state}; expected it to be available",
            code="wrong_state",
            hint="An alias must point at a version that others may download.",
            details={"found": version.state, "expected": [access.AVAILABLE]},
        )
    record = session.get(AliasRecord, (version.model_id, alias))
    moved_from = None
    if record is None:
        session.add(AliasRecord(model_id=version.model_id, name=alias, version_id=version.id))
    else:
        moved_from = registry.get_version(session, record.version_id).number
        record.version_id = version.id
        record.changed_at = now_utc()
    record_act(
        session,
        caller,
        "alias.set",
        f"{site}/{name}@{alias}",
        version=version.number,
        moved_from=moved_from,
    )
    session.flush()
    session.expire(version)
    return responses.describe_version(session, version.id, access.viewing_site(caller))


@alias_router.delete("/{alias}", status_code=204, summary="Remove an alias")
def remove_alias(
    caller: Uploader, session: WritingSession, site: SiteName, name: ModelName, alias: AliasName
) -> None:
    """Remove an alias. Its version stays."""
    model = service.get_model(session, caller, site, name)
    caller.require_upload_to(model.site.name)
    registry.lock_model(session, model)
    record = session.get(AliasRecord, (model.id, alias))
    if record is None:
        raise MissingError(
            f"{site}/{name} has no alias {alias!r}",
            code="alias_not_found",
            hint=f"`poolctl models info {site}/{name}` shows those of the newest version.",
        )
    session.delete(record)
    record_act(session, caller, "alias.remove", f"{site}/{name}@{alias}")


def require_alias_name(alias: str) -> None:
    """Raise unless text can be an alias: it must not look like a number or a digest."""
    if alias == models.LATEST:
        raise RefusedError(
            f"{models.LATEST!r} always means the newest version",
            code="alias_refused",
            hint="Choose another name: best, stable.",
        )
    if not _ALIAS.fullmatch(alias):
        raise RefusedError(
            f"{alias[:80]!r} cannot be an alias; expected a letter a-z, then up to 63 of a-z, 0-9, "
            "'.', '_', '-'",
            code="alias_refused",
            hint="For example best, or study-2026.",
        )
