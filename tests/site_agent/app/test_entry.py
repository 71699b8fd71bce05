"""The way into the app, attacked by raw HTTP."""

import asyncio
import os
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from site_agent.app.entry import AppFolder, Guard
from site_agent.app.results import Results
from site_agent.app.server import app_application
from site_agent.jobs.folder import JobFolder, this_process
from tests.cli.conftest import first_answer, start_process
from tests.site_agent.app.running_app import RunningApp, running_app


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningApp]:
    place = tmp_path_factory.mktemp("app")
    with running_app(place / "home", place / "results") as running:
        yield running


def status(app: RunningApp, path: str = "/", method: str = "GET", **headers: str) -> int:
    """Ask with the cookie of a session and further headers."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return app.client.request(method, f"{app.address}{path}", headers=names).status_code


def test_pages_have_a_policy_and_are_kept_nowhere(app: RunningApp) -> None:
    answer = app.get("/")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in answer.text
    assert " style=" not in answer.text


def test_an_unexpected_error_has_a_page_with_a_menu(
    app: RunningApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("'' has an empty <name>")

    monkeypatch.setattr(app.lab.studies, "current", fail)
    # The server closes a connection after an unexpected error; another request may meet the end.
    alone = {"Connection": "close"}
    for path, status in (("/videos", 500), ("/results", 500), ("/videos/moved", 405)):
        answer = app.get(path, headers=alone)
        assert answer.status_code == status
        assert 'aria-label="Main"' in answer.text
    page = app.get("/videos", headers=alone).text
    assert "ValueError: &#39;&#39; has an empty &lt;name&gt;" in page


@pytest.mark.parametrize("host", ["localhost:{port}", "[::1]:{port}", "evil.example", "127.0.0.1"])
def test_other_names_of_this_machine_are_refused(app: RunningApp, host: str) -> None:
    port = app.origin.rpartition(":")[2]
    assert status(app, host=host.format(port=port)) == 421


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(app: RunningApp, method: str) -> None:
    assert status(app, "/try", method) == 405


def routes(app: RunningApp, method: str) -> list[str]:
    """The addresses of all routes with this method, each with some value for its parts."""
    application = app_application(app.lab, Results(app.lab))
    every = [route for route in application.routes if isinstance(route, Route)]
    return [re.sub(r"\{\w+\}", "x", item.path) for item in every if method in (item.methods or ())]


def test_every_change_is_guarded(app: RunningApp) -> None:
    changes = routes(app, "POST")
    assert len(changes) > 12
    foreign = {"origin": "http://evil.example"}
    for path in changes:
        assert status(app, path) in {404, 405}, f"{path}: reading changes nothing"
        assert status(app, path, "POST") == 403, f"{path}: no origin"
        assert status(app, path, "POST", **foreign) == 403, path
        assert status(app, path, "POST", origin=app.origin) == 403, f"{path}: no token"
        assert status(app, path, "POST", host="localhost", origin=app.origin) == 421, path
        for site in ("cross-site", "same-site"):
            sent = {"origin": app.origin, "sec_fetch_site": site}
            assert status(app, path, "POST", **sent) == 403, path
        for origin in ("null", "http://127.0.0.1:1"):
            assert status(app, path, "POST", origin=origin) == 403, path
        assert status(app, path, "POST", origin=app.origin, x_csrf_token="guessed") == 403, path
    assert app.lab.jobs.views() == []


def test_every_page_is_for_this_browser_alone(app: RunningApp) -> None:
    pages = {path for path in routes(app, "GET") if path not in {"/enter", "/alive"}}
    with httpx.Client(trust_env=False, timeout=540) as stranger:
        for path in pages - {"/static/x/x"}:
            assert stranger.get(f"{app.address}{path}").status_code == 401, path
            if path == "/events":
                continue  # has no end
            answer = app.get(path)
            assert answer.headers["content-security-policy"].startswith("default-src 'none'"), path
            assert answer.status_code < 500, path
            for site in ("cross-site", "same-site"):
                foreign = app.get(path, headers={"sec-fetch-site": site})
                assert (foreign.status_code, "Open poolctl" in foreign.text) == (403, True), path
        assert stranger.get(f"{app.address}/alive").status_code == 204
        assert stranger.get(f"{app.origin}/").status_code == 404
        assert stranger.get(f"{app.origin}/guessed/enter").status_code == 404
        assert "There is no page" in app.get("/videos/").text, "addresses have one form"
        stranger.cookies.set(app.folder.prefix(), "guessed")
        assert stranger.get(f"{app.address}/").status_code == 401


def test_a_ticket_lets_in_once_and_for_a_minute_by_a_strict_cookie(app: RunningApp) -> None:
    with httpx.Client(trust_env=False, timeout=540) as browser:
        ticket = app.folder.new_ticket()
        cookie = app.enter(browser, ticket).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert f"Path=/{app.folder.prefix()}/" in cookie
        assert cookie.startswith(f"{app.folder.prefix()}="), "another port cannot plant this name"
        assert app.enter(browser, ticket).status_code == 403
        assert app.enter(browser, "guessed").status_code == 403
        old = app.folder.new_ticket()
        for path in (app.folder.place / "tickets").iterdir():
            os.utime(path, (time.time() - 61, time.time() - 61))
        assert app.enter(browser, old).status_code == 403
    foreign = {"origin": "http://evil.example"}
    ticket = app.folder.new_ticket()
    answer = app.client.post(f"{app.address}/enter", data={"ticket": ticket}, headers=foreign)
    assert answer.status_code == 403


def test_a_session_ends_with_the_app(tmp_path: Path) -> None:
    with running_app(tmp_path / "home", tmp_path / "results") as first:
        cookie = first.cookie
    with running_app(tmp_path / "home", tmp_path / "results") as second:
        assert second.folder.prefix() == first.folder.prefix(), "bookmarks live"
        second.client.cookies.clear()
        second.client.cookies.set(second.folder.prefix(), cookie)
        assert second.get("/").status_code == 401
        origin = {"origin": second.origin}
        refused = second.client.post(f"{second.address}/jobs/pause", data={}, headers=origin)
        assert refused.status_code == 403
        assert "Open poolctl again" in refused.text


def test_secrets_are_for_this_user_alone(tmp_path: Path) -> None:
    folder = AppFolder(tmp_path / "home" / "app")
    umask = os.umask(0)
    try:
        folder.make()
        JobFolder(tmp_path / "lab" / "jobs").add("study", "tables", {})
    finally:
        os.umask(umask)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}
    ticket = folder.new_ticket()
    entrance = folder.entrance(f"http://127.0.0.1:1/K/enter#{ticket}")
    folder.prefix()
    folder.note_running(8720, "K")
    files = [path for path in folder.place.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert {path.stat().st_mode & 0o077 for path in [*files, folder.place]} == {0}
    assert all(ticket not in path.name for path in files)
    assert ticket in entrance.read_text()
    assert folder.running() == "http://127.0.0.1:8720/K"
    assert this_process()[0] == os.getpid()


def as_nobody(command: str) -> str:
    """Run a command of the shell as another user of this machine; return its output."""
    return subprocess.run(
        ["bash", "-c", command], user=65534, group=65534, extra_groups=[], cwd="/",
        env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False, timeout=540,
    ).stdout  # fmt: skip


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="changes the user")
def test_another_user_of_this_machine_cannot_come_in(tmp_path: Path) -> None:
    # pytest's own folders are closed to others already.
    with tempfile.TemporaryDirectory() as open_place:
        Path(open_place).chmod(0o755)
        process = start_process(
            "app", "--no-browser", "--json", "--port", 0, "-o", tmp_path,
            POOL_HOME=f"{open_place}/home", HOME=str(tmp_path),
        )  # fmt: skip
        try:
            address, _, ticket = first_answer(process)["url"].partition("/enter#")
            origin, _, prefix = address.rpartition("/")
            port = origin.rpartition(":")[2]
            assert as_nobody(f"ls -d {open_place}; id -u").split() == [open_place, "65534"]
            assert as_nobody(f"cat {open_place}/home/app/*; ls -R {open_place}/home") == ""
            seen = as_nobody("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' ' '")
            assert "poolctl" in seen or "cli" in seen
            assert prefix not in seen
            assert ticket not in seen

            def ask(request: str, *headers: str) -> str:
                lines = "\\r\\n".join([request, f"Host: 127.0.0.1:{port}", *headers, "", ""])
                talk = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{lines}' >&3; cat <&3"
                return as_nobody(talk).partition("\r\n")[0]

            close = "Connection: close"
            assert ask("GET / HTTP/1.1", close).startswith("HTTP/1.1 404")
            assert ask("GET /guessed/ HTTP/1.1", close).startswith("HTTP/1.1 404")
            # The prefix alone, as from a picture of the screen, opens nothing: there is no session.
            assert ask(f"GET /{prefix}/ HTTP/1.1", close).startswith("HTTP/1.1 401")
            assert ask(f"GET /{prefix}/videos HTTP/1.1", close).startswith("HTTP/1.1 401")
            sent = (f"Origin: {origin}", "Content-Length: 0", close)
            assert ask(f"POST /{prefix}/enter HTTP/1.1", *sent).startswith("HTTP/1.1 403")
            assert ask(f"POST /{prefix}/quit HTTP/1.1", *sent).startswith("HTTP/1.1 403")
        finally:
            process.terminate()
            process.wait()


def test_a_large_form_is_refused(app: RunningApp) -> None:
    answer = app.client.post(
        f"{app.address}/try", content=b"x" * 2_100_000, headers={"origin": app.origin}
    )
    assert answer.status_code == 413


def test_half_a_form_does_nothing(tmp_path: Path) -> None:
    folder = AppFolder(tmp_path / "app")
    folder.make()
    guard = Guard(not_called, folder, "K", 1)
    ticket = folder.new_ticket()
    headers = {
        "host": "127.0.0.1:1", "origin": "http://127.0.0.1:1",
        "content-type": "application/x-www-form-urlencoded",
    }  # fmt: skip
    scope = {"type": "http", "method": "POST", "path": "/K/enter", "headers": Headers(headers).raw}
    half = {"type": "http.request", "body": f"ticket={ticket}&".encode(), "more_body": True}
    messages = iter([half, {"type": "http.disconnect"}])
    sent: list[Message] = []

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(guard(scope, receive, send))
    assert sent[0]["status"] == 413
    assert folder.take_ticket(ticket), "is still good"


async def not_called(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError


def test_addresses_that_are_none_are_not_found(app: RunningApp) -> None:
    port = int(app.origin.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(f"GET * HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 404")
