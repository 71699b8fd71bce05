"""Clearing away what nobody goes on with."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from pool_server.database.records import now_utc
from pool_server.errors import StorageError
from pool_server.http.session import ServerParts
from pool_server.jobs.background import working
from pool_server.storage.scratch import ScratchFolder
from pool_server.transfers import repository

log = logging.getLogger("pool_server.sweeps")

# Files without an upload are left alone for so long: their record may be about to be written.
ORPHAN_AGE = timedelta(hours=1)
SWEEP_INTERVAL_S = 600.0
REMEMBERED = timedelta(days=7)
"""How long finished uploads are remembered."""
LONGEST_STOP_S = 10.0


def sweep_uploads(parts: ServerParts) -> int:
    """Expire stale uploads, forget old ones, discard their files; return how many expired.

    Of several processes that share a pool one sweeps at a time, and the others do something else.
    The scratch folder is one of each machine: every process clears its own.
    """
    ScratchFolder(parts.settings.scratch_folder).clear()
    with parts.database.alone("sweep") as is_first:
        return _sweep(parts) if is_first else 0


def _sweep(parts: ServerParts) -> int:
    now = now_utc()
    with parts.database.write() as session:
        stale = repository.expire_stale(session, now)
        repository.forget_closed(session, now - REMEMBERED)
    for handle in stale:
        try:
            parts.storage.discard(handle)
        except StorageError:
            # One that cannot be discarded, now or ever, is no reason to keep the others.
            log.exception("a stale upload could not be discarded; its files are swept later")
    with parts.database.read() as session:
        live = repository.open_handles(session)
    parts.storage.sweep(live, now - ORPHAN_AGE)
    return len(stale)


def recover_uploads(parts: ServerParts) -> None:
    """Set right what a killed server left, before serving.

    Where other processes may be at work on the same pool, nothing can be told from theirs at
    once: what was claimed is free when the claim runs out, and half-written files are swept when
    nobody has touched them for long.
    """
    if not parts.database.is_shared:
        with parts.database.write() as session:
            repository.release_all(session)
    try:
        if not parts.database.is_shared:
            parts.storage.recover()
        sweep_uploads(parts)
    except StorageError:
        # The server says of itself that it is not ready until the storage answers.
        log.exception("the storage does not answer; stale uploads are swept later")


@asynccontextmanager
async def sweeping(parts: ServerParts) -> AsyncIterator[None]:
    """Sweep from time to time while the block runs."""

    def step(_stopping: threading.Event) -> bool:
        sweep_uploads(parts)
        return False

    async with working("sweeps", step, interval_s=SWEEP_INTERVAL_S, longest_stop_s=LONGEST_STOP_S):
        yield
