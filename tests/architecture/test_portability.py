"""The client runs on Linux, macOS and Windows, as far as Linux can show it.

The site's side (cli, site_agent, aggregators, pool_server.wire) imports no module that Windows
lacks; `test_types` lets mypy read it as on Windows and macOS, which finds the functions that they
lack.
"""

import ast
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from tests.conftest import PROJECT_ROOT

CLIENT = ("cli", "site_agent", "aggregators", "pool_server.wire")
ABSENT = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"}
"""Modules that Windows lacks."""


def imports_at_once(statements: Sequence[ast.stmt]) -> Iterator[str]:
    """Yield the modules that are imported with these statements, on every system."""
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from (name.name for name in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            yield str(statement.module)
        elif isinstance(statement, ast.ClassDef | ast.With):
            yield from imports_at_once(statement.body)


def test_no_client_module_imports_at_once_what_windows_lacks() -> None:
    folders = [PROJECT_ROOT / package.replace(".", "/") for package in CLIENT]
    files = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(files) > 400
    importers = {
        path.relative_to(PROJECT_ROOT).as_posix(): name
        for path in files
        for name in imports_at_once(ast.parse(path.read_text(encoding="utf-8")).body)
        if name.partition(".")[0] in ABSENT
    }
    assert importers == {}


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
