"""A real pool for tests of its clients, and a line to it that can be slow, counted and cut."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.pool_server.pool_driver import pool_in_thread

_REQUEST_END = b" HTTP/1.1\r\n"


@dataclass(frozen=True)
class LivePool:
    """A pool that runs in a thread of this process, and tokens for it."""

    url: str
    admin_token: str
    tokens: dict[str, str]


@contextmanager
def live_pool(
    folder: Path, *, part_bytes: int = 1 << 20, rights: str = "download,merge"
) -> Iterator[LivePool]:
    """Run a pool with the sites site-a and site-b, a contributor each and a viewer ``reader``."""
    fields = {"part_bytes": part_bytes, "default_rights": rights, "log_level": "WARNING"}
    with pool_in_thread(folder, **fields) as pool:
        tokens = {}
        for key, site, name, role in (
            ("site-a", "site-a", "laptop", "contributor"),
            ("site-b", "site-b", "laptop", "contributor"),
            ("reader", "site-a", "reader", "viewer"),
        ):
            pool.admin.post("/api/v1/sites", json={"name": site})
            request = {"site": site, "name": name, "role": role}
            tokens[key] = pool.admin.post("/api/v1/tokens", json=request).json()["secret"]
        yield LivePool(pool.url, pool.admin_secret, tokens)


class UnreliableLine:
    """A relay in front of a server.

    Attributes
    ----------
    bytes_per_s : float or None
        How fast each connection is, in each direction.
    cut_after_bytes : int or None
        Number of bytes from either side after which a connection breaks.
    cuts_left : int
        How often that happens.
    requests : int
        Requests that came through.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 80)
        self.bytes_per_s: float | None = None
        self.cut_after_bytes: int | None = None
        self.cuts_left = 0
        self.requests = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._counting = threading.Lock()
        self._closed = threading.Event()
        self._start(self._accept)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def turn_to(self, url: str) -> None:
        """Relay to another server from now on, like a load balancer after its server has died."""
        parts = urlsplit(url)
        self._target = (parts.hostname or "", parts.port or 80)

    def break_connections(self) -> None:
        """Break all open connections, at any byte; new ones are accepted."""
        for end in tuple(self._sockets):
            _break(end)

    def __enter__(self) -> UnreliableLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        # Closing alone does not wake a thread that is in accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._sockets:
            end.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=540)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            self._sockets += [near, far]
            self._start(self._pump, near, far, True)
            self._start(self._pump, far, near, False)

    def _pump(self, source: socket.socket, sink: socket.socket, is_upward: bool) -> None:
        passed = 0
        tail = b""
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                passed += len(chunk)
                with self._counting:
                    if is_upward:
                        self.sent_bytes += len(chunk)
                        self.requests += (tail + chunk).count(_REQUEST_END)
                        tail = chunk[-len(_REQUEST_END) + 1 :]
                    else:
                        self.received_bytes += len(chunk)
                if self.bytes_per_s is not None:
                    self._closed.wait(len(chunk) / self.bytes_per_s)
                limit = self.cut_after_bytes
                with self._counting:
                    is_cut = limit is not None and passed > limit and self.cuts_left > 0
                    self.cuts_left -= is_cut
                if is_cut:
                    _break(source)
                    _break(sink)
                    return
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _break(end: socket.socket) -> None:
    """Close so that the other side gets a reset, as when a router restarts."""
    with suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
