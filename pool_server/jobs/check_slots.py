"""The slots for checks of files: how many run at once, and which site is next.

Not in `transfers.checking`: that program would load FastAPI with it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Annotated, ParamSpec, TypeVar, cast

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from pool_server.errors import UploadBusyError

LEAST_AT_ONCE = 4
LONGEST_WAIT_S = 30.0
RETRY_AFTER_S = 5

P = ParamSpec("P")
T = TypeVar("T")


class CheckSlots:
    """Work that takes a processor for seconds or minutes, in threads of its own.

    Waiting for a slot takes no thread, so that short requests go on meanwhile; a request that has
    waited for too long is refused, to be sent again. A free slot goes to the site that has the
    fewest, and the last one never to a site that has all others. There is one for each processor,
    and at least `LEAST_AT_ONCE`.
    """

    def __init__(self, count: int = 0, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._count = count or max(LEAST_AT_ONCE, os.cpu_count() or 1)
        self._longest_wait_s = longest_wait_s
        self._taken: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []
        self._threads = anyio.CapacityLimiter(self._count)

    async def run(self, site: str, act: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `act` in a thread once there is a slot for `site`, and return its result."""
        async with self._slot(site):
            return await anyio.to_thread.run_sync(
                lambda: act(*args, **kwargs), limiter=self._threads
            )

    @asynccontextmanager
    async def _slot(self, site: str) -> AsyncIterator[None]:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((site, turn))
        self._give_out()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(turn), self._longest_wait_s)
            if not turn.done():
                raise UploadBusyError(
                    "the pool is reading other files at this moment",
                    hint="Ask for it again in a moment.",
                    details={"retry_after_s": RETRY_AFTER_S},
                )
            yield
        finally:
            if turn.done():
                self._taken[site] -= 1
            else:
                self._waiting.remove((site, turn))
            self._give_out()

    def _give_out(self) -> None:
        """Assign free slots to waiting requests, those of the least busy site first."""
        while self._waiting and self._taken.total() < self._count:
            first = min(self._waiting, key=lambda waiter: self._taken[waiter[0]])
            site, turn = first
            if self._taken[site] and self._taken[site] >= self._count - 1:
                return
            self._waiting.remove(first)
            self._taken[site] += 1
            turn.set_result(None)


async def check_slots(request: Request) -> CheckSlots:
    return cast("CheckSlots", request.app.state.check_slots)


Checks = Annotated[CheckSlots, Depends(check_slots)]
