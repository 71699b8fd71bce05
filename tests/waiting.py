"""Wait for an event in the background."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], timeout_s: float = 120.0) -> None:
    """Wait until a condition holds; fail after a time."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)
