"""Around every request: an identifier, a limit, security headers, and one line in the log."""

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pool_server import errors
from pool_server.database.engine import MOST_ATTEMPTS, pause_s
from pool_server.http.error_responses import error_text, respond_to_pool_error
from pool_server.http.metrics import PoolMetrics, route_of
from pool_server.http.paths import HEALTH_PATHS, OPEN_PATHS, is_streamed
from pool_server.http.rate_limits import rate_limit_key
from pool_server.http.session import Traffic
from pool_server.logs import request_id
from pool_server.wire.versions import API_VERSION, OLDEST_CLIENT, VERSION_HEADER

log = logging.getLogger("pool_server.requests")

_REQUEST_ID = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
# The escape of a high surrogate without a low one after it, or of a low one without a high one.
_HALF_PAIR = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
MOST_ANONYMOUS_BYTES = 16 * 1024
"""The most bytes of a body from a sender without a valid token or session."""
# Pydantic describes every unknown name of an object before anything can refuse them.
MOST_MEMBERS = 20_000
_MEMBER = re.compile(rb'(?<!\\)"\s*:')
# How much of a refused body is read away, so that a client that is still sending gets to read
# the answer instead of a broken connection.
DRAIN_BYTES = 64 * 1024 * 1024

# Not sent to anybody; for the log.
CLIENT_WENT_AWAY = 499

SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


IsKnown = Callable[[Scope], Awaitable[bool]]
"""Look up whether a request has a valid token or session."""


class RequestContext:
    """The outermost layer: nothing leaves the server without passing it."""

    def __init__(
        self,
        app: ASGIApp,
        max_request_bytes: int,
        metrics: PoolMetrics,
        traffic: Traffic,
        is_known: IsKnown,
    ) -> None:
        self.app = app
        self.metrics = metrics
        self.traffic = traffic
        self.max_request_bytes = max_request_bytes
        self.is_known = is_known

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = Exchange(self, scope, receive, send)
        of_request = request_id.set(exchange.request_id)
        try:
            await exchange.run(self.app)
            exchange.write_log()
            exchange.count(self.metrics)
        finally:
            request_id.reset(of_request)


def count_members(body: bytes) -> int:
    """Return how many names of values JSON has, at most; without reading it."""
    if body.count(b":") <= MOST_MEMBERS:
        return 0
    return sum(1 for _ in _MEMBER.finditer(body.replace(rb"\\", b"--")))


def is_unicode(body: bytes) -> bool:
    """Return whether JSON is UTF-8 and its escapes stand for whole characters.

    JSON can spell half of a surrogate pair. Python reads it, and no answer could hold it.
    """
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    # Python reads UTF-16 as well, which has zeros. A backslash after a backslash begins no escape.
    return b"\0" not in body and _HALF_PAIR.search(body.replace(rb"\\", b"--")) is None


