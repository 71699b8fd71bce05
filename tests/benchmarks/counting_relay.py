"""A relay that counts bytes, to measure the traffic of parties."""

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit

_CHUNK_BYTES = 1 << 18


class CountingRelay:
    """A local address that passes connections on to a server, and counts their bytes.

    Meant for measurements: give it to one party instead of the server's own address.

    `sent_bytes`, `received_bytes`: As the party sees it, with HTTP headers; without those of TCP
    and TLS.
    """

    def __init__(self, server_url: str) -> None:
        address = urlsplit(server_url)
        self._target = (address.hostname or "", address.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.sent_bytes = self.received_bytes = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> "CountingRelay":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        # Closing alone does not wake a thread that waits for a connection.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        with self._lock:
            still_open = [*self._open]
        for item in still_open:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                party, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._open |= {party, server}
            for source, target, name in (
                (party, server, "sent_bytes"),
                (server, party, "received_bytes"),
            ):
                threading.Thread(
                    target=self._pass_on, args=(source, target, name), daemon=True
                ).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, name: str) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK_BYTES):
                with self._lock:
                    setattr(self, name, getattr(self, name) + len(chunk))
                target.sendall(chunk)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
        with self._lock:
            is_last = source not in self._open
            self._open.discard(target)
        if is_last:
            source.close()
            target.close()
