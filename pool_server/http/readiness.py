"""Whether this process can serve, looked at by a thread that nothing else waits for."""

from __future__ import annotations

import asyncio
from typing import Annotated, cast

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from pool_server.errors import DatabaseUnavailableError
from pool_server.http.session import ServerParts


class Readiness:
    """Whether database and storage answer; however many ask at a time, it is looked at once."""

    def __init__(self, parts: ServerParts) -> None:
        self._parts = parts
        self._thread = anyio.CapacityLimiter(1)
        self._looking: asyncio.Future[None] | None = None

    async def require(self) -> None:
        """Raise `DatabaseUnavailableError` or `StorageFailedError` unless both answer now."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(
                anyio.to_thread.run_sync(self._look, limiter=self._thread)
            )
        await asyncio.shield(self._looking)

    def _look(self) -> None:
        if not self._parts.database.answers():
            raise DatabaseUnavailableError("the database does not answer")
        self._parts.storage.check()


async def readiness(request: Request) -> Readiness:
    return cast("Readiness", request.app.state.readiness)


ProcessReadiness = Annotated[Readiness, Depends(readiness)]
