"""The children of a process, as tests look at them from outside."""

from collections.abc import Collection

import psutil

from tests.waiting import wait_until


def children_of(process_id: int, module: str) -> list[psutil.Process]:
    """Return the children of a process that run a module (``python -m MODULE``)."""
    children = []
    for child in psutil.Process(process_id).children():
        try:
            if module in child.cmdline():
                children.append(child)
        except psutil.Error:  # it has ended meanwhile
            continue
    return children


def is_running(child: psutil.Process) -> bool:
    """Return whether a process is at work.

    An orphan may stay as a zombie where nobody waits for it, as in a container without init.
    """
    return bool(child.is_running() and child.status() != psutil.STATUS_ZOMBIE)


def wait_for_end(children: Collection[psutil.Process]) -> None:
    """Return when processes have ended."""
    wait_until(lambda: not any(map(is_running, children)))
