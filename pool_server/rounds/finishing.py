"""The end of a round: its result is published, the round closed, and the next one opened.

All three happen in one transaction. Of several processes that bring a result at once, the first
ends the round; the others are told its result.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sqlalchemy.orm import Session

from pool_server.database.engine import write_with_retry
from pool_server.database.records import (
    ModelVersionRecord,
    RoundRecord,
    SiteRecord,
    UploadRecord,
    now_utc,
)
from pool_server.errors import RecipeRefusedError, RoundClosedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.models.access import CONSORTIUM
from pool_server.models.registry import repository as registry
from pool_server.models.sharing.service import share_alike
from pool_server.people.sites.repository import get_site
from pool_server.rounds import repository, service
from pool_server.rounds.contributing import get_upload_of, round_of
from pool_server.rounds.methods import find_round_method
from pool_server.signatures.statements import check_upload, require_signature
from pool_server.transfers import repository as uploads
from pool_server.transfers.announcing import (
    AnnouncedFile,
    begin_upload,
    find_resumable,
    new_upload,
    require_size,
)
from pool_server.transfers.checking import CheckedModel, run_check
from pool_server.transfers.completing import Destination, complete_upload
from pool_server.transfers.descriptions import read_recipe, require_description, take_description
from pool_server.transfers.publishing import add_version
from pool_server.transfers.service import describe_upload
from pool_server.wire.rounds import ResultRequest
from pool_server.wire.transfers.uploads import UploadResponse, UploadState

PURPOSE = "result"


def announce_result(
    parts: ServerParts, caller: Caller, key: str, request: ResultRequest
) -> tuple[UploadResponse, bool]:
    """Begin to receive the model that came out of a round.

    When the round has been finished meanwhile, the answer is complete at once and has the version
    that it was finished with.

    Returns
    -------
    UploadResponse
    bool
        True when something new was made.

    Raises
    ------
    ConflictError, RoundClosedError
        It cannot be finished now, or not any more.
    RecipeRefusedError
        The recipe does not combine the base with all contributions of the round.
    StatementRefusedError, RefusedError
        The signature does not hold, or is missing at a pool that demands one.
    """
    caller.require_upload_to(request.site)
    with parts.database.read() as session:
        found = service.get_round(session, caller, key)
    require_size(parts.settings, request.file_name, request.size_bytes)
    announcement = ResultAnnouncement(parts, caller, request, found.id)
    return write_with_retry(parts.database, announcement.settle)


@dataclass(frozen=True)
class ResultAnnouncement:
    """What a client says of the model that it combined."""

    parts: ServerParts
    caller: Caller
    request: ResultRequest
    round_id: int

    def settle(self, session: Session) -> tuple[UploadResponse, bool]:
        """Find the upload or the result that answers the announcement, or make the upload."""
        current = repository.lock_round(session, self.round_id)
        site = get_site(session, self.request.site)
        if current.state == repository.FINISHED:
            return self._answer_finished(session, site, current), False
        service.require_finishable(current)
        require_recipe_of(current, self.request.recipe, self.request.digest)
        require_description(session, site, self.request, self.request.recipe)
        return self._receive(session, site, current)

    def _receive(
        self, session: Session, site: SiteRecord, current: RoundRecord
    ) -> tuple[UploadResponse, bool]:
        request = self.request
        file = AnnouncedFile.of(request, PURPOSE)
        announced = self._new_upload(site, current, file)
        self._describe(announced, current)
        require_signature(self.parts.settings, announced)
        check_upload(session, announced)
        upload = find_resumable(self.parts, session, site.id, file)
        if upload is None:
            return begin_upload(self.parts, session, announced), True
        upload.expires_at = now_utc() + self.parts.settings.upload_lifetime
        if upload.state == uploads.RECEIVING:
            upload.round_id = current.id
            self._describe(upload, current)
        return describe_upload(self.parts, upload), False

    def _describe(self, upload: UploadRecord, current: RoundRecord) -> None:
        request = self.request
        base = current.base_version.model
        if request.visibility is not None or base.visibility != CONSORTIUM:
            # What came out of a round is shown to nobody who may not see what went in.
            upload.visibility = request.visibility or base.visibility
        recipe = json.loads(read_recipe(request.recipe, request.digest).to_json())
        take_description(upload, request, recipe)

    def _answer_finished(
        self, session: Session, site: SiteRecord, finished: RoundRecord
    ) -> UploadResponse:
        version = _result_of(session, finished)
        file = AnnouncedFile(
            self.request.name, version.digest, version.size_bytes, version.file_name, PURPOSE
        )
        upload = self._new_upload(site, finished, file, "complete")
        upload.version_id = version.id
        session.add(upload)
        session.flush()
        return describe_upload(self.parts, upload, version)

    def _new_upload(
        self,
        site: SiteRecord,
        current: RoundRecord,
        file: AnnouncedFile,
        state: UploadState = "receiving",
    ) -> UploadRecord:
        upload = new_upload(self.parts, self.caller, site, file, state)
        upload.round_id = current.id
        return upload


def complete_result(parts: ServerParts, caller: Caller, key: str, upload_id: str) -> UploadResponse:
    """Check a result whose parts are all there, publish it, and end the round.

    Raises
    ------
    ConflictError, RoundClosedError, RecipeRefusedError
        As for `announce_result`, should things have changed.
    """
    with parts.database.read() as session:
        found = service.get_round(session, caller, key)
        get_upload_of(session, caller, found, upload_id)
    return complete_upload(parts, caller, upload_id, RESULT)


def require_recipe_of(found: RoundRecord, document: dict[str, object], digest: str) -> None:
    """Raise unless a recipe combines this round's base with exactly its contributions.

    Raises
    ------
    RecipeRefusedError
        Names what is missing, unknown, or of another method.
    """
    recipe = read_recipe(document, digest)
    method = (recipe.method.name, recipe.method.version)
    if method != (found.method, found.method_version):
        raise RecipeRefusedError(
            f"the recipe is one of {method[0]} version {method[1]}, the round is held with "
            f"{found.method} version {found.method_version}",
            hint="Combine with the poolctl that the pool runs, or let the pool do it.",
        )
    if recipe.options:
        raise RecipeRefusedError(
            f"the recipe has options ({', '.join(recipe.options)}); combining a round has none"
        )
    # Counted: two sites may well contribute the same bytes, and both count.
    wanted = Counter([found.base_version.digest, *(each.digest for each in found.contributions)])
    inputs = Counter(each.digest for each in recipe.inputs)
    missing, unknown = sorted(wanted - inputs), sorted(inputs - wanted)
    if missing or unknown:
        problem = f"{missing[0]} is missing" if missing else f"{unknown[0]} is too much"
        raise RecipeRefusedError(
            f"the recipe's inputs must be the base and the {len(found.contributions)} "
            f"contributions of round {found.key}: {problem}",
            hint=f"`poolctl rounds finish {found.key}` combines what is there now.",
            details={"missing": missing, "unknown": unknown},
        )
    if any(each.weight != 1 for each in recipe.inputs):
        raise RecipeRefusedError(
            "the recipe weighs contributions; in a round they count by their samples alone"
        )


def check_result(parts: ServerParts, upload: UploadRecord, path: Path) -> CheckedModel:
    return run_check(path, upload.file_name, upload.size_bytes, parts.settings)


def settle_result(
    session: Session, caller: Caller, upload: UploadRecord, checked: CheckedModel
) -> ModelVersionRecord:
    """Publish the result, end its round and open the next; or find that another was first."""
    current = repository.lock_round(session, round_of(upload))
    if current.state == repository.FINISHED:
        return _result_of(session, current)
    service.require_finishable(current)
    require_recipe_of(current, dict(upload.recipe or {}), upload.digest)
    if not repository.end_round(session, current.id, repository.FINISHED, service.name_of(caller)):
        ended = repository.lock_round(session, current.id)
        if ended.state != repository.FINISHED:
            raise RoundClosedError(f"round {current.key} was cancelled")
        return _result_of(session, ended)
    version = add_version(session, caller, upload, upload.site.name, checked)
    if version.number == 1:
        base = current.base_version.model
        share_alike(version.model, registry.find_model(session, base.site.name, base.name))
    ended = repository.lock_round(session, current.id)
    ended.result_version_id = version.id
    record_act(
        session,
        caller,
        RESULT.action,
        ended.key,
        result=service.address_of(version),
        digest=version.digest,
        left_out=sorted(service.missing_sites(ended)),
    )
    session.flush()
    if ended.number < ended.rounds_total:
        _open_successor(session, caller, ended, version)
    # The round has loaded of it only what it needs itself.
    session.expire(version)
    return registry.get_version(session, version.id)


RESULT = Destination(PURPOSE, "round.finish", check_result, settle_result)


def _open_successor(
    session: Session, caller: Caller, ended: RoundRecord, base: ModelVersionRecord
) -> None:
    """Open the next round: the same sites, with the result as base, as long as the last was."""
    now = now_utc()
    service.open_round(
        session,
        caller,
        base,
        [each.site for each in ended.participants],
        method=ended.method,
        method_version=ended.method_version,
        mode=ended.mode,
        options=find_round_method(ended.method).options_of_next(
            ended.options, int(base.fingerprint.get("levels", 1))
        ),
        description=ended.description,
        number=ended.number + 1,
        rounds_total=ended.rounds_total,
        predecessor_id=ended.id,
        created_at=now,
        deadline=now + timedelta(seconds=ended.duration_s),
        duration_s=ended.duration_s,
    )


def _result_of(session: Session, finished: RoundRecord) -> ModelVersionRecord:
    assert finished.result_version_id is not None, f"round {finished.key} has no result"
    return registry.get_version(session, finished.result_version_id)
