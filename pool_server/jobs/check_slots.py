"""The slots for checks of files: how many run at once, and which site is next.

Not in `transfers.checking`: that program would load FastAPI with it.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, TypeVar, cast

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from pool_server.errors import ServerBusyError

LEAST_AT_ONCE = 4
# Longer than a queue of small files takes; a proxy must wait for the answer as well.
LONGEST_WAIT_S = 120.0
RETRY_AFTER_S = 5
LARGE_BYTES = 16 * 1024 * 1024
PATIENCE_S = 20.0
"""A file that has waited for so long counts as a small one."""

T = TypeVar("T")


@dataclass(eq=False)
class Turn:
    """A request that waits for a slot, or has one."""

    site: str
    size_bytes: int
    since_s: float
    turn: asyncio.Future[None]

    @property
    def is_large(self) -> bool:
        return self.size_bytes > LARGE_BYTES

    def cost(self, now_s: float) -> int:
        return self.size_bytes if now_s - self.since_s < PATIENCE_S else 0


class CheckSlots:
    """Work that takes a processor for seconds or minutes, in threads of its own.

    Waiting for a slot takes no thread, so that short requests go on meanwhile; a request that has
    waited for too long is refused, to be sent again. A free slot goes to the site that has the
    fewest, there to the smallest file, and the last one neither to a site that has all others nor
    to a large file. There is one for each processor, and at least `LEAST_AT_ONCE`.
    """

    def __init__(self, count: int = 0, longest_wait_s: float = LONGEST_WAIT_S) -> None:
        self._count = count or max(LEAST_AT_ONCE, os.cpu_count() or 1)
        self._longest_wait_s = longest_wait_s
        self._taken: Counter[str] = Counter()
        self._large_taken = 0
        self._waiting: list[Turn] = []
        self._threads = anyio.CapacityLimiter(self._count)

    async def run(self, site: str, act: Callable[[], T], size_bytes: int = 0) -> T:
        """Run `act`, which reads a file, in a thread once `site` has a slot; return its result."""
        async with self._slot(site, size_bytes):
            return await anyio.to_thread.run_sync(act, limiter=self._threads)

    @asynccontextmanager
    async def _slot(self, site: str, size_bytes: int) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        wait = Turn(site, size_bytes, loop.time(), loop.create_future())
        turn = wait.turn
        self._waiting.append(wait)
        self._give_out()
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(turn), self._longest_wait_s)
            if not turn.done():
                raise ServerBusyError(
                    "the pool is reading other files at this moment",
                    hint="Ask for it again in a moment.",
                    details={"retry_after_s": RETRY_AFTER_S},
                )
            yield
        finally:
            if turn.done():
                self._taken[site] -= 1
                self._large_taken -= wait.is_large
            else:
                self._waiting.remove(wait)
            self._give_out()

    def _give_out(self) -> None:
        """Assign free slots to waiting requests, those of the least busy site first."""
        now_s = asyncio.get_running_loop().time()
        most = self._count - 1
        while self._taken.total() < self._count:
            may_go = [
                wait
                for wait in self._waiting
                if not (wait.is_large and self._large_taken >= most > 0)
                and not (self._taken[wait.site] >= most > 0)
            ]
            if not may_go:
                return
            first = min(may_go, key=lambda wait: (self._taken[wait.site], wait.cost(now_s)))
            self._waiting.remove(first)
            self._taken[first.site] += 1
            self._large_taken += first.is_large
            first.turn.set_result(None)


async def check_slots(request: Request) -> CheckSlots:
    return cast("CheckSlots", request.app.state.check_slots)


Checks = Annotated[CheckSlots, Depends(check_slots)]
