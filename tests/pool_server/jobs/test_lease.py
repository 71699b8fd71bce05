"""A lease is renewed while its work lasts."""

import threading

from pool_server.errors import DatabaseUnavailableError
from pool_server.jobs.background import keep_renewed
from pool_server.settings import PoolSettings


def test_a_lease_is_renewed_also_after_a_failure() -> None:
    renewed = threading.Semaphore(0)
    first = True

    def renew() -> None:
        nonlocal first
        renewed.release()
        if first:
            first = False
            raise DatabaseUnavailableError("the database does not answer")

    with keep_renewed(PoolSettings.model_construct(lease_s=0.03), "a test", renew):
        for _ in range(3):
            assert renewed.acquire(timeout=540)
