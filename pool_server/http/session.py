"""Dependencies of requests, and the requests under way in a server process.

Dependencies that do not block are ``async``, here and elsewhere: FastAPI runs every other one in a
thread, which takes longer than most of them do.
"""

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

import anyio
import anyio.to_thread
from fastapi import Depends, Request
from sqlalchemy.orm import Session

from pool_server.database.engine import Database
from pool_server.errors import PoolError, StorageFailedError, StorageFullError, TooManyRequestsError
from pool_server.http.metrics import PoolMetrics
from pool_server.settings import PoolSettings
from pool_server.storage import Storage

log = logging.getLogger("pool_server.http.session")


@dataclass(frozen=True)
class ServerParts:
    """Shared objects of the server, made by `pool_server.app.create_app`."""

    settings: PoolSettings
    database: Database
    storage: Storage
    metrics: PoolMetrics
    merge_wanted: threading.Event = field(default_factory=threading.Event)
    """Set when this process has queued a merge, so that the worker starts it at once."""
    round_wanted: threading.Event = field(default_factory=threading.Event)


def server_parts(request: Request) -> ServerParts:
    return cast("ServerParts", request.app.state.parts)


def of_app(name: str) -> Any:
    """Return a dependency on an object that `create_app` made for this process."""

    async def find(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(find)


Parts = Annotated[ServerParts, of_app("parts")]


async def reading_session(parts: Parts) -> AsyncIterator[Session]:
    database = parts.database
    # A file's reading transaction ends without waiting for anybody.
    async with begun(database.read(), ends_in_thread=database.is_shared) as session:
        yield session


async def writing_session(parts: Parts) -> AsyncIterator[Session]:
    async with begun(parts.database.write(), ends_in_thread=True) as session:
        yield session


@asynccontextmanager
async def begun(
    transaction: AbstractContextManager[Session], *, ends_in_thread: bool
) -> AsyncIterator[Session]:
    """Begin a transaction, which asks nothing of the database yet, and end it with the block."""

    async def end(error: BaseException | None) -> bool | None:
        raised = (None if error is None else type(error), error, None)
        if not ends_in_thread:
            return transaction.__exit__(*raised)
        # Not one of the usual threads: they may all wait for the connection given back here.
        limiter = anyio.CapacityLimiter(1)
        return await anyio.to_thread.run_sync(transaction.__exit__, *raised, limiter=limiter)

    session = transaction.__enter__()
    try:
        yield session
    except BaseException as error:
        if not await end(error):
            raise
    else:
        await end(None)


# The scope "function" ends the dependency, and so commits, before the answer is sent: an answer
# must not report something that could still fail.
ReadingSession = Annotated[Session, Depends(reading_session, scope="function")]
WritingSession = Annotated[Session, Depends(writing_session, scope="function")]


LOOK_INTERVAL_S = 0.05
TRUSTED_S = 1.0
"""How long a look at database and storage counts."""
MOST_FROM_ADDRESS = 100
"""Requests of one address under way at once: those of others wait for a thread behind them."""


class Traffic:
    """The requests under way in one process; all but `is_stopping` for its event loop only."""

    def __init__(self) -> None:
        self._under_way: set[object] = set()
        self._from_address: Counter[str] = Counter()
        self._stopping = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        """True if the process ends once it has finished the requests under way."""
        return self._stopping.is_set()

    @contextmanager
    def under_way(self, address: str | None) -> Iterator[None]:
        """Count a request while it is served, among those of its address if one is given."""
        if address is not None and self._from_address[address] >= MOST_FROM_ADDRESS:
            raise TooManyRequestsError(
                f"{MOST_FROM_ADDRESS} requests from your address are under way",
                hint="Wait for their answers before you send more.",
                details={"retry_after_s": 1},
            )
        request = object()
        self._under_way.add(request)
        if address is not None:
            self._from_address[address] += 1
        try:
            yield
        finally:
            self._under_way.remove(request)
            if address is not None:
                self._from_address[address] -= 1
                if not self._from_address[address]:
                    del self._from_address[address]

    async def stop(self) -> None:
        """Say that the process is about to end, and wait for the requests under way by now.

        Those that come meanwhile are served, too, and not waited for: a load balancer takes a
        moment to notice, and nobody may hold the end up by asking on and on.
        """
        self._stopping.set()
        before = frozenset(self._under_way)
        while before & self._under_way:
            await asyncio.sleep(LOOK_INTERVAL_S)


ProcessTraffic = Annotated[Traffic, of_app("traffic")]


class Readiness:
    """A check that database and storage take writes; simultaneous requests share one look.

    At most once a second: anyone may ask, and a write waits for the disk.
    """

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._thread = anyio.CapacityLimiter(1)
        self._looking: asyncio.Future[None] | None = None
        self._trusted_until_s = 0.0

    async def require(self) -> None:
        """Raise `DatabaseUnavailableError` or `StorageFailedError` unless both take writes now."""
        if time.monotonic() < self._trusted_until_s:
            return
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(
                anyio.to_thread.run_sync(self._look, limiter=self._thread)
            )
        await asyncio.shield(self._looking)

    def _look(self) -> None:
        try:
            self._parts.database.require_write()
            self._parts.storage.check()
        except StorageFullError as error:
            # 507 would be the requester's to solve.
            raise StorageFailedError(error.message) from error
        except PoolError as error:
            log.warning("not ready: %s", error)
            raise
        self._trusted_until_s = time.monotonic() + TRUSTED_S


ProcessReadiness = Annotated[Readiness, of_app("readiness")]
