"""Running the server, from start to graceful stop.

On SQLite one process serves a data folder; on PostgreSQL any number of processes serve a pool.
"""

import asyncio
import ctypes
import fcntl
import gc
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import uvicorn
from fastapi import FastAPI

from pool_server.app import create_app, prepare_database
from pool_server.errors import StartError
from pool_server.http.connections import (
    Connections,
    log_accept_errors_once,
    most_connections,
    raise_descriptor_limit,
)
from pool_server.http.session import Traffic
from pool_server.settings import PoolSettings
from pool_server.tls import server_certificate

log = logging.getLogger("pool_server")

OnReady = Callable[[str, str | None], None]
LOOK_INTERVAL_S = 0.1
TICKS_PER_LOOK = 10
"""uvicorn ticks ten times a second."""
_M_ARENA_MAX = -8
"""From glibc's malloc.h."""


def run_server(settings: PoolSettings, *, on_ready: OnReady) -> None:
    """Serve a pool until SIGTERM or SIGINT; requests under way are finished first.

    `on_ready` is called once the server answers, with its URL and, at the very first start, with
    the secret of the admin token that was made; it is kept nowhere else.
    """
    raise_descriptor_limit()
    limit_arenas()
    with hold_data_folder(settings), listening_socket(settings) as listener:
        secret = prepare_database(settings)
        server = ReportingServer(settings, lambda: on_ready(url, secret))
        url = socket_url(settings, listener)
        # Loaded objects stay; looking through them for garbage takes longer than a request.
        gc.collect()
        gc.freeze()
        # One answer makes tens of thousands of objects that are gone with it.
        gc.set_threshold(50_000, 10, 10)
        server.run(sockets=[listener])


def limit_arenas() -> None:
    """Let all threads share two arenas of glibc; by default it keeps eight for each processor.

    Memory that is free in one arena is of no use to the threads of another.
    """
    with suppress(OSError, AttributeError):  # Other libraries of C do not know it.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


class ReportingServer(uvicorn.Server):
    """A uvicorn server that reports when it answers, and that answers until it has finished."""

    def __init__(self, settings: PoolSettings, on_ready: Callable[[], None]) -> None:
        app = create_app(settings)
        self._connections = Connections(most_connections(), settings.stall_timeout_s)
        super().__init__(server_configuration(settings, app, self._connections))
        self._traffic: Traffic = app.state.traffic
        self._longest_stop_s = settings.graceful_stop_s
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(log_accept_errors_once())
        await super().startup(sockets=sockets)
        self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_LOOK == 0:
            self._connections.give_up_stalled(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish open requests while still answering; then stop listening, and end.

        uvicorn alone stops listening at once: a load balancer would learn from refused
        connections, not from `/readyz`.
        """
        begun = time.monotonic()
        finishing = asyncio.create_task(self._traffic.stop())
        while not finishing.done() and not self.force_exit:
            left_s = begun + self._longest_stop_s - time.monotonic()
            if left_s <= 0:
                break
            await asyncio.wait([finishing], timeout=min(left_s, LOOK_INTERVAL_S))
        finishing.cancel()
        with suppress(asyncio.CancelledError):
            await finishing
        left_s = begun + self._longest_stop_s - time.monotonic()
        self.config.timeout_graceful_shutdown = max(1, round(left_s))
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Stop gracefully; at the second time at once.

        uvicorn's own handler raises the signal again at the end, so that a server that stopped
        as it was asked to would look as if it had been killed.
        """
        self.force_exit = self.should_exit
        self.should_exit = True


def server_configuration(
    settings: PoolSettings, app: FastAPI, connections: Connections
) -> uvicorn.Config:
    logging.getLogger("pool_server").setLevel(settings.log_level)
    pair = server_certificate(settings)
    return uvicorn.Config(
        app,
        ssl_certfile=None if pair is None else str(pair.certificate),
        ssl_keyfile=None if pair is None else str(pair.key),
        log_config=None,
        access_log=False,
        server_header=False,
        # By default uvicorn believes whatever a client on the same machine says of itself.
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies,
        # The same on every machine, whatever else is installed.
        loop="asyncio",
        http=connections.protocol,
        ws="none",
        lifespan="on",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=settings.graceful_stop_s,
        h11_max_incomplete_event_size=64 * 1024,
    )


@contextmanager
def listening_socket(settings: PoolSettings) -> Iterator[socket.socket]:
    """Bind the address before anything else, so that the port is known and certain."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _address_refused(settings, error) from error
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except OSError as error:
            raise _address_refused(settings, error) from error
        yield listener


def socket_url(settings: PoolSettings, listener: socket.socket) -> str:
    """Return the URL under which this machine reaches the server."""
    return local_url(settings, listener.getsockname()[1])


def local_url(settings: PoolSettings, port: int) -> str:
    """Return the URL of a port under which this machine reaches the server."""
    host = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    scheme = "https" if settings.speaks_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@contextmanager
def hold_data_folder(settings: PoolSettings) -> Iterator[None]:
    """Keep other servers from a data folder that is for one; several may share PostgreSQL."""
    if settings.uses_postgresql:
        yield
        return
    with lock_folder(settings):
        yield


def _require_own_folder(settings: PoolSettings) -> None:
    """Raise `StartError` for a folder without a pool that holds anything else."""
    folder = settings.data_folder
    if settings.uses_postgresql or settings.database_file.exists() or not folder.is_dir():
        return
    # Left by a start that was interrupted, as a log is.
    known = {
        settings.lock_file.name,
        settings.first_token_file.name,
        settings.own_certificate.name,
        "certificate-key.pem",
        settings.storage_folder.name,
        settings.scratch_folder.name,
        settings.backup_folder.name,
    }
    others = sorted(
        path.name for path in folder.iterdir() if path.name not in known and path.suffix != ".log"
    )
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise StartError(
            f"{folder} holds other things ({', '.join(others[:3])}{more}), expected the folder of "
            "a pool, an empty one, or none",
            code="folder_unusable",
            hint="Give a new folder with --data.",
        )


@contextmanager
def lock_folder(settings: PoolSettings) -> Iterator[None]:
    """Make the data folder and hold it for this process alone.

    The lock is the system's: it ends with the process, however that ends.
    """
    _require_own_folder(settings)
    try:
        settings.data_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(settings.lock_file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StartError(
            f"the data folder {settings.data_folder} cannot be used: {error.strerror}",
            code="folder_unusable",
            hint="Give another one with --data.",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            raise StartError(
                f"the data folder {settings.data_folder} is used by another pool server "
                f"(process {holder})",
                code="folder_busy",
                hint=f"Stop it with `kill {holder}`, or give another folder with --data.",
            ) from error
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)


def _address_refused(settings: PoolSettings, error: OSError) -> StartError:
    return StartError(
        f"cannot listen on {settings.host} port {settings.port}: {error.strerror}",
        code="address_busy",
        hint="Give another port with --port; --port 0 takes any free one.",
    )
