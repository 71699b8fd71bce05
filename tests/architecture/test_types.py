"""mypy is part of the tests, in a file of its own: its output is read last."""

import pytest

from tests.begun_early import EarlyCommand
from tests.conftest import PROJECT_ROOT

CLIENT = ("cli", "site_agent", "aggregators", "pool_server.wire")
MYPY = EarlyCommand("mypy", ("mypy",), PROJECT_ROOT)
_TYPES = {
    platform: EarlyCommand(
        f"mypy-{platform}",
        (
            *("mypy", "--platform", platform, "--cache-dir", f".mypy_cache/{platform}"),
            *(word for package in CLIENT for word in ("-p", package)),
        ),
        PROJECT_ROOT,
    )
    for platform in ("win32", "darwin")
}


@pytest.mark.begun_early(MYPY)
def test_types_are_right() -> None:
    process, _ = MYPY.result()
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.begun_early(_TYPES["win32"])
def test_types_are_right_on_windows() -> None:
    process, _ = _TYPES["win32"].result()
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.slow
@pytest.mark.begun_early(_TYPES["darwin"])
def test_types_are_right_on_macos() -> None:
    process, _ = _TYPES["darwin"].result()
    assert process.returncode == 0, process.stdout + process.stderr
