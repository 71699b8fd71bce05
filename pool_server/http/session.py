"""The parts that a request works with: settings, database, storage, and a session of its own.

Dependencies that wait for nothing are ``async``, here and elsewhere: for every other one FastAPI
asks a thread, which takes longer than most of them do.
"""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from pool_server.database.engine import Database
from pool_server.http.metrics import PoolMetrics
from pool_server.settings import PoolSettings
from pool_server.storage import Storage


@dataclass(frozen=True)
class ServerParts:
    """The parts that `pool_server.app.create_app` wires together."""

    settings: PoolSettings
    database: Database
    storage: Storage
    metrics: PoolMetrics


def server_parts(request: Request) -> ServerParts:
    return cast("ServerParts", request.app.state.parts)


async def get_parts(request: Request) -> ServerParts:
    return server_parts(request)


Parts = Annotated[ServerParts, Depends(get_parts)]


def reading_session(parts: Parts) -> Iterator[Session]:
    with parts.database.read() as session:
        yield session


async def looking_session(parts: Parts) -> AsyncIterator[Session]:
    # Nothing here waits, so it may run in the event loop: PostgreSQL has no transaction to end, and
    # SQLite ends one that only read without touching its disk.
    with parts.database.look() as session:
        yield session


def writing_session(parts: Parts) -> Iterator[Session]:
    with parts.database.write() as session:
        yield session


# The scope "function" ends the dependency, and so commits, before the answer is sent: an answer
# must not report something that could still fail.
ReadingSession = Annotated[Session, Depends(reading_session, scope="function")]
LookingSession = Annotated[Session, Depends(looking_session, scope="function")]
"""For a request that makes few queries and can do with each seeing a moment of its own."""
WritingSession = Annotated[Session, Depends(writing_session, scope="function")]
