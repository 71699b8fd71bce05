"""The server's side of the helper process that forks for each program (`helper_main`)."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pool_server

log = logging.getLogger("pool_server.checks")

TRIES = 2
LISTEN_STEP_S = 1.0
_SECRET_PREFIXES = ("POOL", "AWS_", "PG")


class StoppedError(Exception):
    """A program was ended because its caller wanted no more."""


class Helper:
    """One helper process of this server; started when it is first needed, and again if it ended.

    Any number of threads may run programs at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self,
        files: Sequence[IO[bytes]],
        *,
        timeout_s: float,
        goes_on: Callable[[], bool] = lambda: True,
    ) -> int:
        """Run a program in a process of its own and return how it ended.

        Parameters
        ----------
        files : sequence of file
            Standard input with the request, output, and error output.
        timeout_s : float
            After it the program is killed.
        goes_on : callable
            Asked about every second; the program is killed when it returns False.

        Returns
        -------
        int
            Exit code, or the negative number of the signal that ended it.

        Raises
        ------
        StoppedError
            `goes_on` returned False.
        """
        for _ in range(TRIES):
            os.lseek(files[0].fileno(), 0, os.SEEK_SET)
            code = self._try(files, timeout_s, goes_on)
            if code is not None:
                return code
        return -signal.SIGKILL

    def _try(
        self, files: Sequence[IO[bytes]], timeout_s: float, goes_on: Callable[[], bool]
    ) -> int | None:
        """Return how the program ended; None when the helper itself was gone."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as answers:
            code = requests = None
            try:
                with self._lock:
                    requests = self._started()
                    socket.send_fds(requests, [b"!"], [*(each.fileno() for each in files), writing])
                os.close(writing)
                writing = -1
                code = _wait(answers, time.monotonic() + timeout_s, goes_on)
            except OSError:
                log.warning("the helper process for checks is gone; it is started again")
            finally:
                if writing >= 0:
                    os.close(writing)
            if code is None:
                with self._lock:
                    if self._requests is requests:
                        self._forget()
            return code

    def _started(self) -> socket.socket:
        if self._requests is not None and self._process is not None:
            if self._process.poll() is None:
                return self._requests
            self._forget()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        module = "pool_server.jobs.helper_main"
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=helper_environment(),
                pass_fds=[theirs.fileno()],
            )
        self._requests = ours
        return ours

    def _forget(self) -> None:
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._process is not None:
            # It ends by itself once its socket is closed; waiting leaves no zombie.
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def close(self) -> None:
        """End the helper with all that it runs."""
        with self._lock:
            self._forget()


def _wait(answers: IO[bytes], end_s: float, goes_on: Callable[[], bool]) -> int | None:
    """Return the second line of the helper's answer; the first is the process to kill."""
    text = b""
    # Not select(), which takes no descriptor above 1023: a busy server has more open.
    watched = select.poll()
    watched.register(answers, select.POLLIN)
    while text.count(b"\n") < 2:
        left_s = max(0.0, end_s - time.monotonic())
        if watched.poll(1000 * min(left_s, LISTEN_STEP_S)):
            chunk = answers.read(64)
            if not chunk:
                return None
            text += chunk
            continue
        is_wanted = False
        try:
            is_wanted = goes_on()
        finally:
            if left_s == 0 or not is_wanted:
                _kill(text)
        if not is_wanted:
            raise StoppedError
        if left_s == 0:
            return -signal.SIGALRM
    return int(text.split(b"\n")[1])


def _kill(text: bytes) -> None:
    if b"\n" in text:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(text.split(b"\n")[0]), signal.SIGKILL)


def helper_environment() -> dict[str, str]:
    """Return the environment of the helper: the server's own, without its secrets."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_SECRET_PREFIXES)
    }
    # Each thread of a numerical library reserves address space, which is limited.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        environment[name] = "1"
    environment["PYTHONPATH"] = str(Path(pool_server.__path__[0]).parent)
    return environment


HELPER = Helper()
atexit.register(HELPER.close)
