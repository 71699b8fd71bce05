"""What begins with the run, so that fewer tests wait and no processor is without work.

A test that waits leaves a processor idle. Commands of a minute and more that need nothing of the
processes that run tests fill these gaps: they begin before the first test, give way to everything
else, and their tests, the last of all, read what they printed. Servers that tests will need start
meanwhile.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.end_to_end.labs import Lab
from tests.shared_servers import shared_postgres, shared_swift, started_once

MARK = "begun_early"
LIMIT_S = 1500
# The status comes last, under its own name: what is there is complete.
# Linux shares processors between sessions first, and only then between the processes of each.
_SCRIPT = """
own=$1; shift
[ -w /proc/self/autogroup ] && echo 19 > /proc/self/autogroup
nice -n 19 "$@" > "$own/out" 2> "$own/err"
echo $? > "$own/status.part"; mv "$own/status.part" "$own/status"
"""


@dataclass(frozen=True)
class EarlyCommand:
    """``python -m`` with some words, to be run once in a run of the tests.

    It is begun by the mark ``begun_early`` of the test that reads it.
    """

    name: str
    words: tuple[str, ...]
    folder: Path | None = None
    """Where it runs; None: in a folder of its own, which goes when the run ends."""

    def begin(self) -> Path:
        """Begin the command unless a process of this run has; return the folder of its words."""
        return started_once(self.name, self._start)[0]

    def result(self) -> tuple[subprocess.CompletedProcess[str], Path]:
        """Wait until the command has ended; return that, and the folder that is its own."""
        own = self.begin()
        status = own / "status"
        deadline_s = time.monotonic() + LIMIT_S
        while not status.exists():
            assert time.monotonic() < deadline_s, f"{self.name} did not end"
            time.sleep(0.2)
        out, errors = ((own / name).read_text(encoding="utf-8") for name in ("out", "err"))
        code = int(status.read_text(encoding="utf-8"))
        return subprocess.CompletedProcess(self.words, code, out, errors), own

    def _start(self, own: Path) -> dict[str, int]:
        process = subprocess.Popen(
            ["sh", "-c", _SCRIPT, "sh", own, sys.executable, "-m", *self.words],
            cwd=self.folder or own,
            env=Lab(own).environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        # Known by its number only: what reads it may be another process.
        process.returncode = 0
        return {"process_id": process.pid}


def begin_all(items: Sequence[pytest.Item]) -> None:
    """Begin the commands that these tests read, and start the servers that they share."""
    for item in items:
        for mark in item.iter_markers(MARK):
            mark.args[0].begin()
    for name, start in (("postgres", shared_postgres), ("s3", shared_swift)):
        if any(item.get_closest_marker(name) for item in items):
            threading.Thread(target=_try, args=(start,), daemon=True).start()
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tests.forked import loaded_process
        from tests.pool_server import server_process

        assert server_process
        forkserver.ensure_running()
        loaded_process()


def _try(start: Callable[[], object]) -> None:
    # Where a server cannot start, the first test that needs it tries again, and says why.
    with suppress(BaseException):
        start()
