"""mypy is part of the tests, in a file of its own: its output is read last."""

from __future__ import annotations

import pytest

from tests.begun_early import EarlyCommand
from tests.conftest import PROJECT_ROOT

MYPY = EarlyCommand("mypy", ("mypy",), PROJECT_ROOT)


@pytest.mark.begun_early(MYPY)
def test_types_are_right() -> None:
    process, _ = MYPY.result()
    assert process.returncode == 0, process.stdout + process.stderr
