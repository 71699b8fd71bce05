"""A uvicorn server that reports when it answers, and ends when asked without looking killed."""

import socket
from collections.abc import Callable
from types import FrameType

import uvicorn


class ReportingServer(uvicorn.Server):
    """Calls `on_ready` when it answers; SIGTERM and Ctrl-C end it gracefully."""

    def __init__(self, configuration: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(configuration)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """End gracefully; uvicorn's own handler would raise the signal again at the end."""
        self.force_exit = self.should_exit
        self.should_exit = True
