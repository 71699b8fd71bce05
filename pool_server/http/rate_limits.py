"""Limits on how often something may be tried that strangers could try without end.

Buckets are kept in the memory of one process and forgotten when it ends: where N processes serve
a pool, somebody may try up to N times as often as the setting says. That stops floods
and guessing, and needs nothing that could fail; a strict limit for the pool as a whole belongs
into the reverse proxy.

The holder of a valid token is never refused because others at the same address guessed.
"""

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Depends, Request

from pool_server.errors import TooManyRequestsError

MOST_KEYS = 10_000
# The address comes from a trusted proxy unchecked, but it must fit into the audit.
LONGEST_ADDRESS = 64
REFUSALS_PER_MINUTE = 60
# A client with one IPv6 address usually has the whole network of that prefix.
IPV6_PREFIX_BITS = 64


class RateLimiter:
    """Buckets of tries, one for each key; an empty one fills up again within a minute.

    `per_minute` tries may come at once, and then the same number each minute. `clock` gives seconds
    that never run backwards.
    """

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = float(per_minute)
        self._per_s = per_minute / 60
        self._clock = clock
        self._lock = threading.Lock()
        # Tries left, and when they were counted; the one used last stands last.
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, key: str, what: str) -> None:
        """Take one try, or refuse it as one too many of `what` (``"attempts to log in"``)."""
        with self._lock:
            now = self._clock()
            left, counted_at = self._buckets.pop(key, (self._capacity, now))
            left = min(self._capacity, left + (now - counted_at) * self._per_s)
            has_one = left >= 1
            if has_one:
                left -= 1
            self._buckets[key] = (left, now)
            # Those that were not used for longest are the fullest.
            while len(self._buckets) > MOST_KEYS:
                self._buckets.popitem(last=False)
        if not has_one:
            wait_s = math.ceil((1 - left) / self._per_s)
            raise TooManyRequestsError(
                f"too many {what}; try again in {wait_s} s",
                hint="Wait, and do not repeat refused requests.",
                details={"retry_after_s": wait_s},
            )


class RateLimits:
    """All limiters of one process.

    By address: requests with a token that is not valid (`failed_logins`), and attempts to accept an
    invitation. By token: tokens and invitations made or revoked (`token_acts`), and entries in the
    audit of acts that were refused.
    """

    def __init__(self, per_minute: int) -> None:
        self.failed_logins = RateLimiter(per_minute)
        self.acceptances = RateLimiter(per_minute)
        self.token_acts = RateLimiter(per_minute)
        self.refusals = RateLimiter(REFUSALS_PER_MINUTE)


def rate_limits(request: Request) -> RateLimits:
    return cast("RateLimits", request.app.state.rate_limits)


async def get_limits(request: Request) -> RateLimits:
    return rate_limits(request)


Limits = Annotated[RateLimits, Depends(get_limits)]


def client_address(request: Request) -> str:
    """Return where a request came from.

    Behind a reverse proxy that the settings trust (`PoolSettings.trusted_proxies`), uvicorn has
    put the address here that the proxy reports.
    """
    return request.client.host[:LONGEST_ADDRESS] if request.client else ""


def rate_limit_key(address: str) -> str:
    """Return the key of an address: itself, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 4:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((int(parsed), IPV6_PREFIX_BITS), strict=False))
