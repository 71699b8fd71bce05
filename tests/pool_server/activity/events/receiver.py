"""A server of a site that takes calls of webhooks, and answers as it is told to."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Call:
    """One call that came."""

    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    def is_signed_with(self, secret: str) -> bool:
        """Check a call as the documentation of the pool tells receivers to."""
        timestamp = self.headers["x-pool-timestamp"]
        wanted = hmac.new(
            secret.encode(), timestamp.encode() + b"." + self.body, hashlib.sha256
        ).hexdigest()
        is_fresh = abs(time.time() - int(timestamp)) < 300
        return is_fresh and self.headers["x-pool-signature"] == f"sha256={wanted}"


@dataclass
class Receiver:
    """Calls as they came; `answers` are the statuses to give, the last one for ever."""

    url: str
    calls: list[Call] = field(default_factory=list)
    answers: list[int] = field(default_factory=lambda: [204])
    location: str = ""
    came: threading.Condition = field(default_factory=threading.Condition)

    def wait_for(self, count: int) -> list[Call]:
        """Wait until so many calls have come, and return them all."""
        with self.came:
            assert self.came.wait_for(lambda: len(self.calls) >= count, 60), self.calls
            return list(self.calls)


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Take calls on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): text for name, text in self.headers.items()}
            with receiver.came:
                receiver.calls.append(Call(headers, body))
                answers = receiver.answers
                status = answers.pop(0) if len(answers) > 1 else answers[0]
                receiver.came.notify_all()
            self.send_response(status)
            if receiver.location:
                self.send_header("Location", receiver.location)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}/events?from=pool")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join(10)


def wait_until(condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    """Wait for something that happens in the background."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.05)
