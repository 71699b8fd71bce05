"""The child process of one merge: started, listened to, ended."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pool_server.errors import MergeRefusedError, TransactionError
from pool_server.jobs.merge_process import OUT_OF_MEMORY
from pool_server.settings import PoolSettings
from pool_server.transfers.checking import MEMORY_FACTOR, check_environment, read_tail

GRACE_S = 5.0

log = logging.getLogger("pool_server.merges")

Listener = Callable[[float, str], bool]
"""Told of progress; False ends the merge."""


class MergeStoppedError(Exception):
    """The listener wanted no more; no fault of the merge."""


def run_merge(
    plan: Mapping[str, Any],
    result: Path,
    *,
    size_bytes: int,
    settings: PoolSettings,
    listen: Listener,
) -> dict[str, Any]:
    """Carry out a plan (`merge_process`) within the limits of memory and time.

    Parameters
    ----------
    size_bytes : int
        Of all inputs together; what the merge may take grows with it.
    listen : callable
        Called about every second, from another thread where the child is silent.

    Raises
    ------
    MergeRefusedError
        The merge failed, crashed, or went beyond its limits; says which.
    """
    plan_file = result.with_name("plan.json")
    plan_file.write_text(json.dumps(plan), encoding="utf-8")
    command = [
        sys.executable,
        "-P",
        "-m",
        "pool_server.jobs.merge_process",
        str(plan_file),
        str(result),
        f"--most-output-bytes={settings.max_model_bytes}",
        f"--memory-bytes={settings.merge_memory_bytes + MEMORY_FACTOR * size_bytes}",
        f"--time-s={settings.merge_time_s}",
    ]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd="/",
            env=check_environment(),
            text=True,
        ) as child,
        _Watch(child, listen) as watch,
    ):
        answer = _read_answer(child, watch)
        try:
            code = child.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            # Giving gigabytes back to the system can take longer; what it said last counts.
            child.kill()
            code = child.wait() if answer is None else 0
        if watch.stopped:
            raise MergeStoppedError
        if code != 0 or answer is None:
            raise MergeRefusedError(_describe_end(code, settings, read_tail(errors)))
    if not answer["accepted"]:
        raise MergeRefusedError(str(answer["message"]))
    return answer


class _Watch:
    """Asks the listener about every second whether to go on, and kills the child if not."""

    STEP_S = 1.0

    def __init__(self, child: subprocess.Popen[str], listen: Listener) -> None:
        self.stopped = False
        self.progress, self.activity = 0.0, "starting"
        self._child = child
        self._listen = listen
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="merge watch", daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._child.poll() is None:
            self._child.kill()

    def _run(self) -> None:
        while not self._over.wait(self.STEP_S):
            try:
                goes_on = self._listen(self.progress, self.activity)
            except TransactionError:
                log.exception("a merge could not be reported on; it is tried again")
                continue
            if not goes_on:
                self.stopped = True
                self._child.kill()
                return


def _read_answer(child: subprocess.Popen[str], watch: _Watch) -> dict[str, Any] | None:
    answer: dict[str, Any] | None = None
    assert child.stdout is not None
    for line in child.stdout:
        try:
            document = json.loads(line)
        except ValueError:
            continue  # killed in the middle of a line
        if "progress" in document:
            watch.progress, watch.activity = document["progress"], document["activity"]
        else:
            answer = document
    return answer


def _describe_end(code: int, settings: PoolSettings, errors: str) -> str:
    if code in {-signal.SIGALRM, -signal.SIGXCPU}:
        return f"the merge took longer than the {settings.merge_time_s:g} s that the pool allows"
    if code == -signal.SIGXFSZ:
        return "the merged model is larger than the pool takes"
    if code == OUT_OF_MEMORY:
        return (
            f"the merge needs more memory than the pool allows: {settings.merge_memory_bytes:,} "
            f"bytes (POOL_SERVER_MERGE_MEMORY_BYTES) and {MEMORY_FACTOR} times its inputs"
        )
    if code < 0:
        return f"the merge crashed ({signal.Signals(-code).name})"
    last = errors.strip().splitlines()[-1:] or ["no reason given"]
    return f"the merge ended with an error: {last[0]}"
