"""Running the model check, and understanding how it ended."""

from __future__ import annotations

import json
import logging
import os
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pool_server
from pool_server.errors import FormatRefusedError
from pool_server.jobs.warm_process import WARM
from pool_server.settings import PoolSettings

log = logging.getLogger("pool_server.checks")

# A model in memory may take this many times its file.
MEMORY_FACTOR = 4
GRACE_S = 5.0
LOGGED_ERROR_BYTES = 4000
_HINT = "`poolctl inspect FILE` reads the file in the same way on your machine."
_SECRET_PREFIXES = ("POOL", "AWS_", "PG")


@dataclass(frozen=True)
class CheckedModel:
    """What the check found in a file."""

    kind: str
    format: str
    fingerprint: dict[str, Any]
    merge_keys: dict[str, str]


def run_check(path: Path, file_name: str, size_bytes: int, settings: PoolSettings) -> CheckedModel:
    """Check a file in a process of its own.

    Raises
    ------
    FormatRefusedError
        The file is no well-formed model, or the check did not end well within its limits.
    """
    answer = run_limited(
        "pool_server.transfers.model_check",
        [str(path), f"--name={file_name}"],
        subject=file_name,
        size_bytes=size_bytes,
        settings=settings,
    )
    if not answer["accepted"]:
        raise FormatRefusedError(str(answer["message"]), hint=_HINT)
    return CheckedModel(
        kind=answer["kind"],
        format=answer["format"],
        fingerprint=answer["fingerprint"],
        merge_keys=answer["merge_keys"],
    )


def run_limited(
    module: str, arguments: Sequence[str], *, subject: str, size_bytes: int, settings: PoolSettings
) -> dict[str, Any]:
    """Run a program of ours that reads strangers' files, and return the JSON object it writes.

    Parameters
    ----------
    module : str
        Run with `arguments`, ``--memory-bytes`` and ``--time-s``.
    subject : str
        What to call the file in messages.
    size_bytes : int
        Bytes of all files that the program reads.

    Raises
    ------
    FormatRefusedError
        It did not end well within its limits.
    """
    words = [
        *arguments,
        f"--memory-bytes={settings.check_memory_bytes + MEMORY_FACTOR * size_bytes}",
        f"--time-s={settings.check_time_s}",
    ]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        code = WARM.run(
            module,
            words,
            output=output,
            errors=errors,
            timeout_s=settings.check_time_s + GRACE_S,
            environment=check_environment(),
        )
        if code != 0:
            log.warning("%s of %s ended with %d: %s", module, subject, code, read_tail(errors))
            raise FormatRefusedError(
                f"{subject}: {_describe_end(code, settings)}",
                hint=_HINT,
                details={"exit_code": code},
            )
        output.seek(0)
        answer: dict[str, Any] = json.load(output)
        return answer


def check_environment() -> dict[str, str]:
    """Return the environment of the check: the server's own, without its secrets."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(_SECRET_PREFIXES)
    }
    # Each thread of a numerical library reserves address space, which is limited.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        environment[name] = "1"
    environment["PYTHONPATH"] = str(Path(pool_server.__path__[0]).parent)
    return environment


def _describe_end(code: int, settings: PoolSettings) -> str:
    if code in {-signal.SIGALRM, -signal.SIGXCPU}:
        return (
            f"reading the file took longer than the {settings.check_time_s:g} s "
            "that the pool allows"
        )
    if code == -signal.SIGXFSZ:
        return "the description of the file is larger than the pool takes"
    if code < 0:
        return f"reading the file crashed the check ({signal.Signals(-code).name})"
    return "the check could not read the file"


def read_tail(file: IO[bytes]) -> str:
    """Return the end of what a child wrote to its error output."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - LOGGED_ERROR_BYTES))
    return file.read().decode("utf-8", "replace")
