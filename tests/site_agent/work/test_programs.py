"""Programs side by side: their ends, services, and parents that are killed."""

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil

from site_agent.work.processes import Program, run_programs
from tests.children import is_running, wait_for_end

SERVICE = "import time; print('serving', flush=True); time.sleep(600)"


def program(folder: Path, name: str, code: str) -> Program:
    (folder / name).mkdir(exist_ok=True)
    return Program([sys.executable, "-c", code], folder / name / "log", {"NAME": name})


def test_programs_yield_their_codes_and_no_more_run_than_allowed(tmp_path: Path) -> None:
    code = "import os, sys; print(os.environ['NAME']); sys.exit(int(os.environ['NAME']))"
    programs = {name: program(tmp_path, name, code) for name in "012"}
    with closing(run_programs(programs, at_once=1)) as ends:
        assert list(ends) == [("0", 0), ("1", 1), ("2", 2)]
    assert [(tmp_path / name / "log").read_text().strip() for name in "012"] == ["0", "1", "2"]


def test_programs_are_stopped_when_nobody_waits_for_their_ends(tmp_path: Path) -> None:
    programs = {
        "server": program(tmp_path, "server", SERVICE), "lab": program(tmp_path, "lab", ""),
    }  # fmt: skip
    with closing(run_programs(programs)) as ends:
        assert next(ends) == ("lab", 0)
    # Children of other tests may have ended and not been waited for: they have no command line.
    alive = [child for child in psutil.Process().children() if is_running(child)]
    assert not [child for child in alive if "serving" in " ".join(child.cmdline())]


CHILD = """
import os, time
from site_agent.work.processes import end_with_parent
end_with_parent()
print(os.getpid(), flush=True)
time.sleep(600)
"""
PARENT = """
import sys
from pathlib import Path
from site_agent.work.processes import Program, run_programs
program = Program([sys.executable, "-c", sys.argv[1]], Path(sys.argv[2]), {})
list(run_programs({"child": program}))
"""


def test_programs_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    deadline_s = time.monotonic() + 540
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD, str(log)]) as parent:
        while not (log.is_file() and log.read_text().endswith("\n")):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        child = psutil.Process(int(log.read_text()))
        parent.kill()
    wait_for_end([child])
