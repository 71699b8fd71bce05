"""A generator that runs in a thread of its own, a few items ahead of its reader."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

Item = TypeVar("Item")


class _End:
    """Marks the end of a stream in a queue, or the error that ended it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def read_ahead(items: Callable[[], Iterator[Item]], depth: int = 8) -> Generator[Item, None, None]:
    """Run a generator in a thread of its own, at most `depth` items ahead.

    Decoding leaves the interpreter's lock, so that frames are decoded while others are analysed.
    An error of the generator is raised here, after the items before it. When the caller stops
    early, the thread ends, too.
    """
    waiting: queue.Queue[Item | _End] = queue.Queue(maxsize=depth)
    stop = threading.Event()

    def put(item: Item | _End) -> bool:
        while not stop.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def run() -> None:
        try:
            for item in items():
                if not put(item):
                    return
            put(_End())
        except BaseException as error:
            put(_End(error))

    thread = threading.Thread(target=run, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item = waiting.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stop.set()
        thread.join()
