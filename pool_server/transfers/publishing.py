"""Making a checked file a version: all of it in one transaction, or nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sqlalchemy.orm import Session

from pool_server.errors import ModelKindError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.records import (
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    UploadRecord,
)
from pool_server.registry import repository
from pool_server.transfers.checking import CheckedModel
from pool_server.transfers.recipes import read_recipe

if TYPE_CHECKING:
    from aggregators.methods import Recipe


def add_version(
    session: Session, caller: Caller, upload: UploadRecord, site: str, checked: CheckedModel
) -> ModelVersionRecord:
    """Add the next version of a model, which is made when it is not there yet.

    The same file again gives the version that it became the first time.

    Raises
    ------
    ModelKindError
        Earlier versions of the model are of another kind.
    """
    model = _find_or_make_model(session, upload, site, checked)
    known = repository.find_by_digest(session, model.id, upload.digest)
    if known is not None:
        return known
    version = ModelVersionRecord(
        model_id=model.id,
        number=repository.next_number(session, model.id),
        digest=upload.digest,
        size_bytes=upload.size_bytes,
        kind=checked.kind,
        format=checked.format,
        file_name=upload.file_name,
        description=upload.description,
        fingerprint=checked.fingerprint,
        created_by=f"{caller.site}/{caller.token_name}",
        token_id=caller.token_id,
        labels=[LabelRecord(key=key, value=value) for key, value in upload.labels.items()],
        metrics=[MetricRecord(name=name, value=value) for name, value in upload.metrics.items()],
        merge_keys=[
            MergeKeyRecord(method=method, key=key) for method, key in checked.merge_keys.items()
        ],
    )
    session.add(version)
    session.flush()
    if upload.recipe is not None:
        _add_recipe(session, version, read_recipe(upload.recipe, upload.digest))
    record_act(
        session,
        caller,
        "version.publish",
        f"{site}/{model.name}@{version.number}",
        digest=version.digest,
        size_bytes=version.size_bytes,
    )
    session.flush()
    session.expire(version)
    return repository.get_version(session, version.id)


def _find_or_make_model(
    session: Session, upload: UploadRecord, site: str, checked: CheckedModel
) -> ModelRecord:
    model = repository.find_model(session, site, upload.model_name)
    if model is None:
        model = ModelRecord(site_id=upload.site_id, name=upload.model_name, kind=checked.kind)
        session.add(model)
        session.flush()
    elif model.kind != checked.kind:
        raise ModelKindError(
            f"{site}/{model.name} holds models of kind {model.kind}, "
            f"{upload.file_name} is of kind {checked.kind}",
            hint="Upload it under another name.",
            details={"found": checked.kind, "expected": model.kind},
        )
    return model


def _add_recipe(session: Session, version: ModelVersionRecord, recipe: Recipe) -> None:
    session.add(
        RecipeRecord(
            version_id=version.id,
            method=recipe.method.name,
            document=json.loads(recipe.to_json()),
        )
    )
    session.add_all(
        ParentRecord(
            version_id=version.id,
            position=position,
            child_digest=version.digest,
            parent_digest=each.digest,
            weight=each.weight,
            method=recipe.method.name,
        )
        for position, each in enumerate(recipe.inputs)
        # A merge of one model may give the same bytes again; that makes nothing its own parent.
        if each.digest != version.digest
    )
