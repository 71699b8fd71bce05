"""mypy is part of the tests."""

import subprocess
import sys

import pytest

from tests.conftest import PROJECT_ROOT

CLIENT = ("cli", "site_agent", "aggregators", "pool_server.wire")


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
