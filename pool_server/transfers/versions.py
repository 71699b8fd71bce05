"""Uploads that become versions of models: permissions, and checks of files.

Knowing a digest proves nothing: it may come from a family tree or a recipe. A site that may not
download a file of the pool must send it, and learns nothing about it: the announcement is
answered as if the file were new.

`pool_server.transfers.publishing` writes the records of accepted files.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from aggregators.methods import Recipe
from pool_server.database.records import (
    DownloadRecord,
    ModelRecord,
    ModelVersionRecord,
    SiteRecord,
    UploadRecord,
)
from pool_server.errors import FormatRefusedError
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.jobs.merging import merge_by_recipe
from pool_server.lineage.flags import require_bytes_not_withdrawn, require_good_standing
from pool_server.models.cards import require_card
from pool_server.models.descriptions import require_labels
from pool_server.registry import access
from pool_server.registry import repository as registry
from pool_server.registry.repository import among, whole_versions
from pool_server.registry.terms import require_terms
from pool_server.settings import PoolSettings
from pool_server.signatures.keys import has_valid_key
from pool_server.signatures.statements import attach_if_fitting, check_upload, require_signature
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.checking import CheckedModel, run_check
from pool_server.transfers.publishing import (
    add_version,
    find_keeper,
    notify_curators,
    read_recipe,
    require_copy_right,
    require_target,
)
from pool_server.transfers.receiving import announce_upload, complete_upload, store_result
from pool_server.wire.models import Visibility
from pool_server.wire.uploads import UploadRequest, VersionDescription


def announce_version(
    parts: ServerParts, caller: Caller, request: UploadRequest
) -> tuple[UploadRecord, bool]:
    """Announce a file that becomes a version; see `announce_upload`."""
    offer = with_canonical_recipe(request)
    admit = partial(_admit, parts=parts, offer=offer)
    return announce_upload(parts, caller, offer, admit, partial(_copy, parts=parts, offer=offer))


def complete_version(parts: ServerParts, caller: Caller, upload_id: str) -> UploadRecord:
    """Make a file a version after all parts have arrived; see `complete_upload`."""
    check, accept = partial(check_version, parts), partial(_accept, parts.settings)
    return complete_upload(parts, caller, upload_id, check, accept)


def store_merged(
    parts: ServerParts, refresh_caller: Callable[[], Caller], request: UploadRequest, file: Path
) -> UploadRecord:
    """Publish a file that the pool has merged for a site; see `store_result`."""
    offer = with_canonical_recipe(request)
    admit = partial(_admit, parts=parts, offer=offer, is_merged=True)
    check, accept = partial(check_merged, parts.settings), partial(_accept, parts.settings)
    return store_result(parts, refresh_caller, offer, file, admit=admit, check=check, accept=accept)


def with_canonical_recipe(request: UploadRequest) -> UploadRequest:
    """Return an announcement with its recipe in canonical form."""
    if request.recipe is None:
        return request
    recipe = json.loads(read_recipe(request.recipe, request.digest).to_json())
    return request.model_copy(update={"recipe": recipe})


def _admit(
    session: Session,
    caller: Caller,
    upload: UploadRecord,
    *,
    parts: ServerParts,
    offer: UploadRequest,
    is_merged: bool = False,
) -> bool:
    """Admit an announced version, as `pool_server.transfers.receiving.Admit`.

    The pool cannot sign for the site: a version that it has merged (`is_merged`) comes unsigned,
    and as a draft where signatures are required. It is a draft, too, if the site has a key:
    readers that know the key refuse unsigned versions.
    """
    upload.model_name = offer.name
    take_description(upload, offer)
    upload.as_draft = arrives_as_draft(parts.settings, caller, on_request=offer.draft) or (
        is_merged and (parts.settings.require_signatures or has_valid_key(session, upload.site_id))
    )
    model = registry.find_model(session, offer.site, offer.name)
    known = None if model is None else registry.find_by_digest(session, model.id, offer.digest)
    require_target(model, known, offer.visibility)
    if offer.recipe is None:
        # Files with a recipe are checked once they have been sent: the pool can repeat it.
        require_bytes_not_withdrawn(session, offer.digest)
    if known is not None:
        if attach_if_fitting(session, caller, known, upload):
            session.expire(known)
            known = registry.get_version(session, known.id)
        # If the storage has lost the file, sending it again restores it. The version does not
        # change, so its description is not checked.
        upload.version_id = known.id if parts.storage.has_content(known.digest) else None
        return upload.version_id is not None
    if not is_merged:
        require_signature(parts.settings, upload)
    check_upload(session, upload)
    require_description(session, upload.site, offer)
    if offer.recipe is not None:
        require_good_standing(
            session,
            {input_["digest"] for input_ in offer.recipe["inputs"]},
            despite_withdrawal=offer.despite_withdrawal,
        )
    # Also for open uploads: a repeated announcement may be the first with a recipe.
    parents = _parents_of(offer)
    homes = registry.visible_homes(session, caller, {offer.digest, *parents})
    if offer.recipe is None:
        require_copy_right(session, caller, upload.site_id, offer.digest)
    require_merge_rights(caller, [homes[parent] for parent in parents if parent in homes])
    upload.visibility = offer.visibility or initial_visibility(
        parts.settings.default_visibility, upload.site_id, homes.values()
    )
    return False


def _copy(
    session: Session,
    caller: Caller,
    upload: UploadRecord,
    *,
    parts: ServerParts,
    offer: UploadRequest,
) -> bool:
    """Make a version of a file that the pool already stores, without sending it again."""
    known = _find_copy(session, caller, upload, offer)
    if known is None:
        return False
    # Versions being deleted cannot be copied; later deletions wait for this lock.
    registry.lock_state(session, known)
    if known.state == access.DELETED or not parts.storage.has_content(known.digest):
        return False
    upload.size_bytes = known.size_bytes
    checked = CheckedModel(
        kind=known.kind,
        format=known.format,
        fingerprint=known.fingerprint | known.fingerprint_lists,
        merge_keys={merge_key.method: merge_key.key for merge_key in known.merge_keys},
    )
    upload.version_id = _accept(parts.settings, session, caller, upload, checked).id
    key = (known.id, upload.site_id)
    if known.model.site_id != upload.site_id and session.get(DownloadRecord, key) is None:
        session.add(DownloadRecord(version_id=known.id, site_id=upload.site_id))
    return True


def check_version(parts: ServerParts, upload: UploadRecord, path: Path) -> CheckedModel:
    """Check a file; if another site has it, too, repeat its recipe."""
    checked = run_check(path, upload.file_name, upload.size_bytes, parts.settings)
    if upload.recipe is None:
        return checked
    with parts.database.read() as session:
        elsewhere = registry.oldest_elsewhere(session, upload.site_id, upload.digest)
    return checked if elsewhere is None else replace(checked, remade=remake(parts, upload))


def check_merged(settings: PoolSettings, upload: UploadRecord, path: Path) -> CheckedModel:
    """Check a file that the pool has merged by the upload's recipe."""
    checked = run_check(path, upload.file_name, upload.size_bytes, settings)
    return replace(checked, remade=True)


