"""Carry out merges in the background, one after another in each worker of a server process.

How a merge on the pool works:

1. `merges.service` (`POST /merges`), or `rounds.finishing` (`POST /rounds/{id}/finish`), checks all
   that can be known at once, and writes a job. The client asks for it again and again
   (`GET /merges/{id}`) until it is over.
2. A `MergeWorker` of any server process claims the oldest job that waits, and keeps putting off
   the end of its claim. It fetches the inputs from the storage, and a limited child process merges
   them (`jobs.merging`); its progress goes to the job's record.
3. The result is checked, stored and published, by `transfers.versions.store_merged`.

When a process dies, its claim runs out and another starts the job again; the result is the same
bytes. Rounds have workers of their own, so
that they do not wait behind merges that take hours.
"""

import logging
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aggregators.methods import Recipe
from pool_server import errors
from pool_server.database.records import MergeJobRecord, TokenRecord, UploadRecord
from pool_server.http.audit import record_act
from pool_server.http.identity import Caller, caller_of, get_token, require_valid
from pool_server.http.session import ServerParts
from pool_server.jobs.background import keep_renewed, lease_end, run_in_background
from pool_server.jobs.limited import StoppedError
from pool_server.jobs.merging import merge_by_recipe
from pool_server.merges import repository
from pool_server.merges.service import find_inputs, require_size_of_inputs
from pool_server.storage.contract import FILE_DAMAGED
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.versions import store_merged
from pool_server.wire.labels import shared_labels
from pool_server.wire.merges import MergeRequest
from pool_server.wire.uploads import UploadRequest, VersionDescription

log = logging.getLogger("pool_server.merges")

MOST_ATTEMPTS = 3
LONGEST_STOP_S = 10.0
_ABANDONED: dict[str, object] = {
    "code": "merge_refused",
    "message": f"the server ended {MOST_ATTEMPTS} times while it carried this merge out; the "
    "models may need more memory than the machine has",
}


@dataclass(frozen=True)
class MergeRun:
    """One job in the hands of one worker."""

    parts: ServerParts
    job: MergeJobRecord
    worker: str
    stopping: threading.Event

    def report(self, progress: float, activity: str) -> bool:
        """Write the progress; False when the job is cancelled, lost, or this process stops."""
        if self.stopping.is_set():
            return False
        with self.parts.database.write() as session:
            return repository.report(
                session,
                self.job.id,
                self.worker,
                progress=progress,
                activity=activity,
                claim_end=lease_end(self.parts.settings),
            )

    def go_on(self, progress: float, activity: str) -> None:
        """Write the progress; raise `StoppedError` if the job must not continue."""
        if not self.report(progress, activity):
            raise StoppedError

    def refresh_caller(self) -> Caller:
        """Return the requester of the merge, with its present rights.

        Hours may have passed, and a token that was revoked meanwhile must not publish anything.
        """
        try:
            with self.parts.database.read() as session:
                token = get_token(session, self.job.token_id)
            require_valid(token)
            caller = caller_of(token)
            finished = self.job.round
            if finished is not None and finished.site_id == self.job.site_id:
                caller = replace(caller, lent_site=self.job.site.name)
            caller.require_upload_to(self.job.site.name)
        except (errors.NotAuthenticatedError, errors.NotAllowedError) as error:
            raise errors.MergeRefusedError(
                f"the merge was requested with token {self.job.created_by}, which may not publish "
                f"its result now: {error.message}"
            ) from error
        return caller

    def recheck_before_publishing(self) -> Caller:
        """Report that the result is being published; return the caller as `refresh_caller`."""
        self.go_on(0.99, "publishing")
        return self.refresh_caller()

    def fetch(self, recipe: Recipe, names: Mapping[str, str], stack: ExitStack) -> dict[str, Path]:
        """Return a local file for each input, by digest; `names` are for the progress."""
        paths = {}
        for digest in recipe.input_digests:
            self.go_on(0.0, f"fetching {names[digest]}")
            paths[digest] = stack.enter_context(self.parts.storage.content_file(digest))
        return paths

    def merge(
        self,
        recipe: Recipe,
        paths: Mapping[str, Path],
        result: Path,
        output_format: str | None = None,
    ) -> dict[str, Any]:
        """Merge files into `result`; return its ``digest`` and ``recipe``."""

        def listen(progress: float, activity: str) -> bool:
            try:
                return self.report(progress, activity)
            except errors.TransactionError:
                log.exception("progress of merge %s could not be written", self.job.key)
                return not self.stopping.is_set()

        try:
            made = merge_by_recipe(
                self.parts.settings,
                recipe,
                paths,
                result,
                activity="the merge",
                output_format=output_format,
                listen=listen,
            )
        except errors.FormatRefusedError as error:
            raise errors.MergeRefusedError(error.message) from error
        if not made["accepted"]:
            raise errors.MergeRefusedError(str(made["message"]))
        return made


CarryOut = Callable[[MergeRun], UploadRecord]
"""Carries a job out, in steps that another process may repeat.

It raises a `PoolError` where the job is refused for good, and `StoppedError` where it is
cancelled, lost, or this process stops.
"""


