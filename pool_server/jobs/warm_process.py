"""Running limited programs from a process that has everything loaded already (`warm_main`)."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

log = logging.getLogger("pool_server.checks")

TRIES = 2


class WarmProcess:
    """One helper process of this server; started when it is first needed, and again if it ended.

    Any number of threads may run programs at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        output: IO[bytes],
        errors: IO[bytes],
        timeout_s: float,
        environment: Mapping[str, str],
    ) -> int:
        """Run ``module.main(arguments)`` in a process of its own and return how it ended.

        Parameters
        ----------
        output, errors : file
            Where the program writes to.
        timeout_s : float
            After it the program is killed.
        environment : mapping
            Used when the helper is started; later it has the one it was started with.

        Returns
        -------
        int
            Exit code, or the negative number of the signal that ended it.
        """
        request = json.dumps({"module": module, "arguments": list(arguments)}).encode()
        for _ in range(TRIES):
            code = self._try(request, output, errors, timeout_s, environment)
            if code is not None:
                return code
        return -signal.SIGKILL

    def _try(
        self,
        request: bytes,
        output: IO[bytes],
        errors: IO[bytes],
        timeout_s: float,
        environment: Mapping[str, str],
    ) -> int | None:
        """Return how the program ended; None when the helper itself was gone."""
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb", buffering=0) as answers:
            code = requests = None
            try:
                with self._lock:
                    requests = self._started(environment)
                    descriptors = [output.fileno(), errors.fileno(), writing]
                    socket.send_fds(requests, [request], descriptors)
                os.close(writing)
                writing = -1
                code = _wait(answers, time.monotonic() + timeout_s)
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

    def _started(self, environment: Mapping[str, str]) -> socket.socket:
        if self._requests is not None and self._process is not None:
            if self._process.poll() is None:
                return self._requests
            self._forget()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "pool_server.jobs.warm_main",
                    str(theirs.fileno()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env=dict(environment),
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


def _wait(answers: IO[bytes], end_s: float) -> int | None:
    """Return the second line of the helper's answer; the first is the process to kill."""
    text = b""
    # Not select(), which takes no descriptor above 1023: a busy server has more open.
    watched = select.poll()
    watched.register(answers, select.POLLIN)
    while text.count(b"\n") < 2:
        left_s = end_s - time.monotonic()
        if not watched.poll(1000 * max(0.0, left_s)):
            if b"\n" in text:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(text.split(b"\n")[0]), signal.SIGKILL)
            return -signal.SIGALRM
        chunk = answers.read(64)
        if not chunk:
            return None
        text += chunk
    return int(text.split(b"\n")[1])


WARM = WarmProcess()
atexit.register(WARM.close)
