"""Background work of server processes: threads, and leases that share work among processes."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import datetime, timedelta

from sqlalchemy.exc import SQLAlchemyError

from pool_server.database.records import now_utc
from pool_server.errors import PoolError, TransactionError
from pool_server.logs import in_this_context
from pool_server.settings import PoolSettings

log = logging.getLogger("pool_server.workers")


@asynccontextmanager
async def run_in_background(
    name: str,
    step: Callable[[threading.Event], bool],
    *,
    interval_s: float,
    longest_stop_s: float,
    wake_early: threading.Event | None = None,
) -> AsyncIterator[None]:
    """Call `step` again and again in a thread while the block runs.

    `step` gets an event that is set when the block ends, and returns False where there was nothing
    to do; then, and before the first call, `interval_s` pass, or less if `wake_early` is set. If it
    raises because the database or storage does not answer, it is called again later. A step under
    way at the end of the block is waited for, `longest_stop_s` at most.
    """
    stopping, wake = threading.Event(), wake_early or threading.Event()

    def run() -> None:
        is_busy = False
        while not stopping.is_set():
            if not is_busy:
                wake.wait(interval_s)
                if stopping.is_set():
                    return
            wake.clear()
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
        wake.set()
        await asyncio.to_thread(thread.join, longest_stop_s)


def sweep_in_background(
    name: str, sweep: Callable[[], object], *, interval_s: float
) -> AbstractAsyncContextManager[None]:
    """Call `sweep` every `interval_s` while the block runs, as `run_in_background`."""

    def step(_stopping: threading.Event) -> bool:
        sweep()
        return False

    return run_in_background(name, step, interval_s=interval_s, longest_stop_s=10.0)


# A lease in the database lets one process at a time do a piece of work, as long as it is renewed.
# When the process dies, the lease runs out, and the next process that asks takes over. Two that
# both believe they hold it (one was asleep) do no harm: every step may be repeated, and the first
# to write its result decides.
RENEWALS_PER_LEASE = 3
"""Two of them may fail."""


def lease_end(settings: PoolSettings) -> datetime:
    return now_utc() + timedelta(seconds=settings.lease_s)


@contextmanager
def keep_renewed(
    settings: PoolSettings, subject: str, renew: Callable[[], object]
) -> Iterator[None]:
    """Call `renew` in a thread, well before each lease ends, while the block runs."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(settings.lease_s / RENEWALS_PER_LEASE):
            try:
                renew()
            except TransactionError:
                log.exception("the lease of %s could not be renewed", subject)

    thread = threading.Thread(target=in_this_context(keep), name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