def carry_out_merge(run: MergeRun) -> UploadRecord:
    """Merge models of the pool, and publish the result as a version."""
    parts = run.parts
    # Merges asked for before the release that gave up the field carry it, mostly empty.
    fields = {key: value for key, value in run.job.request.items() if key != "intended_use"}
    request = MergeRequest.model_validate(fields)
    recipe = Recipe.model_validate(request.recipe)
    caller = run.refresh_caller()
    with parts.database.read() as session:
        # As things are now: an input may have been withdrawn since the merge was asked for.
        inputs = find_inputs(session, caller, recipe)
    require_size_of_inputs(parts.settings, sum(version.size_bytes for version in inputs.values()))
    names = {digest: version.file_name for digest, version in inputs.items()}
    recipe = recipe.model_copy(
        update={
            "inputs": tuple(
                input_.model_copy(update={"file_name": input_.file_name or names[input_.digest]})
                for input_ in recipe.inputs
            )
        }
    )
    with ScratchFolder(parts.settings.scratch_folder).room() as folder, ExitStack() as stack:
        result = folder / "result"
        made = run.merge(recipe, run.fetch(recipe, names, stack), result, request.format)
        labels = [
            {label.key: label.value for label in version.labels} for version in inputs.values()
        ]
        description = {name: getattr(request, name) for name in VersionDescription.model_fields}
        announced = UploadRequest(
            site=request.site,
            name=request.name,
            size_bytes=result.stat().st_size,
            digest=made["digest"],
            file_name=request.file_name or f"{request.name}.model",
            recipe=made["recipe"],
            **{**description, "labels": {**shared_labels(labels), **request.labels}},
        )
        return store_merged(parts, run.recheck_before_publishing, announced, result)


@dataclass
class MergeWorker:
    """Carries out waiting jobs: merges that sites asked for, or the merges that finish rounds."""

    parts: ServerParts
    carry_out: CarryOut = carry_out_merge
    of_rounds: bool = False
    name: str = field(default_factory=lambda: secrets.token_hex(8))

    def run_next(self, stopping: threading.Event) -> bool:
        """Carry out one job; False when none waits."""
        with self.parts.database.read() as session:
            if not repository.has_waiting(session, of_rounds=self.of_rounds):
                return False
        with self.parts.database.write() as session:
            repository.fail_abandoned(session, MOST_ATTEMPTS, _ABANDONED)
            job = repository.claim_next(
                session,
                self.name,
                lease_end(self.parts.settings),
                MOST_ATTEMPTS,
                of_rounds=self.of_rounds,
            )
        if job is None:
            return False
        log.info("merge %s begins (attempt %d)", job.key, job.attempts)

        def renew() -> None:
            with self.parts.database.write() as session:
                end = lease_end(self.parts.settings)
                repository.renew_claim(session, job.id, self.name, end)

        try:
            # However long a step takes: fetching inputs, publishing.
            with keep_renewed(self.parts.settings, f"merge {job.key}", renew):
                upload = self.carry_out(MergeRun(self.parts, job, self.name, stopping))
            self._end(job, repository.FINISHED, version_id=upload.version_id)
        except StoppedError:
            self._after_stop(job)
        except (errors.StorageFailedError, errors.TransactionError) as error:
            if error.code == FILE_DAMAGED:
                self._end(job, repository.FAILED, error=error)
                return True
            # It passes: the job is taken again when its claim runs out, and this was no attempt.
            log.warning("merge %s waits for the storage or the database: %s", job.key, error)
            with self.parts.database.write() as session:
                repository.postpone(session, job.id, self.name)
        except errors.PoolError as error:
            self._end(job, repository.FAILED, error=error)
        except Exception:
            log.exception("merge %s failed", job.key)
            refusal = errors.MergeRefusedError(
                "something unexpected happened; the pool's log has it"
            )
            self._end(job, repository.FAILED, error=refusal)
        return True

    def _after_stop(self, job: MergeJobRecord) -> None:
        with self.parts.database.write() as session:
            current = repository.find_job(session, job.key)
            if current is not None and current.cancel_requested:
                repository.end_job(session, job.id, self.name, repository.CANCELLED)
            else:
                repository.give_back(session, job.id, self.name)

    def _end(
        self,
        job: MergeJobRecord,
        state: str,
        *,
        version_id: int | None = None,
        error: errors.PoolError | None = None,
    ) -> None:
        refusal: dict[str, object] | None = None
        if error is not None:
            refusal = {"code": error.code, "message": error.message}
        with self.parts.database.write() as session:
            held = repository.end_job(
                session, job.id, self.name, state, version_id=version_id, refusal=refusal
            )
            if held:
                record_act(
                    session,
                    system_caller(job, get_token(session, job.token_id)),
                    "merge.end",
                    f"{job.site.name}/{job.model_name}",
                    outcome=state,
                    merge_id=job.key,
                    **(refusal or {}),
                )
        log.info("merge %s: %s%s", job.key, state, "" if held else " (recorded already)")


def system_caller(job: MergeJobRecord, token: TokenRecord) -> Caller:
    """Return the caller that the audit names for the end of a merge: its requester."""
    site, _, token_name = job.created_by.partition("/")
    return Caller(
        token_id=job.token_id,
        token_name=token_name,
        site_id=job.site_id,
        site=site,
        role="contributor",
        expires_at=None,
        user="" if token.user is None else token.user.name,
    )


def recover_merges(parts: ServerParts) -> None:
    """Let merges that a killed server was busy with be taken at once, before serving.

    Where other servers may be at work on the same pool, a claim runs out first.
    """
    if not parts.database.is_shared:
        with parts.database.write() as session:
            repository.give_back_all(session)


@asynccontextmanager
async def merge_in_background(
    parts: ServerParts, carry_out: CarryOut = carry_out_merge, *, of_rounds: bool = False
) -> AsyncIterator[None]:
    """Carry merges out in a thread of their own while the block runs.

    A merge under way when the block ends is left to another process, or to the next start.
    """
    if not (parts.settings.central_merges or of_rounds):
        yield
        return
    async with run_in_background(
        "rounds" if of_rounds else "merges",
        MergeWorker(parts, carry_out, of_rounds).run_next,
        interval_s=parts.settings.poll_interval_s,
        longest_stop_s=LONGEST_STOP_S,
        wake_early=parts.round_wanted if of_rounds else parts.merge_wanted,
    ):
        yield
