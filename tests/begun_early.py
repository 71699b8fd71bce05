"""Commands that begin with the run, so that fewer tests wait and no processor is idle.

A test that waits leaves a processor idle. Commands of a minute and more that need nothing of the
processes that run tests fill these gaps: they begin before the first test, give way to everything
else, and their tests, the last of all, read their output. Servers that tests will need start
meanwhile.
"""

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
_SCRIPT = """
folder=$1; shift
nice -n 19 "$@" > "$folder/out" 2> "$folder/err"
echo $? > "$folder/status.part"; mv "$folder/status.part" "$folder/status"
"""


@dataclass(frozen=True)
class EarlyCommand:
    """``python -m`` with arguments, to be run once in a run of the tests.

    It is begun by the mark ``begun_early`` of the test that reads it.
    """

    name: str
    arguments: tuple[str, ...]
    folder: Path | None = None
    """Where it runs; None: in a folder of its own, which goes when the run ends."""

    def begin(self) -> Path:
        """Begin the command unless a process of this run has; return the folder of its output."""
        return started_once(self.name, self._start)[0]

    def result(self) -> tuple[subprocess.CompletedProcess[str], Path]:
        """Wait until the command has ended; return its result and its folder."""
        folder = self.begin()
        status = folder / "status"
        deadline_s = time.monotonic() + LIMIT_S
        while not status.exists():
            assert time.monotonic() < deadline_s, f"{self.name} did not end"
            time.sleep(0.2)
        out, errors = ((folder / name).read_text(encoding="utf-8") for name in ("out", "err"))
        code = int(status.read_text(encoding="utf-8"))
        return subprocess.CompletedProcess(self.arguments, code, out, errors), folder

    def _start(self, folder: Path) -> dict[str, int]:
        process = subprocess.Popen(
            ["sh", "-c", _SCRIPT, "sh", folder, sys.executable, "-m", *self.arguments],
            cwd=self.folder or folder,
            env=Lab(folder).environment,
            stdin=subprocess.DEVNULL,
            # Not a new session: Linux would share processors between the sessions first.
            process_group=0,
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
        from tests.pool_server import server_process

        assert server_process
        forkserver.ensure_running()


def _try(start: Callable[[], object]) -> None:
    # Where a server cannot start, the first test that needs it tries again, and says why.
    with suppress(BaseException):
        start()
