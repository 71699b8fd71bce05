"""Wait for an event in the background."""

import time
from collections.abc import Callable

import httpx


def answers(url: str) -> bool:
    """Return whether a pool at an address is ready."""
    try:
        ready = httpx.get(f"{url}/readyz", trust_env=False, verify=False, timeout=540)
    except httpx.TransportError:  # refused, or reset where the pool is just being killed
        return False
    return ready.status_code == 200


def wait_until(
    condition: Callable[[], object], timeout_s: float = 540.0, *, interval_s: float = 0.02
) -> None:
    """Wait until a condition holds; fail where it hangs, before pytest's limit of 600 s."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition does not come to hold"
        time.sleep(interval_s)
