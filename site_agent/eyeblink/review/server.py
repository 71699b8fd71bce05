"""The local server of the review page: from a free port to Ctrl-C."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import uvicorn

from site_agent.errors import BusyError
from site_agent.eyeblink.review.endpoints import review_application
from site_agent.eyeblink.review.guard import Guard, new_token
from site_agent.eyeblink.review.review_session import ReviewSession
from site_agent.pages import render_page

HOST = "127.0.0.1"


def serve_review(review: ReviewSession, *, port: int = 0, on_ready: Callable[[str], None]) -> None:
    """Serve the page until SIGINT or SIGTERM.

    Parameters
    ----------
    port : int
        0 takes a free one.
    on_ready : callable
        Called with the page's address, which holds a secret, once the server answers.

    Raises
    ------
    BusyError
        The port is taken.
    """
    token = new_token()
    with _listener(port) as listener:
        url = f"http://{HOST}:{listener.getsockname()[1]}/{token}/"
        _Server(_configuration(review, token), lambda: on_ready(url)).run(sockets=[listener])


@contextmanager
def opening_page(url: str) -> Iterator[Path]:
    """Make a private file that leads to the page, for a browser to open.

    Other users can see the words of a command line, and with them an address; not this file.
    """
    with tempfile.TemporaryDirectory(prefix="poolctl-review-") as folder:
        path = Path(folder) / "open.html"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(render_page("open_review.html", address=url))
        yield path


class _Server(uvicorn.Server):
    """Tells when it answers, and ends as asked without looking killed."""

    def __init__(self, configuration: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(configuration)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        # uvicorn's own handler raises the signal again at the end.
        self.force_exit = self.should_exit
        self.should_exit = True


def _configuration(review: ReviewSession, token: str) -> uvicorn.Config:
    return uvicorn.Config(
        Guard(review_application(review), token),
        log_config=None,
        access_log=False,
        server_header=False,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        timeout_graceful_shutdown=2,
    )


@contextmanager
def _listener(port: int) -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise BusyError(
                f"port {port} cannot be used ({error.strerror}); give another with --port, "
                "or leave it out to take a free one"
            ) from error
        yield listener
