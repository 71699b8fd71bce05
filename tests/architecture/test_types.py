"""mypy is part of the tests, in a file of its own: what it prints is read last."""

from __future__ import annotations

import pytest

from tests.begun_early import EarlyCommand
from tests.conftest import PROJECT_ROOT

MYPY = EarlyCommand("mypy", ("mypy",), PROJECT_ROOT)


@pytest.mark.begun_early(MYPY)
def test_types_are_right() -> None:
    done, _ = MYPY.result()
    assert done.returncode == 0, done.stdout + done.stderr
