"""The client runs on Linux, macOS and Windows, as far as Linux can show it.

The site's side (cli, site_agent, aggregators, pool_server.wire) is imported without the modules and
functions that Windows lacks; mypy reads it as on Windows and macOS, too.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import PROJECT_ROOT

CLIENT = ("cli", "site_agent", "aggregators", "pool_server.wire")
ABSENT = {
    "modules": ["fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"],
    "os": [
        *("fork", "forkpty", "geteuid", "getuid", "killpg", "mkfifo", "pread", "pwrite"),
        *("sched_getaffinity", "setsid", "statvfs", "uname", "wait", "WNOHANG", "O_NONBLOCK"),
    ],
    "signal": ["SIGKILL", "SIGHUP", "SIGPIPE", "SIGALRM", "SIGUSR1", "pthread_sigmask"],
}
"""Modules, and names of two of them, that Windows lacks."""
_IMPORT_ALL = """
import importlib, importlib.abc, json, os, pkgutil, signal, socket, sys, traceback

packages, absent = json.loads(sys.argv[1])

class Absent(importlib.abc.MetaPathFinder):
    names = set(absent["modules"])

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

packages = [importlib.import_module(name) for name in packages]
# Libraries load first: their use of this system's modules is their own matter.
import cv2, distributed, dlib, filelock, hdmf.backends.hdf5.h5_utils, matplotlib.pyplot
import multiprocessing.util, numba, opacus, pandas, platformdirs.unix, psutil, pynwb
import rich.console, rich.prompt, scipy.signal, scipy.stats, tempfile, torch._dynamo, typer, uvicorn
for name in Absent.names:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
for module in (os, signal):
    for name in absent[module.__name__]:
        delattr(module, name)
del socket.AF_UNIX

failed, count = {}, 0
for package in packages:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if module.name.endswith("__main__"):
            continue
        count += 1
        try:
            importlib.import_module(module.name)
        except BaseException as error:
            failed[module.name] = traceback.format_exception_only(error)[-1].strip()
print(json.dumps({"count": count, "failed": failed}))
"""


def test_every_client_module_imports_without_what_windows_lacks() -> None:
    command = [sys.executable, "-c", _IMPORT_ALL, json.dumps([CLIENT, ABSENT])]
    process = subprocess.run(
        command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False, timeout=540
    )
    assert process.returncode == 0, process.stderr
    answer = json.loads(process.stdout.splitlines()[-1])
    assert answer["failed"] == {}
    assert answer["count"] > 400


@pytest.mark.slow
def test_the_commands_of_the_hosted_workflow_run(tmp_path: Path) -> None:
    workflow = yaml.safe_load((PROJECT_ROOT / ".github/workflows/client.yml").read_text())
    [script] = [
        step["run"]
        for step in workflow["jobs"]["client"]["steps"]
        if "poolctl " in step.get("run", "")
    ]
    python = shlex.quote(sys.executable)
    process = subprocess.run(
        ["bash", "-ec", f'poolctl() {{ {python} -m cli "$@"; }}\n{script}'],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT), "POOL_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert (tmp_path / "blinks" / "blinks.csv").is_file()


def require_right_types(*arguments: str) -> None:
    command = [sys.executable, "-m", "mypy", *arguments]
    checked = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_types_are_right() -> None:
    require_right_types()


@pytest.mark.parametrize("platform", ["win32", pytest.param("darwin", marks=pytest.mark.slow)])
def test_types_are_right_on_other_platforms(platform: str) -> None:
    cache = f".mypy_cache/{platform}"
    packages = [word for package in CLIENT for word in ("-p", package)]
    require_right_types("--platform", platform, "--cache-dir", cache, *packages)
