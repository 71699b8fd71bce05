"""The way into the app: for this user and this machine, once for each ticket.

All addresses begin with a random prefix, since cookies do not know ports: another user's server on
this machine would else get the cookie. The launcher writes the hash of a ticket into a private
folder and opens a private file that leads to ``/PREFIX/enter#TICKET``; the page's script sends the
ticket in exchange for a session. Neither a command line nor a log holds a secret.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from aggregators.whole_file import write_whole
from site_agent import own_folders
from site_agent.app.rendering import page_response
from site_agent.eyeblink.review.server import with_headers
from site_agent.pages import render_page
from site_agent.plain_json import write_json
from site_agent.work.processes import is_alive, this_process

HOST = "127.0.0.1"
USUAL_PORT = 8720
_TICKET_S = 60.0
_IDLE_S = 12 * 3600.0
_MOST_FORM_BYTES = 2_000_000
_OPEN_PATHS = ("/enter", "/alive")
_HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types poolctl"
    ),
    # With `no-referrer` browsers do not say either which page sent a form.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True)
class AppFolder:
    """The app's own files: ``POOL_HOME/app``."""

    place: Path = field(default_factory=lambda: own_folders.config_folder() / "app")

    def make(self) -> None:
        """Make the folder, for this user alone."""
        own_folders.make_private(self.place)
        (self.place / "tickets").mkdir(exist_ok=True, mode=0o700)

    def prefix(self) -> str:
        """Return the first part of all addresses, which stays so that bookmarks live."""
        path = self.place / "prefix"
        if not path.is_file():
            write_whole(path, secrets.token_urlsafe(16), mode=0o600)
        return path.read_text(encoding="ascii")

    def new_ticket(self) -> str:
        """Make a ticket that lets one browser in, within a minute."""
        ticket = secrets.token_urlsafe(32)
        write_whole(self.place / "tickets" / _hash(ticket), b"", mode=0o600)
        return ticket

    def take_ticket(self, ticket: str) -> bool:
        """Take a ticket out of use; False if it is none, or is too old."""
        path = self.place / "tickets" / _hash(ticket)
        with suppress(OSError):
            age_s = time.time() - path.stat().st_mtime
            # Of two that take it, the second does not find it.
            path.unlink()
            return age_s < _TICKET_S
        return False

    def note_running(self, port: int, prefix: str) -> None:
        """Let a second start find this one."""
        running = {"port": port, "prefix": prefix, "process": this_process()}
        write_json(self.place / "running.json", running, mode=0o600)

    def entrance(self, address: str) -> Path:
        """Make the private file that leads a browser in; a command line, others can see."""
        path = self.place / "open.html"
        write_whole(path, render_page("open_review.html", address=address), mode=0o600)
        return path

    def running(self) -> str:
        """Return the address of the running app; empty if there is none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads((self.place / "running.json").read_text(encoding="utf-8"))
            if is_alive(tuple(content["process"])):
                return f"http://{HOST}:{content['port']}/{content['prefix']}"
        return ""


@dataclass
class Session:
    """One browser that was let in."""

    csrf: str
    used_s: float


class Sessions:
    """The sessions of this run; they end with it."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def begin(self) -> str:
        """Begin a session, and return its secret."""
        secret = secrets.token_urlsafe(32)
        self._sessions[_hash(secret)] = Session(secrets.token_urlsafe(24), time.monotonic())
        return secret

    def find(self, secret: str) -> Session | None:
        """Return the session of a secret, unless it was idle for too long."""
        session = self._sessions.get(_hash(secret))
        now_s = time.monotonic()
        if session is None or now_s - session.used_s > _IDLE_S:
            return None
        session.used_s = now_s
        return session


class Guard:
    """ASGI middleware: lets through requests of pages of this app in a browser of this user.

    The application below sees paths without the prefix, ``session`` and, of a POST, ``form``.
    """

    def __init__(self, app: ASGIApp, folder: AppFolder, prefix: str, port: int) -> None:
        self._app, self._folder, self._prefix = app, folder, prefix
        self._host = f"{HOST}:{port}"
        self._sessions = Sessions()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        send_guarded = with_headers(send, _HEADERS)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        path = scope["path"].removeprefix(f"/{self._prefix}")
        inner = {**scope, "path": path, "raw_path": path.encode(), "root_path": ""}
        inner["at"] = f"/{self._prefix}"
        session = self._session(Headers(scope=scope))
        if scope["method"] == "POST":
            body = await _body(receive)
            answer = await self._checked(inner, body, session)
            if answer is not None:
                await answer(scope, receive, send_guarded)
                return
            receive = _again(body)
        elif session is None and path not in _OPEN_PATHS and not path.startswith("/static/"):
            page = page_response("closed.html", at=inner["at"], status=401)
            await page(scope, receive, send_guarded)
            return
        inner["session"] = session
        await self._app(inner, receive, send_guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        # One name only: with others a foreign page could point a name of its own here.
        if headers.getlist("host") != [self._host]:
            return PlainTextResponse("this server is for this machine only\n", 421)
        first, *rest = scope["path"].removeprefix("/").split("/")
        if not secrets.compare_digest(first.encode(), self._prefix.encode()) or not rest:
            return PlainTextResponse("not found\n", 404)
        is_ours = headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
        if scope["method"] in {"GET", "HEAD"}:
            # A link on a foreign page: nothing of ours is shown before a click here.
            is_open = is_ours or rest == ["enter"]
            return None if is_open else page_response("knock.html", at=f"/{first}", status=403)
        if scope["method"] != "POST":
            return PlainTextResponse("method not allowed\n", 405)
        if headers.get("origin") != f"http://{self._host}" or not is_ours:
            return PlainTextResponse("the request comes from another page\n", 403)
        return None

    def _session(self, headers: Headers) -> Session | None:
        return self._sessions.find(cookie_parser(headers.get("cookie", "")).get(self._prefix, ""))

    async def _checked(self, scope: Scope, body: bytes | None, session: Session | None) -> Any:
        """Return the refusal of a change, or the answer to a ticket; else note its form."""
        if body is None:
            return PlainTextResponse("the form is too large, or did not come whole\n", 413)
        headers = Headers(scope=scope)
        is_form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
        fields = parse_qs(body.decode("utf-8", "replace"), True) if is_form else {}
        if scope["path"] == "/enter":
            if not self._folder.take_ticket(fields.get("ticket", [""])[0]):
                return PlainTextResponse("this ticket was used already, or is too old\n", 403)
            answer = Response(status_code=204)
            # Under this name no page of another port, which knows no prefix, can set another one.
            answer.set_cookie(
                self._prefix, self._sessions.begin(), path=f"/{self._prefix}/", httponly=True,
                samesite="strict",
            )  # fmt: skip
            return answer
        token = headers.get("x-csrf-token") or fields.get("csrf", [""])[0]
        if session is None:
            return page_response("closed.html", at=scope["at"], status=403)
        if not secrets.compare_digest(token.encode(), session.csrf.encode()):
            return PlainTextResponse("the page is out of date: load it again\n", 403)
        scope["form"] = fields
        return None


async def _body(receive: Receive) -> bytes | None:
    content = b""
    while True:
        message = await receive()
        content += bytes(message.get("body", b""))
        # Half a form could ask for more than the whole one: all videos instead of two.
        if len(content) > _MOST_FORM_BYTES or message["type"] == "http.disconnect":
            return None
        if not message.get("more_body"):
            return content


def _again(body: bytes | None) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    return receive