class Exchange:
    """One request and its answer."""

    def __init__(self, context: RequestContext, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self._receive = receive
        self._send = send
        # Parts have a limit of their own, by upload.
        self._limit = None if is_streamed(scope) else context.max_request_bytes
        self._is_known = context.is_known
        self._traffic = context.traffic
        self._headers = Headers(scope=scope)
        self._received_bytes = 0
        self._body_ended = False
        self._closes = False
        self._status = 0
        self._sent_bytes = 0
        self._received: list[Message] = []
        self._replaying: list[Message] = []
        self._started = time.monotonic()
        client_id = self._headers.get("x-request-id", "")
        self.request_id = client_id if _REQUEST_ID.fullmatch(client_id) else secrets.token_hex(8)
        scope["pool_request_id"] = self.request_id

    async def run(self, app: ASGIApp) -> None:
        try:
            if refusal := self._refuse_version() or await self._refuse_body():
                await self._answer(refusal)
                return
            with self._traffic.under_way(self._counted_address()):
                await self._run_until_settled(app)
        except ClientDisconnect:
            self._status = CLIENT_WENT_AWAY
        except errors.PoolError as error:
            await self._answer(error)
        except Exception:
            log.exception("request %s failed", self.request_id)
            if not self._status:
                hint = f"Report to the pool's admin the request id {self.request_id}."
                await self._answer(
                    errors.InternalError(error_text(errors.InternalError), hint=hint)
                )
            else:
                raise

    def _refuse_version(self) -> errors.PoolError | None:
        """Return the refusal of a client that is too old or too new for this pool."""
        text = self._headers.get(VERSION_HEADER, "")
        if not text.isdecimal() or OLDEST_CLIENT <= int(text[:9]) <= API_VERSION:
            return None
        is_old = int(text[:9]) < OLDEST_CLIENT
        return errors.ClientVersionError(
            f"this client speaks version {text[:9]} of the API, expected {OLDEST_CLIENT} to "
            f"{API_VERSION}: the client is too {'old' if is_old else 'new'} for this pool",
            code="client_too_old" if is_old else "client_too_new",
            hint="Install a newer poolctl here."
            if is_old
            else "Ask the pool's admin to upgrade the pool, or install an older poolctl here.",
        )

    async def _refuse_body(self) -> errors.PoolError | None:
        """Read a body that has a limit, before anything waits for it; return its refusal."""
        if "content-length" in self._headers and "transfer-encoding" in self._headers:
            # A proxy that goes by the other of the two would see the next request elsewhere.
            self._closes = True
            return errors.InvalidRequestError(
                "the request has both Content-Length and Transfer-Encoding, expected one of them"
            )
        if self._limit is None:
            return None
        if too_large := await self._read_body(self._limit):
            return too_large
        body = b"".join(message.get("body", b"") for message in self._received)
        if count_members(body) > MOST_MEMBERS:
            problem = f"the request's body has more than {MOST_MEMBERS:,} names of values"
            return errors.InvalidRequestError(problem)
        if is_unicode(body):
            return None
        return errors.InvalidRequestError("the request's body has text that is not Unicode")

    async def _read_body(self, most_bytes: int) -> errors.TooLargeError | None:
        """Read the body; senders are looked up only for more than anybody may send."""
        limit = min(MOST_ANONYMOUS_BYTES, most_bytes)
        length = self._headers.get("content-length", "0")
        size_bytes = int(length) if length.isdecimal() else 0
        while True:
            if size_bytes > limit and limit < most_bytes and await self._may_send_more():
                limit = most_bytes
            if size_bytes > limit:
                return errors.TooLargeError(f"the request's body is larger than {limit:,} bytes")
            if self._body_ended:
                return None
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._received.append(message)
            size_bytes = max(size_bytes, self._received_bytes)

    async def _may_send_more(self) -> bool:
        return self.scope["path"] not in OPEN_PATHS and await self._is_known(self.scope)

    def _counted_address(self) -> str | None:
        """Return the address to count this request under; None for parts and health checks."""
        if self._limit is None or self.scope["path"] in HEALTH_PATHS:
            return None
        client = self.scope.get("client")
        return rate_limit_key(client[0]) if client else ""

    async def _run_until_settled(self, app: ASGIApp) -> None:
        """Handle the request, again if its transaction conflicted with that of another request.

        The losing transaction has left nothing behind. The second attempt sees the changes of the
        first winner and ends as it should: mostly by reporting that something exists already.
        """
        untouched = dict(self.scope)
        for attempt in range(MOST_ATTEMPTS):
            self._replaying = list(self._received)
            try:
                await app(self.scope, self.receive, self.send)
                return
            except errors.WriteConflictError:
                can_repeat = self._limit is not None and not self._status
                if not can_repeat or attempt + 1 == MOST_ATTEMPTS:
                    raise
            await asyncio.sleep(pause_s(attempt))
            self.scope.clear()
            self.scope.update(untouched)

    async def _answer(self, refusal: errors.PoolError) -> None:
        response = respond_to_pool_error(refusal, self.request_id)
        await response(self.scope, self._receive, self.send)

    async def receive(self) -> Message:
        if self._replaying:
            return self._replaying.pop(0)
        message = await self._receive()
        if message["type"] == "http.request":
            self._received_bytes += len(message.get("body", b""))
            self._body_ended = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            if self._status >= 400:
                await self._drain()
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.request_id
            if self._closes or self._traffic.is_stopping:
                headers["connection"] = "close"
            if (location := headers.get("location")) is not None:
                headers["location"] = self._relative(location)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
        elif message["type"] == "http.response.body":
            self._sent_bytes += len(message.get("body", b""))
        await self._send(message)

    def _relative(self, location: str) -> str:
        """Return an address of this server without the host that the client claims for it."""
        parts = urlsplit(location)
        if not parts.netloc or parts.netloc != self._headers.get("host"):
            return location
        return urlunsplit(("", "", parts.path, parts.query, parts.fragment))

    async def _drain(self) -> None:
        """Read and discard the rest of the body, up to a limit."""
        waits_for_go_ahead = self._headers.get("expect", "").lower() == "100-continue"
        has_body = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._body_ended or not has_body or (waits_for_go_ahead and not self._received_bytes):
            return
        drained = 0
        while drained < DRAIN_BYTES:
            message = await self._receive()
            drained += len(message.get("body", b""))
            if message["type"] != "http.request" or not message.get("more_body", False):
                return

    def count(self, metrics: PoolMetrics) -> None:
        metrics.count(
            self.scope["method"],
            route_of(self.scope),
            self._status,
            received=self._received_bytes,
            sent=self._sent_bytes,
            duration_s=time.monotonic() - self._started,
        )

    def write_log(self) -> None:
        """Write one line. Neither headers nor the query are in it: they hold secrets."""
        client = self.scope.get("client")
        line: dict[str, Any] = {
            "event": "request",
            "request_id": self.request_id,
            "method": self.scope["method"],
            "path": self.scope["path"],
            "status": self._status,
            "received_bytes": self._received_bytes,
            "sent_bytes": self._sent_bytes,
            "duration_ms": round((time.monotonic() - self._started) * 1000, 1),
            "client": client[0] if client else "",
        }
        # A decoded path may hold line ends, which would make lines of its own.
        text = f"{line['method']} {quote(line['path'])} {self._status} in {line['duration_ms']} ms"
        log.info("%s", text, extra={"fields": line})
