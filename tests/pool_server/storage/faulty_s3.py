"""A proxy in front of a server that damages its answers, as networks and servers do."""

import http.client
import re
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit


@dataclass
class Answer:
    """An answer of the server on its way to the client."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    cut: bool = False
    """The connection ends in the middle of the body, or before it where there is none."""


def error_answer(status: int, code: str) -> Answer:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>-</Message></Error>".encode()
    return Answer(status, [("Content-Type", "application/xml")], body)


def cut(answer: Answer) -> Answer:
    answer.cut = True
    return answer


def flip_byte(answer: Answer) -> Answer:
    """Change a byte in the middle of the body, or of the ETag where there is no body."""
    middle = len(answer.body) // 2
    if answer.body:
        flipped = bytes([answer.body[middle] ^ 1])
        answer.body = answer.body[:middle] + flipped + answer.body[middle + 1 :]
        return answer
    return change_etag(answer)


def change_etag(answer: Answer) -> Answer:
    answer.headers = [
        (name, '"0123456789abcdef0123456789abcdef"' if name.lower() == "etag" else value)
        for name, value in answer.headers
    ]
    answer.body = re.sub(rb"(<ETag>).*?(</ETag>)", rb'\1"0123456789abcdef"\2', answer.body)
    return answer


def drop_upload_id(answer: Answer) -> Answer:
    answer.body = re.sub(rb"<UploadId>.*?</UploadId>", b"", answer.body)
    return answer


Fault = Callable[[Answer], Answer | None]
"""Returns the damaged answer; None: there is none."""


def hang(_answer: Answer) -> None:
    """Say nothing until the fault ends."""


def reset(_answer: Answer) -> None:
    """Reset the connection before the request goes on."""


FAULTS: dict[str, Fault] = {
    "hang": hang,
    "reset": reset,
    "cut": cut,
    "flipped byte": flip_byte,
    "500": lambda _answer: error_answer(500, "InternalError"),
    "503": lambda _answer: error_answer(503, "SlowDown"),
    "wrong ETag": change_etag,
    "no UploadId": drop_upload_id,
    "clock skew": lambda _answer: error_answer(403, "RequestTimeTooSkewed"),
}


@dataclass
class FaultyProxy:
    """Passes requests on; `fault` damages all answers, or with `is_once` the first of each kind."""

    target: str
    fault: Fault | None = None
    is_once: bool = False
    hit: set[object] = field(default_factory=set)
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._server = _QuietServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self}))
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def damage(self, fault: Fault | None, *, is_once: bool = False) -> None:
        self.fault, self.is_once = fault, is_once
        if fault is not None:
            self.hit.clear()
        # Those that hang end with the fault.
        self.released.set()
        self.released = threading.Event()

    def close(self) -> None:
        self.damage(None)
        self._server.shutdown()
        self._server.server_close()

    def receive(self, _head: str, path: str, body: bytes) -> tuple[str, bytes] | Answer:
        """Return path and body to pass on, or an answer for which the server is not asked."""
        return path, body

    def fault_of(self, method: str, path: str) -> Fault | None:
        parts = urlsplit(path)
        places = re.findall(r"/(uploads|blobs|verified|published|probe)", parts.path)
        asked = tuple(sorted(name for name, _ in parse_qsl(parts.query, keep_blank_values=True)))
        kind = (method, tuple(places[:1]), asked)
        if self.is_once and kind in self.hit:
            return None
        if self.fault is not None:
            self.hit.add(kind)
        return self.fault


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_arguments: object) -> None:
        """Say nothing: the pool gives up connections that hang."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: FaultyProxy

    def handle_any(self) -> None:
        head = f"{self.command} {self.path}\n{self.headers}"
        received = self.proxy.receive(head, self.path, self._read_body())
        path = self.path if isinstance(received, Answer) else received[0]
        fault = self.proxy.fault_of(self.command, path)
        if fault is reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
            return
        if fault is hang:
            self.proxy.released.wait(60)
            self.close_connection = True
            return
        answer = received if isinstance(received, Answer) else self._ask(*received)
        damaged = answer if fault is None else fault(answer)
        assert damaged is not None
        self._send(damaged)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815

    def _read_body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _ask(self, path: str, body: bytes) -> Answer:
        target = urlsplit(self.proxy.target)
        far = http.client.HTTPConnection(target.hostname or "", target.port, timeout=120)
        try:
            left_out = {"expect", "content-length"}
            headers = {k: v for k, v in self.headers.items() if k.lower() not in left_out}
            far.request(self.command, path, body or None, headers)
            answer = far.getresponse()
            kept = [
                (name, value)
                for name, value in answer.getheaders()
                if name.lower() not in {"connection", "transfer-encoding"}
            ]
            return Answer(answer.status, kept, answer.read())
        finally:
            far.close()

    def _send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        names = {name.lower() for name, _ in answer.headers}
        for name, value in answer.headers:
            self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(answer.body)))
        if answer.cut and not answer.body:
            self.close_connection = True
            self.wfile.flush()
            return
        self.end_headers()
        if self.command != "HEAD":
            length = len(answer.body) // 2 if answer.cut else len(answer.body)
            self.wfile.write(answer.body[:length])
        self.close_connection |= answer.cut

    def log_message(self, *_arguments: object) -> None:
        pass