def _accept(
    settings: PoolSettings,
    session: Session,
    caller: Caller,
    upload: UploadRecord,
    checked: CheckedModel,
) -> ModelVersionRecord:
    version = add_version(session, caller, upload, checked)
    notify_curators(session, settings, version)
    return version


def _find_copy(
    session: Session, caller: Caller, upload: UploadRecord, offer: UploadRequest
) -> ModelVersionRecord | None:
    """Return a version with the same file that the caller may download."""
    homes = registry.visible_homes(session, caller, {offer.digest}).get(offer.digest, [])
    proves = bool(homes) and _has_to_prove(session, caller, upload, offer)
    copied = [
        model
        for model in homes
        if model.site_id == upload.site_id or (access.may(caller, model, "download") and not proves)
    ]
    return registry.find_by_digest(session, copied[0].id, offer.digest) if copied else None


def _has_to_prove(
    session: Session, caller: Caller, upload: UploadRecord, offer: UploadRequest
) -> bool:
    """Return whether the pool must repeat the file's recipe once it has been sent."""
    if offer.recipe is None:
        return False
    if find_keeper(session, caller, upload.site_id, offer.digest) is not None:
        return True
    return _parents_of(offer) != registry.followed_parents(session, offer.digest)


def require_description(session: Session, site: SiteRecord, request: UploadRequest) -> None:
    """Raise unless the pool accepts the labels, card and terms."""
    require_wording(request)
    require_terms(
        session,
        request.terms,
        {} if request.recipe is None else name_parents(request.recipe, request.digest),
        site=site,
    )


