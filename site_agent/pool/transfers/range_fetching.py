"""A file from a pool's storage: several ranges at once, given in their order."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from site_agent.errors import PoolUnreachableError
from site_agent.pool.transfers.storage_connection import StorageConnection
from site_agent.runs.block_threads import BlockThreads

# What is fetched ahead waits in memory: their product bounds it.
RANGE_BYTES = 8 << 20
AT_ONCE = 4

_Arrivals = queue.SimpleQueue[bytes | BaseException | None]
"""The chunks of one range as they come; at last None, or what went wrong."""


@contextmanager
def fetched_ranges(
    storage: StorageConnection, url: str, position: int, size_bytes: int
) -> Iterator[Iterator[bytes]]:
    """Give the bytes from `position` to the end as they come, in order.

    One connection to an object store gives a fraction of what several give. The first range is
    passed on while it arrives, so that no more is lost with the line than what came ahead.

    Raises
    ------
    PoolClientError
        From inside the block, where the next bytes cannot be had.
    """
    with BlockThreads("download") as threads:

        def start(first: int) -> _Arrivals:
            arrivals: _Arrivals = queue.SimpleQueue()
            end = min(first + RANGE_BYTES, size_bytes)
            threads.start(
                lambda: _fetch(
                    lambda: storage.stream(url, first, end - 1),
                    end - first,
                    arrivals,
                    threads.stopped,
                )
            )
            return arrivals

        yield _in_order(deque(range(position, size_bytes, RANGE_BYTES)), start)


def _in_order(firsts: deque[int], start: Callable[[int], _Arrivals]) -> Iterator[bytes]:
    under_way: deque[_Arrivals] = deque()
    while firsts or under_way:
        while firsts and len(under_way) < AT_ONCE:
            under_way.append(start(firsts.popleft()))
        arrivals = under_way[0]
        while (chunk := arrivals.get()) is not None:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk
        under_way.popleft()


def _fetch(
    open_stream: Callable[[], AbstractContextManager[Iterator[bytes]]],
    size_bytes: int,
    arrivals: _Arrivals,
    stopped: threading.Event,
) -> None:
    left = size_bytes
    try:
        with open_stream() as chunks:
            for chunk in chunks:
                if stopped.is_set():
                    return
                # A server that knows no ranges gives the whole file for the first.
                arrivals.put(chunk[:left])
                left -= min(len(chunk), left)
                if left == 0:
                    break
        if left:
            raise PoolUnreachableError(f"the line broke {left} bytes early")
        arrivals.put(None)
    except BaseException as error:
        arrivals.put(error)
