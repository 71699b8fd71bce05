"""Run programs that read untrusted files in child processes with little memory and time.

`run_limited` asks the helper process of this server (`helper_main`), which forks a child for each
program; `Helper` is the server's side of that process.
"""

import atexit
import contextlib
import json
import logging
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pool_server
from pool_server.errors import FormatRefusedError
from pool_server.jobs.helper_main import OUT_OF_MEMORY, TOO_LARGE

log = logging.getLogger("pool_server.checks")

TRIES = 2
LISTEN_STEP_S = 1.0
LONGEST_START_S = 900.0
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
        """Run a program in a process of its own; return its exit code, or minus its last signal.

        `files` are standard input with the request, output, and error output. `goes_on` is asked
        about every second: the program is killed when it returns False (`StoppedError`), or
        `timeout_s` after it began.
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
                    requests = self._start()
                    socket.send_fds(requests, [b"!"], [*(file.fileno() for file in files), writing])
                os.close(writing)
                writing = -1
                code = _wait(answers, timeout_s, goes_on)
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

    def _start(self) -> socket.socket:
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


def _wait(answers: IO[bytes], timeout_s: float, goes_on: Callable[[], bool]) -> int | None:
    """Return the second line of the helper's answer; the first is the process to kill.

    The program's time begins with the first line: the helper may have to load everything first,
    and compiles the kernels of a fresh installation.
    """
    text = b""
    end_s, is_begun = time.monotonic() + LONGEST_START_S, False
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
            if not is_begun and b"\n" in text:
                end_s, is_begun = time.monotonic() + timeout_s, True
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

MEMORY_FACTOR = 4
"""A model in memory may take this many times its file."""
GRACE_S = 5.0
_LOGGED_BYTES = 4000

Listener = Callable[[float, str], bool]
"""Gets progress from 0 to 1 and the present activity; returns False to end the program."""


@dataclass(frozen=True)
class Limits:
    """Limits of a program; `output_bytes` bounds each file that it writes."""

    memory_bytes: int
    time_s: float
    output_bytes: int = 64 * 1024 * 1024


def run_limited(
    module: str,
    plan: Mapping[str, Any],
    limits: Limits,
    *,
    activity: str,
    listen: Listener | None = None,
) -> dict[str, Any]:
    """Run ``module.run(plan)`` in a process of its own and return the JSON object it returns.

    `activity` describes the program in messages ("reading face.dat"). `listen` is called about
    every second; if it returns False, `StoppedError` is raised.
    """
    with (
        tempfile.TemporaryFile() as request,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        document = {"module": module, "plan": dict(plan), "limits": asdict(limits)}
        request.write(json.dumps(document).encode())
        request.seek(0)

        def goes_on() -> bool:
            return listen is None or listen(*_read_progress(output))

        code = HELPER.run(
            (request, output, errors), timeout_s=limits.time_s + GRACE_S, goes_on=goes_on
        )
        if code != 0:
            errors_tail = _read_tail(errors)
            log.warning("%s: %s ended with %d: %s", activity, module, code, errors_tail)
            raise FormatRefusedError(
                f"{activity} {_describe_end(code, limits, errors_tail)}",
                details={"exit_code": code},
            )
        answer: dict[str, Any] = json.loads(_read_tail(output, size=None).splitlines()[-1])
        return answer


def _read_progress(output: IO[bytes]) -> tuple[float, str]:
    # Not through the file's own position, which the program writes at.
    size = os.fstat(output.fileno()).st_size
    tail = os.pread(output.fileno(), _LOGGED_BYTES, max(0, size - _LOGGED_BYTES))
    lines = tail.split(b"\n")[:-1]
    if not lines:
        return 0.0, "starting"
    try:
        document = json.loads(lines[-1])
        return document["progress"], document["activity"]
    except (ValueError, KeyError):
        return 1.0, "ending"


def _read_tail(file: IO[bytes], size: int | None = _LOGGED_BYTES) -> str:
    end = file.seek(0, os.SEEK_END)
    file.seek(0 if size is None else max(0, end - size))
    return file.read().decode("utf-8", "replace")


_OUT_OF_MEMORY = re.compile(
    r"memoryerror|bad_alloc|can't start new thread|(?:cannot|unable to|can't) allocate"
    r"|pthread_create failed",
    re.IGNORECASE,
)
"""How programs and libraries report that memory ran out."""


def _describe_end(code: int, limits: Limits, errors_tail: str) -> str:
    if code in {-signal.SIGALRM, -signal.SIGXCPU}:
        return f"took longer than the {limits.time_s:g} s that the pool allows"
    if code == TOO_LARGE:
        return f"gave more than the {limits.output_bytes:,} bytes that the pool accepts"
    # The system kills with SIGKILL where memory runs out, and says nothing.
    if code in {OUT_OF_MEMORY, -signal.SIGKILL} or _OUT_OF_MEMORY.search(errors_tail):
        return f"needs more memory than the {limits.memory_bytes:,} bytes that the pool allows"
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return "failed; the pool's log has the reason"
