"""The end of a child with its parent."""

import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.children import wait_for_end

CHILD = """
import os, time
from site_agent.work.processes import end_with_parent
end_with_parent()
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = """
import sys
from site_agent.work.processes import start
start([sys.executable, "-c", sys.argv[1]], stdout=open(sys.argv[2], "wb")).wait()
"""


def test_a_child_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deadline_s = time.monotonic() + 540
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD, str(log)]) as parent:
        while not (log.is_file() and log.read_text().endswith("\n")):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        child = psutil.Process(int(log.read_text()))
        parent.kill()
    wait_for_end([child])
