"""The end of a round: the pool combines it, publishes the result, and opens the next round.

Any site of the round may ask for it (`request_finish`), which checks all conditions known at once
and writes a merge job with the recipe of the present contributions: the base, the state of the
predecessor's optimiser, the contributions. Sites that ask while it waits or runs get the same job.
A worker (`merges.running`) executes it with `finish_round`: the child process merges, the new state
is stored, and the result is published (`Ending`).

If several processes finish a round concurrently, the first transaction of `Ending.accept` ends it
and its job, and opens the next round; the others return its result. So a server killed at any
moment leaves a round that is open as before, or finished as a whole.
"""

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from aggregators.methods import Recipe, RecipeInput, RecipeMethod
from aggregators.methods.networks import state_path
from aggregators.methods.round_options import protection_of
from pool_server.database.engine import write_with_retry
from pool_server.database.records import ModelVersionRecord, RoundRecord, UploadRecord, now_utc
from pool_server.errors import ConflictError, MergeRefusedError, RoundClosedError
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller
from pool_server.http.session import ServerParts
from pool_server.merges import repository as merges
from pool_server.merges.running import MergeRun
from pool_server.merges.service import add_job, describe_job
from pool_server.models.sharing import share_alike
from pool_server.people.sites import get_site, require_room
from pool_server.registry import repository as registry
from pool_server.registry.access import CONSORTIUM
from pool_server.rounds import repository, service
from pool_server.rounds.methods import find_round_method
from pool_server.rounds.repository import files_to_combine, missing_sites
from pool_server.settings import PoolSettings
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.checking import CheckedModel
from pool_server.transfers.publishing import add_version, notify_curators
from pool_server.transfers.receiving import store_result
from pool_server.transfers.versions import (
    arrives_as_draft,
    check_merged,
    require_description,
    take_description,
)
from pool_server.wire.labels import shared_labels
from pool_server.wire.merges import MergeJobResponse
from pool_server.wire.names import ModelAddress
from pool_server.wire.rounds import FinishRequest
from pool_server.wire.uploads import UploadRequest


def request_finish(
    parts: ServerParts, caller: Caller, key: str, request: FinishRequest
) -> MergeJobResponse:
    """Return the merge job that finishes a round, creating it if there is none."""
    caller.require_upload_to(caller.site)

    def ask(session: Session) -> MergeJobResponse:
        round_ = repository.lock_round(session, service.get_round(session, caller, key).id)
        # Starting a round grants all its sites the right to publish the result at its own address
        # only.
        if ModelAddress(request.site, request.name) != repository.result_address(round_):
            caller.require_upload_to(request.site)
        job = merges.find_job_of_round(session, round_)
        if job is None:
            service.require_finishable(round_)
            service.require_usable_base(round_, despite_withdrawal=request.despite_withdrawal)
            site = get_site(session, request.site)
            job = add_job(session, caller, site, recipe_of(round_), request, finishes=round_)
        return describe_job(job)

    described = write_with_retry(parts.database, ask)
    parts.round_wanted.set()
    return described


def recipe_of(round_: RoundRecord) -> Recipe:
    """Return the recipe that combines the contributions to a round with its base."""
    aggregation = find_round_method(round_.method).aggregation
    base, before = round_.base_version, round_.predecessor
    inputs = [RecipeInput(digest=base.digest, address=base.address, file_name=base.file_name)]
    if before is not None and before.state_digest is not None:
        inputs.append(RecipeInput(digest=before.state_digest, file_name=f"{before.key}.state"))
    inputs += [
        RecipeInput(digest=contribution.digest, file_name=contribution.file_name)
        for contribution in files_to_combine(round_)
    ]
    return Recipe(
        method=RecipeMethod(name=aggregation.name, version=aggregation.version),
        options=aggregation.take_own(round_.options),
        inputs=tuple(inputs),
    )


