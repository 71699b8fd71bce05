"""Running programs that read uploaded files in processes with little memory and time."""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import IO, Any

from pool_server.errors import FormatRefusedError
from pool_server.jobs.helper import HELPER
from pool_server.jobs.helper_main import OUT_OF_MEMORY, TOO_LARGE

log = logging.getLogger("pool_server.checks")

MEMORY_FACTOR = 4
"""A model in memory may take this many times its file."""
GRACE_S = 5.0
_LOGGED_BYTES = 4000

Listener = Callable[[float, str], bool]
"""Given progress from 0 to 1 and what is being done; returns False to end the program."""


@dataclass(frozen=True)
class Limits:
    """What a program may use; `output_bytes` bounds each file that it writes."""

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

    Parameters
    ----------
    activity : str
        What the program does, for messages ("reading face.dat").
    listen : callable
        Called about every second.

    Raises
    ------
    FormatRefusedError
        The program failed, crashed or exceeded its limits.
    StoppedError
        `listen` returned False.
    """
    with (
        tempfile.TemporaryFile() as request,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
    ):
        wanted = {"module": module, "plan": dict(plan), "limits": asdict(limits)}
        request.write(json.dumps(wanted).encode())
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
                f"{activity} {_describe_end(code, limits)}", details={"exit_code": code}
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


def _describe_end(code: int, limits: Limits) -> str:
    if code in {-signal.SIGALRM, -signal.SIGXCPU}:
        return f"took longer than the {limits.time_s:g} s that the pool allows"
    if code == TOO_LARGE:
        return f"gave more than the {limits.output_bytes:,} bytes that the pool accepts"
    if code == OUT_OF_MEMORY:
        return f"needs more memory than the {limits.memory_bytes:,} bytes that the pool allows"
    if code < 0:
        return f"crashed ({signal.Signals(-code).name})"
    return "failed; the pool's log has the reason"
