"""Connections of clients: how long one may stall, and how many there may be.

uvicorn waits without end for the rest of a request. Here stalled clients are disconnected. At the
connection limit, the idlest connection of the client with the most is closed to admit a new client;
none is closed while it is served.
"""

import asyncio
import errno
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pool_server.http.error_responses import error_response
from pool_server.http.rate_limits import rate_limit_key

log = logging.getLogger("pool_server.connections")

LEAST_BODY_BYTES = 16 * 1024
"""The least that a client sends of a body in the time that it may stall."""
MOST_CONNECTIONS = 4096
MOST_DESCRIPTORS = 65_536
# Each request may open files and connections of its own.
DESCRIPTORS_PER_CONNECTION = 2
# Choosing connections takes longer than accepting one, so a batch of them is closed at once.
SHARE_MAKING_ROOM = 16
QUIET_S = 60.0


class Connections:
    """The open connections of one process, at most `most` at once; for its event loop only.

    `stall_s` is how long a client may take for the head of a request, for the next
    `LEAST_BODY_BYTES` of its body, or for reading on in an answer.
    """

    def __init__(self, most: int, stall_s: float) -> None:
        self._most = most
        self._stall_s = stall_s
        self._open: set[WatchedProtocol] = set()

    @property
    def protocol(self) -> Any:
        """The class of protocol that uvicorn makes for each connection (its `http`)."""
        return partial(WatchedProtocol, self)

    def add(self, newcomer: "WatchedProtocol") -> None:
        """Add a new connection; if there are too many, close idle ones, or else the new one."""
        self._open.add(newcomer)
        if len(self._open) <= self._most:
            return
        holders = Counter(connection.holder for connection in self._open)
        leaving = sorted(
            (connection for connection in self._open if connection.waits_for_client),
            key=lambda connection: (-holders[connection.holder], connection.waiting_since_s),
        )
        for connection in leaving[: max(1, self._most // SHARE_MAKING_ROOM)] or [newcomer]:
            connection.transport.close()
            self._open.discard(connection)

    def remove(self, connection: "WatchedProtocol") -> None:
        self._open.discard(connection)

    def give_up_stalled(self, now_s: float) -> None:
        """Close connections with clients that have stalled for too long."""
        for connection in list(self._open):
            connection.look(now_s, self._stall_s)


class WatchedProtocol(H11Protocol):
    """One connection that speaks HTTP/1.1, with an eye on how its client gets on.

    `holder` is the client's address or network; `waiting_since_s` is when the client was last seen
    to get on, in the event loop's time.
    """

    def __init__(self, connections: Connections, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._connections = connections
        self._received_bytes = 0
        self._seen: Hashable = None
        self.holder = ""
        self.waiting_since_s = self.loop.time()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.holder = rate_limit_key(self.client[0] if self.client else "")
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received_bytes += len(data)
        super().data_received(data)

    @property
    def waits_for_client(self) -> bool:
        """True if no request is being served: none was sent, or none is whole."""
        return self.conn.their_state in {h11.IDLE, h11.SEND_BODY}

    def look(self, now_s: float, stall_s: float) -> None:
        """Disconnect the client if it should act, but has neither sent nor read for `stall_s`."""
        place = self._place()
        if place is None or place != self._seen:
            self._seen, self.waiting_since_s = place, now_s
        elif now_s - self.waiting_since_s > stall_s:
            self._give_up()

    def _place(self) -> Hashable:
        """Return the client's progress in sending or reading; None if it need not act."""
        if self.transport.is_closing() or self.flow.write_paused:
            return "answer", self.transport.get_write_buffer_size()
        if self.conn.their_state is h11.SEND_BODY:
            if self.flow.read_paused or self.conn.they_are_waiting_for_100_continue:
                return None
            return "body", self._received_bytes // LEAST_BODY_BYTES
        # uvicorn itself closes connections on which nothing came after a request.
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            return "head", id(self.cycle)
        return None

    def _give_up(self) -> None:
        has_no_answer = self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}
        if self.transport.is_closing() or self.flow.write_paused or not has_no_answer:
            self.transport.abort()
            return
        if self.cycle is not None:
            # The application serving the request must not answer as well.
            self.cycle.disconnected = True
        said = "The rest of the request did not come in time."
        answer = error_response(408, "request_timeout", said, headers={"Connection": "close"})
        lines = [b": ".join(header) for header in answer.raw_headers]
        head = b"\r\n".join([b"HTTP/1.1 408 Request Timeout", *lines, b"", b""])
        self.transport.write(head + bytes(answer.body))
        self.transport.close()


def raise_descriptor_limit() -> None:
    """Raise the limit on open files and sockets as far as possible; warn if it is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if (most := most_connections()) < MOST_CONNECTIONS:
        log.warning(
            "this process may open %d files and sockets, which is enough for %d connections; "
            "raise the limit (`ulimit -n`, LimitNOFILE of systemd) for up to %d",
            limit,
            most,
            MOST_CONNECTIONS,
        )


def most_connections() -> int:
    """Return how many connections the descriptors of this process are enough for."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    return min(MOST_CONNECTIONS, soft // DESCRIPTORS_PER_CONNECTION)


def log_accept_errors_once() -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Return an exception handler for an event loop that reports failures to accept once a minute.

    asyncio reports each of them, thousands a second when there are no descriptors left.
    """
    reported_s = -QUIET_S

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal reported_s
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in {
            errno.EMFILE,
            errno.ENFILE,
            errno.ENOBUFS,
            errno.ENOMEM,
        }:
            loop.default_exception_handler(context)
        elif time.monotonic() - reported_s >= QUIET_S:
            reported_s = time.monotonic()
            log.error("no new connections at this moment: %s", error.strerror)

    return handle
