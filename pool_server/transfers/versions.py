"""Uploads that become versions of models: permissions, and checks of files.

`pool_server.transfers.publishing` writes the records of accepted files.
"""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy.orm import Session

from aggregators.methods import Recipe
from pool_server.database.records import DownloadRecord, ModelVersionRecord, UploadRecord
from pool_server.errors import FormatRefusedError
from pool_server.http.session import ServerParts
from pool_server.jobs.merging import merge_by_recipe
from pool_server.lineage.flags import require_bytes_not_withdrawn, require_good_standing
from pool_server.registry import repository as registry
from pool_server.registry.access import AVAILABLE, DELETED, PRIVATE, may, readable, rights_of_site
from pool_server.registry.repository import among, whole_versions
from pool_server.signatures.statements import attach_if_fitting, check_upload, require_signature
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers import conditions
from pool_server.transfers.checking import CheckedModel, run_check
from pool_server.transfers.destination import Announcement, Arrival, Destination
from pool_server.transfers.publishing import add_version, notify_curators, require_not_deleted
from pool_server.wire.uploads import UploadRequest


def with_canonical_recipe(request: UploadRequest) -> UploadRequest:
    """Return an announcement with its recipe in canonical form."""
    if request.recipe is None:
        return request
    recipe = json.loads(conditions.read_recipe(request.recipe, request.digest).to_json())
    return request.model_copy(update={"recipe": recipe})


@dataclass(frozen=True)
class Versions(Destination[UploadRequest, CheckedModel]):
    """Versions of models, from files that sites send."""

    purpose: ClassVar[str] = "version"
    action: ClassVar[str] = "version.publish"

    def fill_in(self, announced: Announcement[UploadRequest]) -> None:
        upload, offer = announced.upload, announced.offer
        upload.model_name = offer.name
        conditions.take_description(upload, offer)
        upload.as_draft = self._arrives_as_draft(announced)

    def admit(self, session: Session, announced: Announcement[UploadRequest]) -> bool:
        caller, upload, offer = announced.caller, announced.upload, announced.offer
        model = registry.find_model(session, offer.site, offer.name)
        known = None if model is None else registry.find_by_digest(session, model.id, offer.digest)
        require_not_deleted(model, known)
        conditions.require_visibility(model, offer.visibility)
        if offer.recipe is None:
            # Files with a recipe are checked once they have been sent: the pool can repeat it.
            require_bytes_not_withdrawn(session, offer.digest)
        if known is not None:
            if attach_if_fitting(session, caller, known, upload):
                session.expire(known)
                known = registry.get_version(session, known.id)
            # If the storage has lost the file, sending it again restores it. The version does not
            # change, so its description is not checked.
            upload.version_id = known.id if self.parts.storage.has_content(known.digest) else None
            return upload.version_id is not None
        self._require_signed(upload)
        check_upload(session, upload)
        conditions.require_description(session, upload.site, offer)
        if offer.recipe is not None:
            require_good_standing(
                session,
                {input_["digest"] for input_ in offer.recipe["inputs"]},
                despite_withdrawal=offer.despite_withdrawal,
            )
        # Also for open uploads: a repeated announcement may be the first with a recipe.
        self._settle_rights(session, announced)
        return False

    def accept_copy(self, session: Session, announced: Announcement[UploadRequest]) -> bool:
        """Make a version of a file that the pool already stores, without sending it again."""
        upload, known = announced.upload, self._find_copy(session, announced)
        if known is None:
            return False
        # Versions being deleted cannot be copied; later deletions wait for this lock.
        registry.lock_state(session, known)
        if known.state == DELETED or not self.parts.storage.has_content(known.digest):
            return False
        upload.size_bytes = known.size_bytes
        checked = CheckedModel(
            kind=known.kind,
            format=known.format,
            fingerprint=known.fingerprint | known.fingerprint_lists,
            merge_keys={merge_key.method: merge_key.key for merge_key in known.merge_keys},
        )
        upload.version_id = self.accept(session, Arrival(announced.caller, upload, checked)).id
        key = (known.id, upload.site_id)
        if known.model.site_id != upload.site_id and session.get(DownloadRecord, key) is None:
            session.add(DownloadRecord(version_id=known.id, site_id=upload.site_id))
        return True

    def renew(self, upload: UploadRecord, announced: Announcement[UploadRequest]) -> None:
        conditions.take_description(upload, announced.offer)
        upload.as_draft = announced.upload.as_draft
        # A repeated announcement widens the visibility only if it states one.
        if announced.offer.visibility is not None or announced.upload.visibility == PRIVATE:
            upload.visibility = announced.upload.visibility

    def check(self, upload: UploadRecord, path: Path) -> CheckedModel:
        """Check a file; if another site has it, too, repeat its recipe."""
        checked = run_check(path, upload.file_name, upload.size_bytes, self.parts.settings)
        if upload.recipe is None:
            return checked
        with self.parts.database.read() as session:
            elsewhere = registry.oldest_elsewhere(session, upload.site_id, upload.digest)
        return checked if elsewhere is None else replace(checked, remade=remake(self.parts, upload))

    def accept(self, session: Session, arrived: Arrival[CheckedModel]) -> ModelVersionRecord:
        version = add_version(session, arrived.caller, arrived.upload, arrived.checked)
        notify_curators(session, self.parts.settings, version)
        return version

    def _arrives_as_draft(self, announced: Announcement[UploadRequest]) -> bool:
        settings, on_request = self.parts.settings, announced.offer.draft
        return conditions.arrives_as_draft(settings, announced.caller, on_request=on_request)

    def _require_signed(self, upload: UploadRecord) -> None:
        require_signature(self.parts.settings, upload)

    def _settle_rights(self, session: Session, announced: Announcement[UploadRequest]) -> None:
        """Check the rights to the inputs, and set the visibility of the new model."""
        caller, upload, offer = announced.caller, announced.upload, announced.offer
        parents = _parents_of(offer)
        homes = registry.visible_homes(session, caller, {offer.digest, *parents})
        if offer.recipe is None:
            conditions.require_copy_right(session, caller, upload.site_id, offer.digest)
        conditions.require_merge_rights(
            caller, [homes[parent] for parent in parents if parent in homes]
        )
        upload.visibility = offer.visibility or conditions.initial_visibility(
            self.parts.settings.default_visibility, upload.site_id, homes.values()
        )

    def _find_copy(
        self, session: Session, announced: Announcement[UploadRequest]
    ) -> ModelVersionRecord | None:
        """Return a version with the same file that the caller may download."""
        caller, upload, offer = announced.caller, announced.upload, announced.offer
        homes = registry.visible_homes(session, caller, {offer.digest}).get(offer.digest, [])
        proves = bool(homes) and self._has_to_prove(session, announced)
        copied = [
            model
            for model in homes
            if model.site_id == upload.site_id or (may(caller, model, "download") and not proves)
        ]
        return registry.find_by_digest(session, copied[0].id, offer.digest) if copied else None

    def _has_to_prove(self, session: Session, announced: Announcement[UploadRequest]) -> bool:
        """Return whether the pool must repeat the file's recipe once it has been sent."""
        offer = announced.offer
        if offer.recipe is None:
            return False
        keeper = conditions.find_keeper(
            session, announced.caller, announced.upload.site_id, offer.digest
        )
        if keeper is not None:
            return True
        return _parents_of(offer) != registry.followed_parents(session, offer.digest)


