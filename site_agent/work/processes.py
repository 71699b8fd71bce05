"""Child processes, the same on Linux, macOS and Windows; memory and processors of this machine.

Ctrl-C in a terminal reaches the parent alone, which stops its children; a parent that is killed
takes its children along.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import IO

import psutil

Process = subprocess.Popen[bytes]

_PARENT_VARIABLE = "POOLCTL_PARENT_PROCESS"
_WATCH_INTERVAL_S = 0.5
_LASTING: list[Process] = []
# `signal` has no SIGKILL on Windows, where no exit code is negative either.
_KILLED = -9
_CLOCK_STEP_S = 2.0


def start_python(
    module: str,
    *arguments: str,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start ``python -m module`` with standard output in a pipe.

    The caller must `stop` the child, which calls `end_with_parent` first of all.

    `environment`: Variables to set in addition to those of this process.
    """
    return start(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=stdin,
        stderr=stderr,
        environment={**(environment or {}), **_python_variables()},
    )


def start_lasting(module: str, *arguments: str, log: Path) -> Process:
    """Start ``python -m module`` as a process that stays when this one ends; it writes to a log."""
    with log.open("ab") as output:
        process = start(
            [sys.executable, "-P", "-m", module, *arguments],
            stdout=output,
            stderr=output,
            environment=_python_variables(),
        )
    # Nothing stops lasting processes; reap those that have ended.
    _LASTING[:] = [process, *(earlier for earlier in _LASTING if earlier.poll() is None)]
    return process


def _python_variables() -> dict[str, str]:
    # The child finds this package where the parent found it, whatever the current folder holds.
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths), "PYTHONIOENCODING": "utf-8"}


def start(
    command: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start a command that Ctrl-C in a terminal does not reach: the caller must `stop` it.

    The child ends with this process if it calls `end_with_parent`, as all of ours do.

    `environment`: Variables to set in addition to those of this process.
    """
    variables = {**os.environ, **(environment or {}), _PARENT_VARIABLE: str(os.getpid())}
    if sys.platform == "win32":
        flags, is_new_session = subprocess.CREATE_NEW_PROCESS_GROUP, False
    else:
        flags, is_new_session = 0, True
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=variables,
        creationflags=flags, start_new_session=is_new_session,
    )  # fmt: skip


def stop(process: Process, *, grace_s: float = 0.0) -> None:
    """Kill a child if it still runs, and close its pipes.

    With a grace period it is first asked to end, and killed only if it still runs afterwards.
    """
    if process.poll() is None and grace_s > 0:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):  # its unread input is lost with it
                stream.close()


def was_killed(code: int) -> bool:
    """Return whether an exit code is that of a killed process, most likely for lack of memory."""
    return code == _KILLED


def describe_end(code: int) -> str:
    """Describe an exit code: ``was ended by SIGTERM`` or ``ended with code 1``."""
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {'SIGKILL' if was_killed(code) else signal.Signals(-code).name}"


def end_with_parent() -> None:
    """End this process when the process that started it with `start` ends, however that ends."""
    # Programs that this process starts by other means have another parent.
    parent = int(os.environ.pop(_PARENT_VARIABLE, 0))
    if not parent:
        return
    if sys.platform == "linux":
        # The kernel also ends a process that is busy in a library and runs no other thread.
        with contextlib.suppress(OSError, AttributeError):
            set_parent_death_signal = 1
            ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            os._exit(1)
    else:
        end_with(parent)


def end_with(process_id: int) -> None:
    """End this process soon after another one, its parent, has ended."""

    def watch() -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(process_id)
            while parent.is_running() and (
                # A parent that nobody has waited for keeps its number, but has no children.
                sys.platform == "win32" or os.getppid() == process_id
            ):
                time.sleep(_WATCH_INTERVAL_S)
        os._exit(1)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


def this_process() -> tuple[int, float]:
    """Return number and start time of this process."""
    process = psutil.Process()
    return process.pid, process.create_time()


def is_alive(process: tuple[int, float] | None) -> bool:
    """Return whether a process still runs; a later one with its number is another process."""
    if process is None:
        return False
    try:
        other = psutil.Process(process[0])
        # Start times follow the system clock, which is corrected from time to time.
        is_same = abs(other.create_time() - process[1]) < _CLOCK_STEP_S
        return is_same and bool(other.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


_KIBIBYTE = 1024


def peak_memory_bytes() -> int:
    """Return the most memory that this process has used at any time."""
    if sys.platform == "win32":
        peak = int(psutil.Process().memory_info().peak_wset)
    else:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if sys.platform != "darwin":
            peak *= _KIBIBYTE
            # Linux passes the peak of the parent on to `getrusage`, which may be large.
            with suppress(OSError, IndexError):
                status = Path("/proc/self/status").read_text(encoding="ascii")
                peak = int(status.split("VmHWM:")[1].split()[0]) * _KIBIBYTE
    return peak


def available_memory_bytes() -> int:
    """Return the memory that a new process can get without swapping."""
    return int(psutil.virtual_memory().available)


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_that_fit(count: int, needed_bytes: Sequence[int]) -> int:
    """Return how many of `count` workers fit into memory, at least one.

    `needed_bytes`: Memory of each job; the largest are assumed to run at the same time.
    """
    available = available_memory_bytes()
    together = list(accumulate(sorted(needed_bytes, reverse=True)[:count]))
    if not together or together[-1] <= available:
        return count
    return max(1, sum(total <= available for total in together))
