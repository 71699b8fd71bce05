"""Make a checked file a version, in one transaction, and notify the sites it concerns."""

import json
from collections.abc import Sequence

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from aggregators.errors import RecipeError
from aggregators.methods import Recipe, parse_recipe
from pool_server.activity.events import NewEvent, write_events
from pool_server.database.records import (
    LabelRecord,
    MergeKeyRecord,
    MetricRecord,
    ModelRecord,
    ModelVersionRecord,
    ParentRecord,
    RecipeRecord,
    TokenRecord,
    UploadRecord,
    now_utc,
)
from pool_server.errors import ConflictError, NotAllowedError, RecipeRefusedError, RefusedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.lineage.flags import flag_published, link_published
from pool_server.lineage.repository import limit_withdrawals
from pool_server.people.sites import require_room
from pool_server.registry import access, repository, terms
from pool_server.registry.withdrawal_status import name_for_site
from pool_server.settings import PoolSettings
from pool_server.signatures.keys import lock_keys
from pool_server.signatures.statements import attach_upload
from pool_server.transfers.checking import CheckedModel
from pool_server.wire.data_use import Term
from pool_server.wire.models import Visibility


def add_version(
    session: Session, caller: Caller, upload: UploadRecord, checked: CheckedModel
) -> ModelVersionRecord:
    """Add the next version of a model, which is made when it is not there yet.

    The same file again gives the version that it became the first time.
    """
    site = upload.site.name
    # Text that is not valid Unicode comes from the file; no listing could show it.
    json.dumps(checked.fingerprint, ensure_ascii=False).encode()
    model = _find_or_make_model(session, upload, site, checked)
    known = repository.find_by_digest(session, model.id, upload.digest)
    if known is not None:
        repository.lock_state(session, known)
    require_target(model, known)
    if known is not None:
        return known
    require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=False)
    version = ModelVersionRecord(
        model=model,
        number=repository.next_number(session, model.id),
        digest=upload.digest,
        size_bytes=upload.size_bytes,
        kind=checked.kind,
        format=checked.format,
        file_name=upload.file_name,
        description=upload.description,
        card=upload.card,
        state=access.DRAFT if upload.as_draft else access.AVAILABLE,
        **checked.fingerprint_columns,
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
    if upload.statement is not None:
        # A key that is being revoked no longer signs anything.
        lock_keys(session, upload.site_id)
    # Inheritance is settled for one family at a time.
    repository.lock_families(session)
    if repository.find_quarantining_actors(session, upload.site_id, version.digest):
        version.state, version.state_reason = access.DRAFT, "the same file is quarantined elsewhere"
    recipe = None if upload.recipe is None else read_recipe(upload.recipe, upload.digest)
    inputs: set[str] = set()
    is_proven = checked.remade and _recipe_proves_origin(session, upload.site_id, version, recipe)
    if not is_proven:
        require_copy_right(session, caller, upload.site_id, version.digest, version.id)
    if recipe is not None:
        followed = is_proven or _claim_is_trusted(session, caller, upload.site_id, version, recipe)
        _add_recipe(session, version, recipe, followed=followed)
        inputs = set(recipe.input_digests) - {version.digest} if followed else set()
    terms.add_terms(
        session,
        upload.site_id,
        version,
        [Term.model_validate(term) for term in upload.terms],
        recipe.input_digests if recipe is not None else (),
        is_proven=is_proven,
    )
    record_act(
        session,
        caller,
        "version.add" if version.state != access.AVAILABLE else "version.publish",
        f"{site}/{model.name}@{version.number}",
        digest=version.digest,
        size_bytes=version.size_bytes,
        state=version.state,
    )
    session.flush()
    if inputs:
        limit_withdrawals(session, upload.site_id, version.digest, inputs)
    flag_published(session, caller, version)
    if recipe is not None:
        if recipe.successor_of is not None:
            # Replaced versions depend on whether this one contains withdrawn inputs.
            repository.get_version(session, version.id)
        link_published(session, caller, version, recipe)
    notify_owners(session, version, recipe)
    attach_upload(session, caller, version, upload)
    return version


def _find_or_make_model(
    session: Session, upload: UploadRecord, site: str, checked: CheckedModel
) -> ModelRecord:
    model = repository.find_model(session, site, upload.model_name)
    if model is None:
        model = ModelRecord(site=upload.site, name=upload.model_name, kind=checked.kind, grants=[])
        if upload.visibility is not None and upload.rights is not None:
            model.visibility, model.rights = upload.visibility, upload.rights
        session.add(model)
        session.flush()
        return model
    # Versions of a model are added one after another, and none while it is deleted.
    repository.lock_model(session, model)
    if model.kind != checked.kind:
        raise ConflictError(
            f"{site}/{model.name} holds models of kind {model.kind}, "
            f"{upload.file_name} is of kind {checked.kind}",
            code="kind_differs",
            hint="Upload it under another name.",
        )
    require_not_wider(model, upload)
    return model


def require_target(
    model: ModelRecord | None,
    version: ModelVersionRecord | None = None,
    visibility: Visibility | None = None,
) -> None:
    """Raise unless a file can become a version of a model, if that is there.

    A deleted model does not come back, nor does its deleted `version` with the file. `visibility`,
    where it is announced, must be that of the model.
    """
    if model is not None and model.deleted_at is not None:
        raise ConflictError(
            f"{model.site.name}/{model.name} was deleted by an earlier release, and stays gone",
            code="model_deleted",
            hint="Upload it under another name.",
        )
    if version is not None and version.state == access.DELETED:
        raise ConflictError(
            f"{version.model.site.name}/{version.model.name} had this file as version "
            f"{version.number}, which was deleted",
            code="wrong_state",
            hint="Upload it under another name.",
        )
    if model is not None and visibility not in {None, model.visibility}:
        address = f"{model.site.name}/{model.name}"
        raise RefusedError(
            f"{address} is there already, with visibility {model.visibility!r}, not {visibility!r}",
            code="sharing_refused",
            hint=f"Visibility is of the whole model: change it with `poolctl models share "
            f"{address}`.",
        )


def _recipe_proves_origin(
    session: Session, site_id: int, version: ModelVersionRecord, recipe: Recipe | None
) -> bool:
    """Return whether remaking a file by its recipe proves how another site's file was made.

    Inputs that came after that file can have been made from it, to give it other parents or to
    pass for its maker.
    """
    elsewhere = repository.oldest_elsewhere(session, site_id, version.digest)
    return (
        recipe is not None
        and elsewhere is not None
        and repository.are_older(session, set(recipe.input_digests) - {version.digest}, elsewhere)
    )


def _claim_is_trusted(
    session: Session, caller: Caller, site_id: int, version: ModelVersionRecord, recipe: Recipe
) -> bool:
    """Return whether families, terms and flags follow a recipe that the pool has not carried out.

    Otherwise any site could, with a made-up recipe for the file of another, lay terms on it, or
    have it flagged by withdrawing an input.
    """
    if caller.has_role("curator"):
        return True
    elsewhere = repository.oldest_elsewhere(session, site_id, version.digest)
    oldest = repository.oldest_of(session, site_id, version.digest)
    if elsewhere is None or oldest < elsewhere:
        return True
    named = set(recipe.input_digests) - {version.digest}
    # Not only some of them: leaving one out would take from its owner the right to withdraw it.
    return named == repository.followed_parents(session, version.digest)


def _add_recipe(
    session: Session, version: ModelVersionRecord, recipe: Recipe, *, followed: bool
) -> None:
    session.add(
        RecipeRecord(
            version_id=version.id, method=recipe.method.name, document=json.loads(recipe.to_json())
        )
    )
    session.add_all(
        ParentRecord(
            version_id=version.id,
            position=position,
            child_digest=version.digest,
            parent_digest=input_.digest,
            weight=input_.weight,
            method=recipe.method.name,
            followed=followed,
        )
        for position, input_ in enumerate(recipe.inputs)
        # A merge of one model may give the same bytes again; that makes nothing its own parent.
        if input_.digest != version.digest
    )


MERGED_EVENT = "version.merged"
HANDED_ON_EVENT = "version.handed-on"
WAITING_EVENT = "version.waiting"
PRIVATE_MERGE = "a private model"


def notify_owners(session: Session, version: ModelVersionRecord, recipe: Recipe | None) -> None:
    """Notify the first publisher of each input of a new version; of a copy, that of its file.

    The event names the site, and the result if the publisher may see it. Nor does it have the
    digest of a merge otherwise: holders of the inputs could find out the others of the merge
    from it.
    """
    kind, word = (HANDED_ON_EVENT, "as") if recipe is None else (MERGED_EVENT, "into")
    digests = [version.digest] if recipe is None else recipe.input_digests
    write_events(
        session,
        [
            NewEvent(
                owned.model.site_id,
                kind,
                owned.address,
                {word: _name_for_owner(owned.model.site_id, version, recipe)}
                | {"by": version.model.site.name},
            )
            for owned in _first_versions(session, digests, version.id)
            if owned.model.site_id != version.model.site_id
        ],
    )


def _name_for_owner(site_id: int, version: ModelVersionRecord, recipe: Recipe | None) -> str:
    name = name_for_site(site_id, version)
    return name if recipe is None or name == version.address else PRIVATE_MERGE


def notify_curators(session: Session, settings: PoolSettings, version: ModelVersionRecord) -> None:
    """Notify the sites of the pool's curators of a draft that only they can publish."""
    if version.state != access.DRAFT or not (settings.curated or version.state_reason):
        return
    curators = select(TokenRecord.site_id).where(
        TokenRecord.pool_wide,
        TokenRecord.role.in_(("curator", "admin")),
        TokenRecord.revoked_at.is_(None),
        or_(TokenRecord.expires_at.is_(None), TokenRecord.expires_at > now_utc()),
    )
    write_events(
        session,
        [
            NewEvent(
                site_id,
                WAITING_EVENT,
                name_for_site(site_id, version),
                {"digest": version.digest, "see": "poolctl models ls --state waiting"},
            )
            for site_id in session.scalars(curators.distinct().order_by(TokenRecord.site_id))
        ],
    )


def _first_versions(
    session: Session, digests: Sequence[str], other_than: int
) -> Sequence[ModelVersionRecord]:
    """Return the oldest version of each file that is not deleted, with its model and site."""
    oldest = (
        select(func.min(ModelVersionRecord.id))
        .where(
            repository.among(ModelVersionRecord.digest, "digests"),
            ModelVersionRecord.state != access.DELETED,
            ModelVersionRecord.id != other_than,
        )
        .group_by(ModelVersionRecord.digest)
    )
    return session.scalars(
        repository.bare_versions()
        .where(ModelVersionRecord.id.in_(oldest))
        .order_by(ModelVersionRecord.id),
        {"digests": list(digests)},
    ).all()


def read_recipe(document: dict[str, object], digest: str) -> Recipe:
    """Read a recipe and make sure that it makes the file of that digest."""
    try:
        recipe = parse_recipe(json.dumps(document))
    except RecipeError as error:
        raise RecipeRefusedError(
            str(error), hint="Send the recipe that `poolctl merge` wrote, as it is."
        ) from error
    promised = recipe.output.digest if recipe.output is not None else None
    if promised != digest:
        raise RecipeRefusedError(
            f"the recipe makes a file with SHA-256 {promised or '(left open)'}, expected {digest}",
            hint="Send the recipe that was written with this very file, or none.",
        )
    return recipe


_WIDTH = (access.PRIVATE, access.SITES, access.CONSORTIUM)


def require_copy_right(
    session: Session, caller: Caller, site_id: int, digest: str, version_id: int | None = None
) -> None:
    """Raise unless a file may become a model of a site, as far as the site knows its owner.

    The site that published it first says so, also of copies. `version_id` is the new version.
    """
    keeper = find_keeper(session, caller, site_id, digest, version_id)
    if keeper is None:
        return
    if "see" in access.rights_of_site(caller.site_id, keeper):
        access.require_right(caller, keeper, "redistribute")
    raise NotAllowedError(
        f"site {caller.site!r} fetched this file from another site, which does not let it be "
        "handed on",
        code="right_missing",
        hint="Ask the site that you have it from for the right `redistribute`.",
    )


def find_keeper(
    session: Session, caller: Caller, site_id: int, digest: str, version_id: int | None = None
) -> ModelRecord | None:
    """Return the model of a file that its owner does not let others hand on; None if they may."""
    original = repository.find_original(session, site_id, digest, other_than=version_id)
    if original is None or original.model.site_id == site_id:
        return None
    return None if access.may(caller, original.model, "redistribute") else original.model


def require_not_wider(model: ModelRecord, upload: UploadRecord) -> None:
    """Raise if a model was made since an upload was announced, and more see it than that said.

    The upload was meant as its first version, and would have set its visibility.
    """
    if upload.visibility is None or model.created_at <= upload.created_at:
        return
    if _WIDTH.index(model.visibility) > _WIDTH.index(upload.visibility):
        address = f"{model.site.name}/{model.name}"
        raise RefusedError(
            f"{address} was made meanwhile, with visibility {model.visibility!r}; the file was "
            f"announced for {upload.visibility!r}",
            code="sharing_refused",
            hint="Upload it under another name, or announce it again for this model.",
        )
