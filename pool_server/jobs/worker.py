"""One thread of a server process that works in the background: merges, sweeps."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sqlalchemy.exc import SQLAlchemyError

from pool_server.errors import PoolError

log = logging.getLogger("pool_server.workers")


@asynccontextmanager
async def working(
    name: str,
    step: Callable[[threading.Event], bool],
    *,
    interval_s: float,
    longest_stop_s: float,
) -> AsyncIterator[None]:
    """Call `step` again and again in a thread while the block runs.

    Parameters
    ----------
    step : callable
        Given an event that is set when the block ends; False where there was nothing to do. If
        it raises because the database or storage does not answer, it is called again later.
    interval_s : float
        Wait before the first call, and after one that had nothing to do.
    longest_stop_s : float
        How long to wait for a step under way when the block ends.
    """
    stopping = threading.Event()

    def run() -> None:
        is_busy = False
        while not stopping.wait(0 if is_busy else interval_s):
            try:
                is_busy = step(stopping)
            except (PoolError, SQLAlchemyError):
                log.exception("%s failed; tried again later", name)
                is_busy = False

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        await asyncio.to_thread(thread.join, longest_stop_s)
