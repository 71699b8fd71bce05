"""Python child processes: started alone, stopped for certain, gone when their parent is gone."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

_PARENT_VARIABLE = "POOLCTL_PARENT_PROCESS"


def start_python(
    module: str,
    *arguments: str,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` with standard output in a pipe.

    Ctrl-C in a terminal reaches this process alone, which has to `stop` the child. The child calls
    `die_with_parent` first of all, so that it does not outlive a parent that is killed.

    `environment`: variables to set besides those of this process.
    """
    # The child finds this package where the parent found it, whatever the current folder holds.
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONIOENCODING": "utf-8",
        _PARENT_VARIABLE: str(os.getpid()),
    }
    return start(
        [sys.executable, "-P", "-m", module, *arguments],
        stdin=stdin,
        stderr=stderr,
        environment={**os.environ, **(environment or {}), **own},
    )


def start(
    command: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.STDOUT,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command that Ctrl-C in a terminal does not reach: this process has to `stop` it.

    `environment`: all its variables; by default those of this process.
    """
    return subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, env=environment, start_new_session=True
    )


def stop(process: subprocess.Popen[bytes], *, grace_s: float = 0.0) -> None:
    """Kill a child where it still runs, and close what connects it.

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
            with contextlib.suppress(OSError):  # what it was to read is lost with it
                stream.close()


def die_with_parent() -> None:
    """Ask the system to kill this process when its parent dies, where the system can (Linux)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    parent = os.environ.get(_PARENT_VARIABLE)
    if parent is not None and os.getppid() != int(parent):  # it died before that
        os.kill(os.getpid(), signal.SIGKILL)


def available_memory_bytes() -> int | None:
    """Memory that a new process can get without swapping, None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvail"))
    except (OSError, StopIteration, ValueError):
        return None
