"""Memory and processors of this machine and process."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path

import psutil

_KIBIBYTE = 1024


def peak_memory_bytes() -> int:
    """Return the most memory that this process has used at any time."""
    if sys.platform == "win32":
        peak = int(psutil.Process().memory_info().peak_wset)
    else:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if sys.platform != "darwin":
            peak *= _KIBIBYTE
            # Linux passes the peak of the parent on to `getrusage`, which may be large.
            with suppress(OSError, IndexError):
                status = Path("/proc/self/status").read_text(encoding="ascii")
                peak = int(status.split("VmHWM:")[1].split()[0]) * _KIBIBYTE
    return peak


def available_memory_bytes() -> int:
    """Return the memory that a new process can get without swapping."""
    return int(psutil.virtual_memory().available)


def processor_count() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def workers_that_fit(count: int, needed_bytes: Sequence[int]) -> int:
    """Return how many of `count` workers fit into memory, at least one.

    `needed_bytes`: Memory of each job; the largest are assumed to run at the same time.
    """
    available = available_memory_bytes()
    together = list(accumulate(sorted(needed_bytes, reverse=True)[:count]))
    if not together or together[-1] <= available:
        return count
    return max(1, sum(total <= available for total in together))