def finish_round(run: MergeRun) -> UploadRecord:
    """Combine the contributions of a job's recipe, publish the result, and end the round."""
    parts, job = run.parts, run.job
    asked = dict(job.request)
    recipe = Recipe.model_validate(asked.pop("recipe"))
    request = FinishRequest.model_validate(asked)
    run.refresh_caller()
    with parts.database.read() as session:
        round_ = repository.get_round(session, job.round_id or 0)
    # The job combines the contributions that its requester saw, or none.
    _require_same_inputs(round_, recipe)
    base = round_.base_version
    possible = find_round_method(round_.method).aggregation.output_formats
    output_format = base.format if base.format in possible else possible[0]
    names = {source.digest: source.file_name or source.digest for source in recipe.inputs}
    with ScratchFolder(parts.settings.scratch_folder).room() as folder, ExitStack() as stack:
        result = folder / "result"
        try:
            paths = run.fetch(recipe, names, stack)
            made = run.merge(recipe, paths, result, output_format)
        except MergeRefusedError as error:
            raise MergeRefusedError(
                f"the contributions of round {round_.key} cannot be combined: {error.message}"
            ) from error
        if (state := made["recipe"]["output"].get("state")) is not None:
            # Before the result, so that every finished round has its state.
            _keep_state(run, round_, request.site, state, state_path(result))
        secure = round_.secure is not None
        protection = protection_of(round_.method, round_.options, secure=secure)
        announced = UploadRequest(
            site=request.site,
            name=request.name,
            size_bytes=result.stat().st_size,
            digest=made["digest"],
            file_name=base.file_name,
            description=f"Round {round_.number} of {round_.rounds_total} ({round_.key}), combined "
            f"by the pool; {protection}",
            recipe=made["recipe"],
            despite_withdrawal=request.despite_withdrawal,
        )
        ending = Ending(parts.settings, round_, job.id)
        return store_result(
            parts,
            run.recheck_before_publishing,
            announced,
            result,
            admit=partial(ending.admit, announced),
            check=partial(check_merged, parts.settings),
            accept=ending.accept,
        )


def _keep_state(run: MergeRun, round_: RoundRecord, site: str, digest: str, file: Path) -> None:
    """Store the state of a server optimiser, an input of the next round; `site` is charged.

    If the round does not end, the next attempt stores the state again, or replaces it.
    """
    run.recheck_before_publishing()
    parts, size_bytes = run.parts, file.stat().st_size
    parts.storage.store(file, digest)

    def keep(session: Session) -> None:
        current = repository.lock_round(session, round_.id)
        if current.state != repository.OPEN:
            return
        require_room(session, get_site(session, site).id, digest, size_bytes, announced=False)
        current.state_digest, current.state_size_bytes = digest, size_bytes
        session.flush()
        # As in `store_result`: a garbage collection may have come before the record.
        parts.storage.store(file, digest)

    write_with_retry(parts.database, keep)