def require_wording(request: VersionDescription) -> None:
    """Raise unless labels and card can be read and are allowed."""
    require_labels(request.labels)
    require_card(request.card)


def name_parents(recipe: dict[str, Any], digest: str) -> dict[str, str]:
    """Return the recipe's name for each input, by digest."""
    return {
        input_["digest"]: input_.get("address") or input_.get("file_name") or input_["digest"][:12]
        for input_ in recipe["inputs"]
        if input_["digest"] != digest
    }


def take_description(upload: UploadRecord, request: UploadRequest) -> None:
    """Store the uploader's present description with an upload."""
    upload.file_name = request.file_name
    upload.description = request.description
    upload.labels = dict(request.labels)
    upload.metrics = dict(request.metrics)
    upload.card = request.card
    upload.terms = [term.model_dump() for term in request.terms]
    upload.recipe = request.recipe
    signed = request.statement
    upload.statement = None if signed is None else signed.model_dump(mode="json")


def arrives_as_draft(settings: PoolSettings, caller: Caller, *, on_request: bool = False) -> bool:
    """Return whether a version becomes a draft: on request, and in a curated pool.

    There only the curators of the pool publish at once.
    """
    return on_request or (settings.curated and not caller.has_role("curator"))


def require_merge_rights(caller: Caller, parents: Iterable[Sequence[ModelRecord]]) -> None:
    """Raise unless the caller may merge every parent that it may see in the pool.

    Parents that it may not see count as unknown. If several models have a parent, the right to
    merge one of them is enough.
    """
    for homes in parents:
        if not any(access.may(caller, model, "merge") for model in homes):
            access.require_right(caller, homes[0], "merge")


def initial_visibility(
    default: Visibility, site_id: int, sources: Iterable[Sequence[ModelRecord]]
) -> Visibility:
    """Return the default visibility of a new model.

    A model made from models that other sites do not share with all is not shown to all by
    default. `sources` are, for each file that it was made from, the models that have it.
    """
    for homes in sources:
        if not any(m.site_id == site_id or m.visibility == access.CONSORTIUM for m in homes):
            return access.PRIVATE
    return default


def _parents_of(offer: UploadRequest) -> set[str]:
    inputs: list[Mapping[str, Any]] = [] if offer.recipe is None else offer.recipe["inputs"]
    return {input_["digest"] for input_ in inputs} - {offer.digest}


def remake(parts: ServerParts, upload: UploadRecord) -> bool:
    """Return whether repeating the recipe of an upload gives its bytes.

    Returns False, too, if the pool cannot repeat it: an input is missing, the site may not merge
    it, or the inputs exceed the pool's limit.
    """
    settings = parts.settings
    recipe = read_recipe(dict(upload.recipe or {}), upload.digest)
    with parts.database.read() as session:
        inputs = _find_inputs(session, upload, recipe)
    size_bytes = sum(inputs.values())
    is_complete = all(input_.digest in inputs for input_ in recipe.inputs)
    if not settings.central_merges or not is_complete or size_bytes > settings.merge_input_bytes:
        return False
    with ScratchFolder(settings.scratch_folder).room() as folder, ExitStack() as stack:
        paths = {
            digest: stack.enter_context(parts.storage.content_file(digest)) for digest in inputs
        }
        activity = f"{upload.file_name}: making it again"
        try:
            made = merge_by_recipe(settings, recipe, paths, folder / "result", activity=activity)
        except FormatRefusedError:
            return False
    return bool(made["accepted"])


def _find_inputs(session: Session, upload: UploadRecord, recipe: Recipe) -> dict[str, int]:
    """Return the sizes of inputs that the site may merge, by digest, without the file itself."""
    versions = session.scalars(
        whole_versions().where(
            among(ModelVersionRecord.digest, "digests"),
            access.readable(upload.site_id, curates=False),
        ),
        {"digests": sorted(set(recipe.input_digests) - {upload.digest})},
    )
    return {
        version.digest: version.size_bytes
        for version in versions
        if (version.state == access.AVAILABLE or version.model.site_id == upload.site_id)
        and "merge" in access.rights_of_site(upload.site_id, version.model)
    }
