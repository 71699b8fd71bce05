"""Rendering of the app's pages: templates that escape every value, with the look of a pool."""

import re
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pool_server import look
from site_agent.pages import number_text
from site_agent.wording import count_words, duration_words, size_words

_FOLDER = Path(__file__).parent
ENTRIES = (
    *(("Home", "/"), ("Videos", "/videos"), ("Results", "/results")),
    *(("Models", "/models"), ("Train", "/train"), ("Rounds", "/rounds")),
)
_BUTTONS = (
    # Commands in messages of the program, and the places in the app that do the same.
    ("log in to one, or set POOL_ENDPOINT and POOL_TOKEN", "join one under Settings"),
    (r"poolctl train ert[\w -]*", "the page Train"),
    (r"poolctl rounds, or poolctl refine", "the page Rounds"),
    (r"poolctl rounds trust[\w -]*", "Settings, Labs that we trust"),
    (r"poolctl rounds take-back[\w -]*", "the button Take it back"),
    (r"poolctl rounds[\w -]*", "the page Rounds"),
    (r"poolctl dataset check[\w -]*", "the check of faces under Train"),
    (r"poolctl blink review --export", "the review"),
    (r"poolctl auth login[\w:/. -]*", "Settings, Pool"),
    (r"poolctl models check[\w -]*", "the page Models"),
    (r"poolctl secure charter accept[\w. -]*", "the page of the round"),
    (r"poolctl jobs[\w -]*", "the page Jobs"),
    # In quotes it is no sentence about the program.
    (r"(?P<quote>['`])poolctl [^'`]*(?P=quote)", "the command line"),
)


@cache
def static_files() -> Mapping[str, look.StaticFile]:
    """Return the files of the look and of the app by name."""
    return look.read_static(_FOLDER / "static")


def static_file(request: Request) -> Response:
    """Return a file under the digest of its bytes, and under no other."""
    file = static_files().get(request.path_params["name"])
    if file is None or file.address != request.url.path:
        return Response(status_code=404)
    return file.respond(request)


def page_response(template: str, *, at: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; `at`: the prefix of all addresses."""
    defaults: dict[str, Any] = {"at": at, "csrf": "", "path": "", "entries": (), "busy": None}
    defaults["waiting_rounds"] = 0
    html = _environment().get_template(template).render({**defaults, **values})
    # Names of files can hold bytes that are no text.
    return HTMLResponse(html.encode("utf-8", "replace"), status)


def problem_page(request: Request, problem: str, hint: str = "", *, status: int) -> HTMLResponse:
    """Return a page with a problem; it has the menu in a session only."""
    session = request.scope.get("session")
    return page_response(
        "problem.html", at=request.scope["at"], status=status, problem=problem, hint=hint,
        csrf=session.csrf if session else "", entries=ENTRIES if session else (),
    )  # fmt: skip


def redirect(request: Request, path: str) -> Response:
    """Send the browser on after a change."""
    return RedirectResponse(f"{request.scope['at']}{path}", 303)


@cache
def _environment() -> Environment:
    environment = look.page_environment(_FOLDER / "templates")
    environment.filters |= {
        "count": count_words,
        "duration": duration_words,
        "size": size_words,
        "clock": clock_text,
        "plainly": plainly,
        "named": lambda labels: " · ".join(f"{name} {value}" for name, value in labels.items()),
        "number": number_text,
        "percent": lambda share: f"{100 * (share or 0):.0f}",
        "since": lambda moment: duration_words(max(1.0, time.time() - moment)),
    }
    environment.globals["static"] = lambda name: static_files()[name].address
    return environment


def plainly(text: str) -> str:
    """Name the places in the app instead of commands, in a message of the program.

    >>> plainly("faces have faults: 'poolctl dataset check' lists them")
    'faces have faults: the check of faces under Train lists them'
    >>> plainly("see 'poolctl keys trust --help'")
    'see the command line'
    >>> plainly("/home/ada/Videos/P03.mp4: cannot be opened as a video")
    'P03.mp4: cannot be opened as a video'
    """
    # Of a path only the name of the file says something to a person.
    text = re.sub(r"^(failed: )?(?:/|[A-Za-z]:[\\/])(?:[^:]*[\\/])?([^:\\/]+): ", r"\1\2: ", text)
    for command, place in _BUTTONS:
        text = re.sub(rf"(?P<mark>['`]?){command}(?P=mark)", place, text)
    return text


def clock_text(seconds: float | None) -> str:
    """Return a length as ``20 s``, ``1:29 min`` or ``1:02:03 h``."""
    if seconds is None:
        return "length not known"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if not (hours or minutes):
        return f"{rest} s"
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"