@dataclass(frozen=True)
class Ending:
    """The end of a round by its result, which the merge `job_id` makes."""

    settings: PoolSettings
    round: RoundRecord
    job_id: int

    def admit(
        self, offer: UploadRequest, session: Session, caller: Caller, upload: UploadRecord
    ) -> bool:
        upload.model_name, upload.round_id = offer.name, self.round.id
        take_description(upload, offer)
        is_last = self.round.number == self.round.rounds_total
        upload.as_draft = is_last and arrives_as_draft(self.settings, caller)
        current = repository.lock_round(session, self.round.id)
        if current.state == repository.FINISHED:
            upload.version_id = self._record_result(session, current).id
            return True
        service.require_finishable(current)
        service.require_usable_base(current, despite_withdrawal=offer.despite_withdrawal)
        require_description(session, upload.site, offer)
        base = registry.get_version(session, current.base_version_id)
        upload.labels = shared_labels([{label.key: label.value for label in base.labels}])
        if base.model.visibility != CONSORTIUM:
            # The result must not be visible to sites that cannot see the base.
            upload.visibility = base.model.visibility
        return False

    def accept(
        self, session: Session, caller: Caller, upload: UploadRecord, checked: CheckedModel
    ) -> ModelVersionRecord:
        """Publish the result, end its round and open the next, unless another process was first."""
        current = repository.lock_round(session, self.round.id)
        if current.state == repository.FINISHED:
            return self._record_result(session, current)
        service.require_finishable(current)
        _require_unchanged(current, upload.recipe or {})
        by = caller.name
        if not repository.end_round(session, current.id, repository.FINISHED, by):
            ended = repository.lock_round(session, current.id)
            if ended.state != repository.FINISHED:
                raise RoundClosedError(f"round {current.key} was cancelled")
            return self._record_result(session, ended)
        version = add_version(session, caller, upload, checked)
        if version.number == 1:
            base = current.base_version.model
            share_alike(version.model, registry.find_model(session, base.site.name, base.name))
        notify_curators(session, self.settings, version)
        ended = repository.lock_round(session, current.id)
        ended.result_version_id = version.id
        record_act(
            session,
            caller,
            "round.finish",
            ended.key,
            result=version.address,
            digest=version.digest,
            left_out=sorted(missing_sites(ended)),
        )
        session.flush()
        # A series level by level is of an earlier release; no site takes part in it now.
        if ended.number < ended.rounds_total and ended.mode == "one-shot":
            _open_successor(session, caller, ended, version)
        return self._record_result(session, ended)

    def _record_result(self, session: Session, finished: RoundRecord) -> ModelVersionRecord:
        """Return the result of an ended round, and end the job that requested it."""
        assert finished.result_version_id is not None, f"round {finished.key} has no result"
        merges.record_result(session, self.job_id, finished.result_version_id)
        version = registry.get_version(session, finished.result_version_id)
        # The round has loaded only some of its attributes.
        session.expire(version)
        return registry.get_version(session, finished.result_version_id)


def _require_same_inputs(round_: RoundRecord, recipe: Recipe) -> None:
    """Raise `ConflictError` if a contribution came or went since a recipe was written."""
    # Counted, because two sites may contribute the same bytes, and both count.
    current = Counter(source.digest for source in recipe_of(round_).inputs)
    if current != Counter(source.digest for source in recipe.inputs):
        raise _round_changed(round_)


def _require_unchanged(round_: RoundRecord, recipe: dict[str, Any]) -> None:
    """Raise `ConflictError` if a round has changed since it was combined."""
    _require_same_inputs(round_, Recipe.model_validate(recipe))
    # Another process may have kept the state of other contributions meanwhile.
    if recipe["output"].get("state") != round_.state_digest:
        raise _round_changed(round_)


def _round_changed(round_: RoundRecord) -> ConflictError:
    return ConflictError(
        f"a contribution to round {round_.key} was taken back or sent while the pool combined",
        code="round_changed",
        hint=f"Combine the present contributions: `poolctl rounds finish {round_.key}`",
    )


_SERIES_FIELDS = (
    "site_id", "token_id", "created_by", "method", "method_version", "mode", "description",
    "rounds_total", "duration_s", "least_others", "secure", "terms",
)  # fmt: skip
"""Fields of a round that all rounds of its series share."""


def _open_successor(
    session: Session, caller: Caller, ended: RoundRecord, base: ModelVersionRecord
) -> None:
    """Open the next round on the result, with the same starter, sites and duration."""
    now = now_utc()
    service.open_round(
        session,
        caller,
        base,
        [participant.site for participant in ended.participants],
        options=find_round_method(ended.method).options_of_next(ended.options),
        number=ended.number + 1,
        predecessor_id=ended.id,
        created_at=now,
        deadline=now + timedelta(seconds=ended.duration_s),
        **{name: getattr(ended, name) for name in _SERIES_FIELDS},
    )
