"""Services: HTTP over mutual TLS, with bodies of bounded size."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from aggregators.errors import AggregatorError
from site_agent.errors import BusyError, ConflictError, InvalidInputError, SiteAgentError
from site_agent.live.kits import Kit
from site_agent.work.serving import ReportingServer

BODY = "application/octet-stream"
_PEER = "poolctl.peer"
_STOP_S = 5
_SMALL_BYTES = 1 << 20
_PRESENCE_S = 3.0
"""How long a site's call that it is there stays open."""


class RefusalError(Exception):
    """An answer that is no success.

    `status`: Of HTTP.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        self.status, self.code = status, code
        super().__init__(message)

    def response(self) -> JSONResponse:
        # The rest of a refused body may still arrive: close the connection.
        headers = {"Connection": "close"} if self.status in {403, 411, 413} else None
        content = {"code": self.code, "message": str(self)}
        return JSONResponse(content, self.status, headers)


def caller_of(request: Request, roles: Sequence[str]) -> str:
    """Return the name of the caller by its certificate: a site, or the role of another process.

    Raises `RefusalError`: the certificate is of none of these roles.
    """
    role, name = request.scope[_PEER]
    if roles and role not in roles:
        expected = " or ".join(roles)
        raise RefusalError(403, "role", f"the caller is a {role}, expected a {expected}")
    return str(name)


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return a body, which is not read at all where it announces too much."""
    announced = request.headers.get("content-length", "")
    if not announced.isdecimal():
        raise RefusalError(411, "size_unknown", "expected a Content-Length")
    if int(announced) > most_bytes:
        raise RefusalError(
            413, "too_large", f"the body has {announced} bytes, expected at most {most_bytes}"
        )
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
    return bytes(content)


Handler = Callable[..., "Mapping[str, Any] | bytes | Path | None"]
"""Runs in a thread of its own, and returns the answer: JSON, bytes, or a file.

It is called with the caller (the name of a site, or the role of another process), and by name with
the parameters of the path and the fields of a JSON body, or with any other body as `body`.
"""


class Routes:
    """The routes of a service, which turn the errors of handlers into answers."""

    def __init__(self) -> None:
        self._routes = list[Route]()

    def app(self) -> Starlette:
        """Return the HTTP interface."""
        return Starlette(routes=self._routes)

    def add(
        self,
        method: str,
        path: str,
        handle: Handler,
        *,
        roles: Sequence[str] = ("site",),
        most_bytes: int | Callable[[], int] = 0,
        fields: Mapping[str, type] | None = None,
        on_too_large: Callable[..., None] | None = None,
    ) -> None:
        """Add a route.

        `roles`: Of the permitted callers; any if empty. `most_bytes`: The largest body; 0 for none.
        `fields`: Names and types of the fields of a JSON body. `on_too_large`: Called where a body
        is refused for its size, with caller and parameters, and the refusal as `error`.
        """

        async def run(request: Request) -> Response:
            caller, values = caller_of(request, roles), dict(request.path_params)
            if most_bytes or fields:
                most = await run_in_threadpool(most_bytes) if callable(most_bytes) else most_bytes
                try:
                    body = await read_body(request, most or _SMALL_BYTES)
                except RefusalError as error:
                    if on_too_large is not None:
                        await run_in_threadpool(on_too_large, caller, **values, error=error)
                    raise
                values |= json_object(body, **fields) if fields else {"body": body}
            answer = await run_in_threadpool(handle, caller, **values)
            if isinstance(answer, Path):
                return FileResponse(answer, media_type=BODY)
            if isinstance(answer, bytes):
                return Response(answer, media_type=BODY)
            return JSONResponse({} if answer is None else dict(answer))

        self._routes.append(Route(path, _answered(run), methods=[method]))

    def add_presence(self, hear: Callable[[str, bool], None]) -> None:
        """Add ``/presence``: a call of a site that is there stays open for some seconds.

        `hear`: Gets the name of a site, and whether its call has broken off.
        """

        async def run(request: Request) -> Response:
            site = caller_of(request, ("site",))
            hear(site, False)
            with suppress(TimeoutError):
                await asyncio.wait_for(_end_of(request), _PRESENCE_S)
                hear(site, True)
            return JSONResponse({})

        self._routes.append(Route("/presence", _answered(run)))


async def _end_of(request: Request) -> None:
    """Wait until the caller's connection has ended."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answered(
    handle: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Turn a handler's errors into answers."""

    async def run(request: Request) -> Response:
        try:
            return await handle(request)
        except RefusalError as refusal:
            return refusal.response()
        except ConflictError as error:
            return RefusalError(409, error.code or "conflict", str(error)).response()
        except (InvalidInputError, AggregatorError) as error:
            return RefusalError(422, "invalid", str(error)).response()
        except SiteAgentError as error:
            return RefusalError(500, "failed", str(error)).response()

    return run


def json_object(body: bytes, **kinds: type) -> dict[str, Any]:
    """Return the object of a JSON body with these fields, of these types."""
    try:
        content = json.loads(body)
        if set(content) == set(kinds) and all(
            type(content[name]) is kind for name, kind in kinds.items()
        ):
            return dict(content)
    except (ValueError, TypeError):
        pass
    raise RefusalError(422, "invalid", f"expected a JSON object of {', '.join(kinds)}")


class PeerProtocol(H11Protocol):
    """A connection that adds the peer's certificate to its requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        certificate = transport.get_extra_info("peercert") or {}
        names = {key: value for entry in certificate.get("subject", ()) for key, value in entry}
        peer = names.get("organizationalUnitName", ""), names.get("commonName", "")
        self.app = _with_peer(self.app, peer)


def _with_peer(app: Any, peer: tuple[str, str]) -> ASGIApp:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, _PEER: peer}, receive, send)

    return run


class ServiceProcess(ReportingServer):
    """A service of a kit; it stops at SIGTERM, Ctrl-C, or where `should_exit` is set."""

    def __init__(self, kit: Kit, app: Starlette, on_ready: Callable[[], None]) -> None:
        host, port = kit.listening_at()
        configuration = uvicorn.Config(
            app, host=host, port=port, log_config=None, access_log=False, server_header=False,
            loop="asyncio", http=PeerProtocol, ws="none", lifespan="off",
            timeout_keep_alive=60, timeout_graceful_shutdown=_STOP_S,
            ssl_certfile=kit.folder / "certificate.pem", ssl_keyfile=kit.folder / "key.pem",
            ssl_ca_certs=str(kit.folder / "authority.pem"), ssl_cert_reqs=ssl.CERT_REQUIRED,
        )  # fmt: skip
        configuration.load()
        configuration.ssl = kit.server_context()
        super().__init__(configuration, on_ready)
        self._kit = kit

    async def startup(self, sockets: Any = None) -> None:
        try:
            await super().startup(sockets=sockets)
        except SystemExit:  # so uvicorn says that the address is taken
            raise BusyError(
                f"cannot listen on {self._kit.addresses[self._kit.role]}",
                hint="end the process that does, perhaps an earlier one of this kit",
            ) from None
