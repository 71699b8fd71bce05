"""Carrying merges out in the background, one after another in each server process.

Any number of processes share the work: each takes the oldest job that waits by a claim of
limited life in the database and keeps putting its end off while the merge runs. When a process
dies, its claim runs out and another begins the job anew; the result is the same bytes.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from aggregators.methods import Recipe
from pool_server.database.records import MergeJobRecord, TokenRecord, now_utc
from pool_server.errors import (
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
from pool_server.jobs.child import MergeStoppedError, run_merge
from pool_server.lineage.withdrawals.successors import link_made
from pool_server.merges import repository
from pool_server.merges.inputs import find_inputs
from pool_server.merges.service import require_size_of_inputs
from pool_server.models.registry import repository as registry
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers.announcing import announce_upload
from pool_server.transfers.completing import complete_upload
from pool_server.transfers.own_files import store_parts
from pool_server.wire.merges import MergeRequest
from pool_server.wire.transfers.uploads import UploadRequest, UploadResponse, VersionDescription

log = logging.getLogger("pool_server.merges")

MOST_ATTEMPTS = 3
LONGEST_STOP_S = 10.0
# So many signs of life fit into the life of a claim: two may get lost.
SIGNS_PER_CLAIM = 3
_ABANDONED: dict[str, object] = {
    "code": "merge_refused",
    "message": f"the server ended {MOST_ATTEMPTS} times while it carried this merge out; the "
    "models may need more memory than the machine has",
}


@dataclass
class MergeWorker:
    """Takes jobs until it is told to stop."""

    parts: ServerParts
    name: str = field(default_factory=lambda: secrets.token_hex(8))
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Work until `stopping`; a database that does not answer is asked again later."""
        while not self.stopping.is_set():
            try:
                did_something = self.run_next()
            except (PoolError, SQLAlchemyError):
                log.exception("merge jobs cannot be asked for; it is tried again later")
                did_something = False
            if not did_something:
                self.stopping.wait(self.parts.settings.merge_poll_interval_s)

    def run_next(self) -> bool:
        """Carry out one job; False when none waits."""
        with self.parts.database.read() as session:
            if not repository.has_waiting(session):
                return False
        with self.parts.database.write() as session:
            repository.fail_abandoned(session, MOST_ATTEMPTS, _ABANDONED)
            job = repository.claim_next(session, self.name, self._claim_end(), MOST_ATTEMPTS)
        if job is None:
            return False
        log.info("merge %s begins (attempt %d)", job.key, job.attempts)
        try:
            with self.held(job):
                upload = self._carry_out(job)
            self._end(job, repository.FINISHED, upload=upload)
        except MergeStoppedError:
            self._after_stop(job)
        except PoolError as error:
            self._end(job, repository.FAILED, error=error)
        except Exception:
            log.exception("merge %s failed", job.key)
            refusal = MergeRefusedError("something unexpected happened; the pool's log has it")
            self._end(job, repository.FAILED, error=refusal)
        return True

    @contextmanager
    def held(self, job: MergeJobRecord) -> Iterator[None]:
        """Keep a job for this worker, however long a step takes: fetching inputs, publishing."""
        over = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(job, over), daemon=True)
        keeper.start()
        try:
            yield
        finally:
            over.set()
            keeper.join()

    def _keep(self, job: MergeJobRecord, over: threading.Event) -> None:
        while not over.wait(self.parts.settings.merge_claim_s / SIGNS_PER_CLAIM):
            try:
                with self.parts.database.write() as session:
                    repository.renew_claim(session, job.id, self.name, self._claim_end())
            except TransactionError:
                log.exception("the claim of merge %s could not be renewed", job.key)

    def _carry_out(self, job: MergeJobRecord) -> UploadResponse:
        """Merge and publish; every step may be repeated by another process.

        Raises
        ------
        PoolError
            It is refused for good.
        MergeStoppedError
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
            files: dict[str, Any] = {}
            for digest, version in inputs.items():
                self._go_on(job, 0.0, f"fetching {version.file_name}")
                path = stack.enter_context(parts.storage.content_file(digest))
                files[digest] = {"path": str(path), "file_name": version.file_name}
            result = folder / "result"
            made = run_merge(
                {"recipe": request.recipe, "format": request.format, "inputs": files},
                result,
                size_bytes=size_bytes,
                settings=parts.settings,
                listen=lambda progress, activity: self._report(job, progress, activity),
            )
            upload = self._publish(job, caller, request, made, result)
        self._link(caller, upload, Recipe.model_validate(made["recipe"]))
        return upload

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
        return complete_upload(parts, caller, upload.upload_id)

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

    def _link(self, caller: Caller, upload: UploadResponse, recipe: Recipe) -> None:
        """Link what was made with what it replaces; the recipe is this process's own word."""
        if recipe.successor_of is None:
            return
        with self.parts.database.write() as session:
            version_id = repository.version_of_upload(session, upload.upload_id)
            if version_id is not None:
                link_made(session, caller, registry.get_version(session, version_id), recipe)

    def _go_on(self, job: MergeJobRecord, progress: float, activity: str) -> None:
        if not self._report(job, progress, activity):
            raise MergeStoppedError

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
                claim_end=self._claim_end(),
            )

    def _claim_end(self) -> datetime:
        return now_utc() + timedelta(seconds=self.parts.settings.merge_claim_s)

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
    worker = MergeWorker(parts)
    thread = threading.Thread(target=worker.run, name="merge worker", daemon=True)
    thread.start()
    try:
        yield
    finally:
        worker.stopping.set()
        await asyncio.to_thread(thread.join, LONGEST_STOP_S)
