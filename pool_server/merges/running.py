"""Carrying merges out in the background, one after another in each server process.

Any number of processes share the work: each takes the oldest job that waits by a claim of
limited life in the database and keeps putting its end off while the merge runs. When a process
dies, its claim runs out and another begins the job anew; the result is the same bytes.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aggregators.methods import Recipe
from pool_server.database.records import MergeJobRecord, ModelVersionRecord, TokenRecord
from pool_server.errors import (
    FormatRefusedError,
    MergeRefusedError,
    NotAllowedError,
    NotAuthenticatedError,
    PoolError,
    TransactionError,
)
from pool_server.http.audit import record_act
from pool_server.http.error_table import entry_of
from pool_server.http.identity import Caller, caller_of, look_again, require_valid
from pool_server.http.session import ServerParts
from pool_server.jobs.helper import StoppedError
from pool_server.jobs.lease import lease_end, renewing
from pool_server.jobs.limited import MEMORY_FACTOR, Limits, run_limited
from pool_server.jobs.worker import working
from pool_server.merges import repository
from pool_server.merges.inputs import find_inputs
from pool_server.merges.service import require_size_of_inputs
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.announcing import announce_upload
from pool_server.transfers.completing import MERGED, complete_upload
from pool_server.transfers.parts import store_parts
from pool_server.wire.merges import MergeRequest
from pool_server.wire.models.labels import shared_labels
from pool_server.wire.transfers.uploads import UploadRequest, UploadResponse, VersionDescription

log = logging.getLogger("pool_server.merges")

MOST_ATTEMPTS = 3
LONGEST_STOP_S = 10.0
_ABANDONED: dict[str, object] = {
    "code": "merge_refused",
    "message": f"the server ended {MOST_ATTEMPTS} times while it carried this merge out; the "
    "models may need more memory than the machine has",
}


@dataclass
class MergeWorker:
    """Carries out waiting jobs."""

    parts: ServerParts
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    stopping: threading.Event = field(default_factory=threading.Event)

    def step(self, stopping: threading.Event) -> bool:
        self.stopping = stopping
        return self.run_next()

    def run_next(self) -> bool:
        """Carry out one job; False when none waits."""
        with self.parts.database.read() as session:
            if not repository.has_waiting(session):
                return False
        with self.parts.database.write() as session:
            repository.fail_abandoned(session, MOST_ATTEMPTS, _ABANDONED)
            job = repository.claim_next(
                session, self.name, lease_end(self.parts.settings), MOST_ATTEMPTS
            )
        if job is None:
            return False
        log.info("merge %s begins (attempt %d)", job.key, job.attempts)
        try:
            with self.held(job):
                upload = self._carry_out(job)
            self._end(job, repository.FINISHED, upload=upload)
        except StoppedError:
            self._after_stop(job)
        except PoolError as error:
            self._end(job, repository.FAILED, error=error)
        except Exception:
            log.exception("merge %s failed", job.key)
            refusal = MergeRefusedError("something unexpected happened; the pool's log has it")
            self._end(job, repository.FAILED, error=refusal)
        return True

    def held(self, job: MergeJobRecord) -> AbstractContextManager[None]:
        """Keep a job for this worker, however long a step takes: fetching inputs, publishing."""

        def renew() -> None:
            with self.parts.database.write() as session:
                end = lease_end(self.parts.settings)
                repository.renew_claim(session, job.id, self.name, end)

        return renewing(self.parts.settings, f"merge {job.key}", renew)

    def _carry_out(self, job: MergeJobRecord) -> UploadResponse:
        """Merge and publish; every step may be repeated by another process.

        Raises
        ------
        PoolError
            It is refused for good.
        StoppedError
            Cancelled, or this process stops, or lost the job.
        """
        parts = self.parts
        request = MergeRequest.model_validate(job.request)
        recipe = Recipe.model_validate(request.recipe)
        with parts.database.read() as session:
            # As things are now: a token revoked, or an input withdrawn meanwhile, counts.
            token = repository.find_token(session, job.token_id)
            assert token is not None, "tokens are never deleted"
            require_valid(token)
            caller = caller_of(token)
            inputs = find_inputs(session, caller, recipe)
        size_bytes = sum(version.size_bytes for version in inputs.values())
        require_size_of_inputs(parts.settings, size_bytes)
        with (
            ScratchFolder(parts.settings.scratch_folder).room() as folder,
            ExitStack() as stack,
        ):
            paths: dict[str, Path] = {}
            for digest, version in inputs.items():
                self._go_on(job, 0.0, f"fetching {version.file_name}")
                paths[digest] = stack.enter_context(parts.storage.content_file(digest))
            result = folder / "result"
            files = [(inputs[each.digest], paths[each.digest]) for each in recipe.inputs]
            made = self._merge(job, request, files, result)
            shared = shared_labels(
                [{each.key: each.value for each in version.labels} for version in inputs.values()]
            )
            labels = {**shared, **request.labels}
            request = request.model_copy(update={"labels": labels})
            return self._publish(job, caller, request, made, result)

    def _merge(
        self,
        job: MergeJobRecord,
        request: MergeRequest,
        files: Sequence[tuple[ModelVersionRecord, Path]],
        result: Path,
    ) -> dict[str, Any]:
        """Merge `files`, which are those of the recipe's inputs in their order."""
        recipe = Recipe.model_validate(request.recipe)
        promised = recipe.output
        plan = {
            "method": recipe.method.name,
            "options": recipe.options,
            "format": request.format or (promised.format if promised else None),
            "result": str(result),
            "inputs": [
                {
                    "path": str(path),
                    "file_name": entry.file_name or version.file_name,
                    "address": entry.address,
                    "weight": entry.weight,
                }
                for entry, (version, path) in zip(recipe.inputs, files, strict=True)
            ],
            "promised_digest": promised.digest if promised else None,
            "successor_of": recipe.model_dump(mode="json", by_alias=True).get("successor_of"),
        }
        settings = self.parts.settings
        size_bytes = sum(version.size_bytes for version in {version for version, _ in files})
        limits = Limits(
            settings.merge_memory_bytes + MEMORY_FACTOR * size_bytes,
            settings.merge_time_s,
            settings.max_model_bytes,
        )

        def listen(progress: float, activity: str) -> bool:
            try:
                return self._report(job, progress, activity)
            except TransactionError:
                log.exception("progress of merge %s could not be written", job.key)
                return not self.stopping.is_set()

        try:
            made = run_limited(
                "pool_server.merges.merge_program",
                plan,
                limits,
                activity="the merge",
                listen=listen,
            )
        except FormatRefusedError as error:
            raise MergeRefusedError(error.message) from error
        if not made["accepted"]:
            raise MergeRefusedError(str(made["message"]))
        return made

    def _publish(
        self,
        job: MergeJobRecord,
        caller: Caller,
        request: MergeRequest,
        made: dict[str, Any],
        result: Path,
    ) -> UploadResponse:
        parts = self.parts
        self._go_on(job, 0.99, "publishing")
        caller = self._look_again(job, caller)
        announced = UploadRequest(
            site=request.site,
            name=request.name,
            size_bytes=result.stat().st_size,
            digest=made["digest"],
            file_name=request.file_name or f"{request.name}.model",
            recipe=made["recipe"],
            **{name: getattr(request, name) for name in VersionDescription.model_fields},
        )
        upload, _ = announce_upload(parts, caller, announced, made_here=True)
        if upload.state == "complete":
            return upload
        store_parts(parts, caller, upload, result)
        self._go_on(job, 0.99, "publishing")
        # Storing a large result takes long, too.
        caller = self._look_again(job, caller)
        return complete_upload(parts, caller, upload.upload_id, MERGED)

    def _look_again(self, job: MergeJobRecord, caller: Caller) -> Caller:
        """Return what who asked may now, after up to hours of work.

        Raises
        ------
        MergeRefusedError
            The result is not theirs to publish any more.
        """
        try:
            with self.parts.database.read() as session:
                now = look_again(session, caller)
            now.require_upload_to(job.site.name)
        except (NotAuthenticatedError, NotAllowedError) as error:
            raise MergeRefusedError(
                f"the merge was asked for with token {job.created_by}, which may not publish its "
                f"result any more: {error.message}"
            ) from error
        return now

    def _go_on(self, job: MergeJobRecord, progress: float, activity: str) -> None:
        if not self._report(job, progress, activity):
            raise StoppedError

    def _report(self, job: MergeJobRecord, progress: float, activity: str) -> bool:
        """Write the progress; False when the job is cancelled, lost, or this process stops."""
        if self.stopping.is_set():
            return False
        with self.parts.database.write() as session:
            return repository.report(
                session,
                job.id,
                self.name,
                progress=progress,
                activity=activity,
                claim_end=lease_end(self.parts.settings),
            )

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
        upload: UploadResponse | None = None,
        error: PoolError | None = None,
    ) -> None:
        refusal: dict[str, object] | None = None
        if error is not None:
            refusal = {"code": entry_of(error).code, "message": error.message}
        with self.parts.database.write() as session:
            version_id = None
            if upload is not None:
                version_id = repository.version_of_upload(session, upload.upload_id)
            held = repository.end_job(
                session, job.id, self.name, state, version_id=version_id, refusal=refusal
            )
            if held:
                record_act(
                    session,
                    system_caller(job, repository.find_token(session, job.token_id)),
                    "merge.end",
                    f"{job.site.name}/{job.model_name}",
                    outcome=state,
                    merge_id=job.key,
                    **(refusal or {}),
                )
        log.info("merge %s: %s", job.key, state if held else "another process has it")


def system_caller(job: MergeJobRecord, token: TokenRecord | None) -> Caller:
    """Return whom the audit names for what happens later: who asked for the merge."""
    site, _, token_name = job.created_by.partition("/")
    return Caller(
        token_id=job.token_id,
        token_name=token_name,
        site_id=job.site_id,
        site=site,
        role="contributor",
        expires_at=None,
        user="" if token is None or token.user is None else token.user.name,
    )


@asynccontextmanager
async def merging(parts: ServerParts) -> AsyncIterator[None]:
    """Carry merges out in a thread of their own while the block runs.

    A merge under way when the block ends is left to another process, or to the next start.
    """
    if not parts.settings.central_merges:
        yield
        return
    async with working(
        "merges",
        MergeWorker(parts).step,
        interval_s=parts.settings.poll_interval_s,
        longest_stop_s=LONGEST_STOP_S,
    ):
        yield
