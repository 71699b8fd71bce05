"""ruff is part of the tests: one command runs all checks of CI."""

import subprocess
import sys

import pytest

from tests.conftest import PROJECT_ROOT


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "--no-cache", "."], id="ruff-lint"),
        pytest.param(["ruff", "format", "--check", "."], id="ruff-format"),
    ],
)
def test_sources_are_clean(command: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
