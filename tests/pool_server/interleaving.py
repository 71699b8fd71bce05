"""Requests that meet a transaction which is not over yet, as those of other processes do."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.orm import Session

from pool_server.database.engine import Database
from pool_server.http.identity import Caller
from tests.pool_server.pool_driver import PoolDriver

T = TypeVar("T")

ADMIN = Caller("0" * 16, "first-admin", 1, "admin", "admin", None, pool_wide=True)
LONGEST_S = 540.0


def overtaken(
    pool: PoolDriver,
    act: Callable[[Session], object],
    *later: Callable[[], T],
    meanwhile: Callable[[Database], object] = lambda _database: None,
) -> list[T]:
    """Do `act` in a transaction, and all of `later` before it is committed.

    On PostgreSQL it is committed once each of `later` waits for a lock, or has ended without
    having to, and `meanwhile` was done. On SQLite, which lets one transaction write at a time,
    they come after it.
    """
    database = Database.open(pool.settings)
    try:
        with ThreadPoolExecutor(len(later)) as threads:
            with database.write() as session:
                act(session)
                session.flush()
                answers = [threads.submit(request) for request in later]
                wait_for_locks(database, answers)
                meanwhile(database)
            return [answer.result(LONGEST_S) for answer in answers]
    finally:
        database.close()


def wait_for_locks(database: Database, answers: Sequence[Future[T]]) -> None:
    """Wait until all that are not done wait for a lock, where they can do so side by side."""
    if not database.is_shared:
        return
    end = time.monotonic() + LONGEST_S
    query = text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while True:
        left = sum(not answer.done() for answer in answers)
        with database.read() as session:
            waiting = session.scalar(query) or 0
        if waiting >= left:
            return
        assert time.monotonic() < end, f"{waiting} of {left} wait"
        time.sleep(0.02)
