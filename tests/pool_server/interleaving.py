"""Requests that meet a transaction which is not over yet, as those of other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.orm import Session

from pool_server.database import Database
from pool_server.http.identity import Caller
from tests.pool_server.pool_driver import PoolDriver

T = TypeVar("T")

ADMIN = Caller("0" * 16, "first-admin", 1, "admin", "admin", None, pool_wide=True)
LONGEST_S = 60.0


def overtaken(
    pool: PoolDriver, act: Callable[[Session], object], *later: Callable[[], T]
) -> list[T]:
    """Do `act` in a transaction, and all of `later` before it is committed.

    On PostgreSQL it is committed once each of `later` waits for it, or has ended without having
    to. On SQLite, which lets one transaction write at a time, they come after it.
    """
    database = Database.open(pool.settings)
    try:
        with ThreadPoolExecutor(len(later)) as threads:
            with database.write() as session:
                act(session)
                session.flush()
                answers = [threads.submit(each) for each in later]
                if database.is_shared:
                    own = session.scalar(text("SELECT pg_backend_pid()"))
                    _wait(database, own, answers)
            return [each.result(LONGEST_S) for each in answers]
    finally:
        database.close()


def _wait(database: Database, own: int | None, answers: list[Future[T]]) -> None:
    """Wait until all that are not done wait for a lock of the backend `own`."""
    end = time.monotonic() + LONGEST_S
    query = text("SELECT count(*) FROM pg_stat_activity WHERE :own = ANY(pg_blocking_pids(pid))")
    while True:
        left = sum(not each.done() for each in answers)
        with database.read() as session:
            waiting = session.scalar(query, {"own": own}) or 0
        if waiting >= left:
            return
        assert time.monotonic() < end, f"{waiting} of {left} wait"
        time.sleep(0.02)
