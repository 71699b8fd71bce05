"""Beginning an upload, or finding that it need not begin."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from pool_server.database.engine import wait_for_turn, write_with_retry
from pool_server.database.records import (
    DownloadRecord,
    ModelVersionRecord,
    SiteRecord,
    UploadRecord,
    now_utc,
)
from pool_server.errors import ConflictError, TooLargeError, UploadClosedError
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.lineage.withdrawals.flagging import (
    require_bytes_not_withdrawn,
    require_good_standing,
)
from pool_server.models.access import PRIVATE, may
from pool_server.models.registry import repository as registry
from pool_server.models.states import DELETED
from pool_server.people.sites.quotas import require_room
from pool_server.people.sites.repository import get_site
from pool_server.settings import PoolSettings
from pool_server.signatures.statements import (
    attach_if_fitting,
    check_upload,
    require_signature,
)
from pool_server.transfers import repository
from pool_server.transfers.checking import CheckedModel
from pool_server.transfers.descriptions import (
    arrives_as_draft,
    read_recipe,
    require_description,
    take_description,
)
from pool_server.transfers.notifying import tell_curators
from pool_server.transfers.permissions import (
    begins_as,
    find_keeper,
    require_copy_right,
    require_merge_rights,
    require_visibility,
)
from pool_server.transfers.plan import PartPlan
from pool_server.transfers.publishing import add_version, require_not_deleted
from pool_server.transfers.service import describe_upload
from pool_server.wire.models.sharing import Visibility
from pool_server.wire.transfers.uploads import UploadRequest, UploadResponse, UploadState


def announce_upload(
    parts: ServerParts, caller: Caller, request: UploadRequest, *, made_here: bool = False
) -> tuple[UploadResponse, bool]:
    """Begin an upload, or find the one under way, or find that nothing need be sent.

    Parameters
    ----------
    made_here : bool
        The pool made the file, and cannot sign it for the site: where signatures are demanded it
        becomes a draft, which the site can sign and publish.

    Returns
    -------
    UploadResponse
    bool
        True when something new was made.
    """
    caller.require_upload_to(request.site)
    require_size(parts.settings, request.file_name, request.size_bytes)
    recipe = None
    if request.recipe is not None:
        recipe = json.loads(read_recipe(request.recipe, request.digest).to_json())
    announcement = Announcement(parts, caller, request, recipe, made_here)
    return write_with_retry(parts.database, announcement.settle)


@dataclass(frozen=True)
class Announcement:
    """What a client says of a file, with its recipe in the canonical form."""

    parts: ServerParts
    caller: Caller
    request: UploadRequest
    recipe: dict[str, Any] | None
    made_here: bool = False

    def settle(self, session: Session) -> tuple[UploadResponse, bool]:
        """Find the upload or the version that answers the announcement, or make it."""
        request = self.request
        site = get_site(session, request.site)
        model = registry.find_model(session, site.name, request.name)
        known = (
            None if model is None else registry.find_by_digest(session, model.id, request.digest)
        )
        announced = self._new_upload(site, "receiving")
        require_not_deleted(model, known)
        require_visibility(model, request.visibility)
        if self.recipe is None:
            # Of a file that the pool can make again, it is asked when it has been sent.
            require_bytes_not_withdrawn(session, request.digest)
        if known:
            if attach_if_fitting(session, self.caller, known, announced):
                session.expire(known)
                known = registry.get_version(session, known.id)
            if not self.parts.storage.has_content(known.digest):
                return self._receive_again(session, announced)
            return self._answer_complete(session, self._new_upload(site, "complete"), known), False
        if not self.made_here:
            require_signature(self.parts.settings, announced)
        check_upload(session, announced)
        require_description(session, site, request, self.recipe)
        if self.recipe is not None:
            require_good_standing(
                session,
                {each["digest"] for each in self.recipe["inputs"]},
                despite_withdrawal=request.despite_withdrawal,
            )
        # Also of what is under way: the recipe may only be said now.
        elsewhere, visibility = self._settle_rights(session, site)
        upload = find_resumable(self.parts, session, site.id, AnnouncedFile.of(request))
        if upload is not None:
            self._describe_anew(upload, visibility)
            return describe_upload(self.parts, upload), False
        announced.visibility = visibility
        if elsewhere is not None and self._stays(session, elsewhere):
            announced.state = repository.COMPLETE
            return self._publish_known(session, announced, elsewhere), True
        return begin_upload(self.parts, session, announced), True

    def _receive_again(
        self, session: Session, announced: UploadRecord
    ) -> tuple[UploadResponse, bool]:
        """Receive the file of a known version that the storage has lost.

        To complete the upload puts the file back; of the version nothing changes, so nothing is
        asked of the description either.
        """
        file = AnnouncedFile.of(self.request)
        upload = find_resumable(self.parts, session, announced.site_id, file)
        if upload is not None:
            upload.expires_at = now_utc() + self.parts.settings.upload_lifetime
            return describe_upload(self.parts, upload), False
        return begin_upload(self.parts, session, announced), True

    def _stays(self, session: Session, copied: ModelVersionRecord) -> bool:
        """Tell whether the file of a version is there, and keep it from being cleared up.

        A version that is being deleted gives no copy; a deletion from now on waits for the copy.
        """
        registry.lock_state(session, copied)
        return copied.state != DELETED and self.parts.storage.has_content(copied.digest)

    @property
    def _is_draft(self) -> bool:
        settings = self.parts.settings
        if self.made_here and settings.require_signatures:
            return True
        return arrives_as_draft(settings, self.caller, on_request=self.request.draft)

    def _settle_rights(
        self, session: Session, site: SiteRecord
    ) -> tuple[ModelVersionRecord | None, Visibility]:
        """Return a version with the same file to copy, and who is to see the new model.

        Nothing is copied that the caller may not download.

        Raises
        ------
        NotAllowedError
            A parent may be seen but not merged, or the file itself seen but not handed on.
        """
        digest = self.request.digest
        inputs = [] if self.recipe is None else self.recipe["inputs"]
        parents = {each["digest"] for each in inputs} - {digest}
        homes = registry.visible_homes(session, self.caller, {digest, *parents})
        if self.recipe is None:
            require_copy_right(session, self.caller, site.id, digest)
        require_merge_rights(self.caller, [homes[each] for each in parents if each in homes])
        proves = self._has_to_prove(session, site, parents)
        copied = [
            model
            for model in homes.get(digest, [])
            if model.site_id == site.id or (may(self.caller, model, "download") and not proves)
        ]
        return (
            registry.find_by_digest(session, copied[0].id, digest) if copied else None,
            self.request.visibility
            or begins_as(self.parts.settings.default_visibility, site.id, homes.values()),
        )

    def _has_to_prove(self, session: Session, site: SiteRecord, parents: set[str]) -> bool:
        """Tell whether the pool makes the file again by its recipe, once it has been sent."""
        if self.recipe is None or self.made_here:
            return self.made_here
        digest = self.request.digest
        keeper = find_keeper(session, self.caller, site.id, digest)
        return keeper is not None or not parents <= registry.followed_parents(session, digest)

    def _describe_anew(self, upload: UploadRecord, visibility: Visibility) -> None:
        """Take over what the client says now of a file that is under way."""
        upload.expires_at = now_utc() + self.parts.settings.upload_lifetime
        if upload.state == repository.RECEIVING:
            take_description(upload, self.request, self.recipe)
            upload.as_draft = self._is_draft
            if self.request.visibility is not None or visibility == PRIVATE:
                upload.visibility = visibility

    def _publish_known(
        self, session: Session, upload: UploadRecord, known: ModelVersionRecord
    ) -> UploadResponse:
        """Make a version of a file that the pool has elsewhere: nothing is sent again."""
        upload.size_bytes = known.size_bytes
        checked = CheckedModel(
            kind=known.kind,
            format=known.format,
            fingerprint=known.fingerprint | known.fingerprint_lists,
            merge_keys={each.method: each.key for each in known.merge_keys},
        )
        version = add_version(session, self.caller, upload, upload.site.name, checked)
        tell_curators(session, self.parts.settings, version)
        key = (known.id, upload.site_id)
        if known.model.site_id != upload.site_id and session.get(DownloadRecord, key) is None:
            session.add(DownloadRecord(version_id=known.id, site_id=upload.site_id))
        return self._answer_complete(session, upload, version)

    def _answer_complete(
        self, session: Session, upload: UploadRecord, version: ModelVersionRecord
    ) -> UploadResponse:
        upload.version_id = version.id
        session.add(upload)
        session.flush()
        return describe_upload(self.parts, upload, version)

    def _new_upload(self, site: SiteRecord, state: UploadState) -> UploadRecord:
        request = self.request
        upload = new_upload(self.parts, self.caller, site, AnnouncedFile.of(request), state)
        take_description(upload, request, self.recipe)
        upload.as_draft = self._is_draft
        return upload


@dataclass(frozen=True)
class AnnouncedFile:
    """A file that is to come: for a model of that name, or whatever `purpose` says."""

    model_name: str
    digest: str
    size_bytes: int
    file_name: str
    purpose: str = "version"

    @classmethod
    def of(cls, request: UploadRequest, purpose: str = "version") -> AnnouncedFile:
        return cls(request.name, request.digest, request.size_bytes, request.file_name, purpose)


def require_size(settings: PoolSettings, file_name: str, size_bytes: int) -> None:
    """Raise `TooLargeError` for a file that is larger than this pool takes."""
    if size_bytes > settings.max_model_bytes:
        raise TooLargeError(
            f"{file_name} has {size_bytes:,} bytes; this pool takes models of up "
            f"to {settings.max_model_bytes:,}",
            hint="The pool's admin sets POOL_SERVER_MAX_MODEL_BYTES.",
        )


def new_upload(
    parts: ServerParts, caller: Caller, site: SiteRecord, file: AnnouncedFile, state: UploadState
) -> UploadRecord:
    """Return a record that is not stored yet."""
    settings = parts.settings
    plan = PartPlan.choose(file.size_bytes, settings.part_bytes)
    upload_id = secrets.token_hex(16)
    return UploadRecord(
        id=upload_id,
        site=site,
        site_id=site.id,
        token_id=caller.token_id,
        model_name=file.model_name,
        purpose=file.purpose,
        digest=file.digest,
        size_bytes=file.size_bytes,
        part_bytes=plan.part_bytes,
        file_name=file.file_name,
        description="",
        labels={},
        metrics={},
        visibility=settings.default_visibility,
        rights=settings.rights_of_new_models,
        storage_handle="",
        state=state,
        created_at=now_utc(),
        expires_at=now_utc() + settings.upload_lifetime,
    )


def find_resumable(
    parts: ServerParts, session: Session, site_id: int, file: AnnouncedFile
) -> UploadRecord | None:
    """Return the upload of this file to this place that is under way, and can be gone on with.

    One that cannot is over: of two sizes only one can be that of a file with this digest, and
    whoever looks after the storage may have cleared parts away that lay there for long.
    """
    upload = repository.find_open(session, site_id, file.model_name, file.digest, file.purpose)
    if upload is None:
        return None
    goes_on = upload.size_bytes == file.size_bytes
    if goes_on and upload.state == repository.RECEIVING:
        try:
            parts.storage.received_parts(upload.storage_handle)
        except UploadClosedError:
            goes_on = False
    if not goes_on:
        upload.state = repository.EXPIRED
        session.flush()
        return None
    return upload


def begin_upload(parts: ServerParts, session: Session, upload: UploadRecord) -> UploadResponse:
    """Store a new upload and make room for its parts."""
    most = parts.settings.max_open_uploads_per_site
    wait_for_turn(session, f"uploads of site {upload.site_id}")
    if repository.count_open(session, upload.site) >= most:
        raise ConflictError(
            f"site {upload.site.name!r} has {most} uploads under way, which is the most allowed",
            code="too_many_uploads",
            hint="Complete some, or give them up: `poolctl uploads ls` lists them, "
            "`poolctl uploads abort` ends them; stale ones are cleared away by themselves.",
        )
    require_room(session, upload.site_id, upload.digest, upload.size_bytes, announced=True)
    upload.storage_handle = parts.storage.begin(
        upload.id, size_bytes=upload.size_bytes, part_bytes=upload.part_bytes
    )
    session.add(upload)
    session.flush()
    return describe_upload(parts, upload)
