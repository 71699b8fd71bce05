"""Run programs that read untrusted files in child processes with little memory and time.

Starting Python and loading numpy and numba takes a second; reading most files takes milliseconds.
So each server has a helper process (``python -m pool_server.jobs.limited FD``, with one end of a
pair of sequenced-packet sockets) that loads everything once. `run_limited` asks it, through
`Helper`; for every request it forks, and the child takes on its limits, reads untrusted bytes,
answers and ends.

A request carries four descriptors: the child's standard input with a JSON object ``{"module",
"plan", "limits"}``, its standard output, its error output, and a pipe to which the helper writes
the child's number and, when it has ended, how (as `subprocess` counts: negative for a signal), each
on a line. The child writes lines of JSON to its standard output: any number with ``progress`` and
``activity``, then the answer. When the server is gone, or after long idling, the helper ends with
all its children.

The fork server of `multiprocessing` would start children as fast, but with the environment of the
server, where its secrets are; each child would load the server's main module again, and outlive a
killed server.
"""

import atexit
import contextlib
import errno
import gc
import importlib
import json
import logging
import math
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import pool_server
from aggregators.formats.fingerprints import load_kernels
from pool_server.errors import FormatRefusedError

log = logging.getLogger("pool_server.checks")

TRIES = 2
LISTEN_STEP_S = 1.0
LONGEST_START_S = 900.0
LONGEST_IDLE_S = 300.0
OUT_OF_MEMORY = errno.ENOMEM
TOO_LARGE = errno.EFBIG
"""Exit codes of a child."""
# The only modules that are run, even if someone else got hold of the socket.
PROGRAMS = (
    "pool_server.transfers.checking",
    "pool_server.rounds.methods",
    "pool_server.jobs.merging",
    "pool_server.jobs.drawing",
)
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
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "pool_server.jobs.limited", str(theirs.fileno())],
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
            raise FormatRefusedError(f"{activity} {_describe_end(code, limits, errors_tail)}")
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


# The helper process.
def load_everything() -> None:
    """Load the modules of all programs, once rather than in every child."""
    for module in ("aggregators.methods", "aggregators.methods.refitting", *PROGRAMS):
        importlib.import_module(module)
    load_kernels()


def serve(requests: socket.socket) -> None:
    """Fork for each request until the other end is closed, or nothing comes for long."""
    wake_reading, wake_writing = os.pipe()
    os.set_blocking(wake_writing, False)
    signal.set_wakeup_fd(wake_writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    # Not select(), which takes no descriptor above 1023: the socket has its number of the server.
    watched = select.poll()
    watched.register(requests, select.POLLIN)
    watched.register(wake_reading, select.POLLIN)
    while True:
        waiting = None if children else 1000 * LONGEST_IDLE_S
        ready = {descriptor for descriptor, _ in watched.poll(waiting)}
        if wake_reading in ready:
            os.read(wake_reading, 4096)
            report_ended(children)
        if requests.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
            if not message:
                break
            *outputs, status = descriptors
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become_program(outputs)
            for output in outputs:
                os.close(output)
            children[child] = status
            write_number(status, child)
        if not ready:
            break
    for child in children:
        os.kill(child, signal.SIGKILL)


def become_program(descriptors: list[int]) -> None:
    """Run one program with the given input and outputs; never returns."""
    code = 1
    try:
        for place, descriptor in enumerate(descriptors):
            os.dup2(descriptor, place)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        request = json.load(sys.stdin)
        if request["module"] in PROGRAMS:
            program = importlib.import_module(request["module"])
            limit_resources(**request["limits"])
            write_answer(program.run(request["plan"]))
            code = 0
    except MemoryError:
        code = OUT_OF_MEMORY
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in {OUT_OF_MEMORY, TOO_LARGE}:
            code = error.errno
        traceback.print_exc()
    finally:
        try:
            sys.stderr.flush()
        finally:
            # Not the ordinary way out: that would run what the parent has registered.
            os._exit(code)


def limit_resources(memory_bytes: int, time_s: float, output_bytes: int) -> None:
    """Bound this process: address space, processor and wall time, files written, core dumps."""
    whole_seconds = max(1, math.ceil(time_s))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (whole_seconds, whole_seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output_bytes, output_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If the server dies, only this timer ends the process.
    signal.setitimer(signal.ITIMER_REAL, time_s)


def write_answer(answer: Mapping[str, object]) -> None:
    try:
        text = json.dumps(answer, allow_nan=False)
    except ValueError:
        text = json.dumps(
            {"accepted": False, "message": "the model has values that are not finite"}
        )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def report_ended(children: dict[int, int]) -> None:
    """Write how each child ended that has ended since."""
    while children:
        child, status = os.waitpid(-1, os.WNOHANG)
        if child == 0:
            return
        place = children.pop(child)
        write_number(place, os.waitstatus_to_exitcode(status))
        os.close(place)


def write_number(place: int, number: int) -> None:
    # The server may have stopped listening.
    with contextlib.suppress(OSError):
        os.write(place, f"{number}\n".encode())


def main() -> None:
    # Ctrl-C in a terminal reaches the whole group; the server says when this ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    load_everything()
    # Children neither look through loaded objects for garbage, nor copy them for that.
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        serve(requests)


if __name__ == "__main__":
    main()