@dataclass(frozen=True)
class MergedVersions(Versions):
    """Versions that the pool has merged for a site."""

    def check(self, upload: UploadRecord, path: Path) -> CheckedModel:
        return check_merged(self, upload, path)

    def _arrives_as_draft(self, announced: Announcement[UploadRequest]) -> bool:
        # The pool cannot sign for the site: where signatures are required, the site signs the
        # draft and publishes it.
        is_unsigned = self.parts.settings.require_signatures
        return is_unsigned or super()._arrives_as_draft(announced)

    def _require_signed(self, upload: UploadRecord) -> None:
        """Accept the unsigned version, which is a draft where signatures are required."""


def check_merged(
    destination: Destination[Any, Any], upload: UploadRecord, path: Path
) -> CheckedModel:
    """Check a file that the pool has merged by the upload's recipe."""
    settings = destination.parts.settings
    checked = run_check(path, upload.file_name, upload.size_bytes, settings)
    return replace(checked, remade=True)


def _parents_of(offer: UploadRequest) -> set[str]:
    inputs: list[Mapping[str, Any]] = [] if offer.recipe is None else offer.recipe["inputs"]
    return {input_["digest"] for input_ in inputs} - {offer.digest}


# Repeating merges to verify that recipes give the sent bytes.
def remake(parts: ServerParts, upload: UploadRecord) -> bool:
    """Return whether repeating the recipe of an upload gives its bytes.

    Returns False, too, if the pool cannot repeat it: an input is missing, the site may not merge
    it, or the inputs exceed the pool's limit.
    """
    settings = parts.settings
    recipe = conditions.read_recipe(dict(upload.recipe or {}), upload.digest)
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
            among(ModelVersionRecord.digest, "digests"), readable(upload.site_id, curates=False)
        ),
        {"digests": sorted(set(recipe.input_digests) - {upload.digest})},
    )
    return {
        version.digest: version.size_bytes
        for version in versions
        if _may_merge(upload.site_id, version)
    }


def _may_merge(site_id: int, version: ModelVersionRecord) -> bool:
    is_there = version.state == AVAILABLE or version.model.site_id == site_id
    return is_there and "merge" in rights_of_site(site_id, version.model)
