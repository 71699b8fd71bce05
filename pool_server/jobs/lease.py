"""Work that one process at a time does: a lease in the database, good as long as it is renewed.

When the process dies, the lease runs out, and the next to ask takes the work over. Two that both
believe to hold it (one was asleep) do no harm: every step may be repeated, and the first that
writes its result decides.
"""

from __future__ import annotations


import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from pool_server.database.records import now_utc
from pool_server.errors import TransactionError
from pool_server.logs import in_this_context
from pool_server.settings import PoolSettings


RENEWALS_PER_LEASE = 3
"""Two of them may fail."""


def lease_end(settings: PoolSettings) -> datetime:
    return now_utc() + timedelta(seconds=settings.lease_s)


@contextmanager
def renewing(settings: PoolSettings, subject: str, renew: Callable[[], object]) -> Iterator[None]:
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
