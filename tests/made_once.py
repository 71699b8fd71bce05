"""Slow fixtures that are only read: made by one of the processes that run tests.

With ``-n`` every process has session fixtures of its own; to draw the same faces and train the
same model in each of them would take most of the time.
"""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(
    tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]
) -> Path:
    """Return a folder that `make` has filled; other processes wait until it is there.

    Parameters
    ----------
    name : str
        Of the folder, below that of this run of the tests.
    make : callable
        Is given the folder, new and empty. Its content may not depend on the process.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, complete = root / f"once-{name}", root / f"once-{name}.complete"
    with (root / f"once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            # The remains of another process that could not finish.
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
