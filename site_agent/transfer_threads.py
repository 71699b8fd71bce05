"""Threads of a transfer, which nobody waits for who presses Ctrl-C."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class TransferThreads:
    """Threads that end with a block: they are told to stop, and waited for.

    A block that is interrupted is left at once: what a server is still silent about would hold
    the user for as long as the connection has patience. The threads are daemons for that, and
    no futures: Python may raise `KeyboardInterrupt` while the main thread holds the lock of a
    future, which then stays locked, and the thread that fills that future waits for ever
    (`concurrent.futures.wait` in slices hung once in some hundred interruptions). Blocks should
    hear from their threads by `queue.SimpleQueue`, which cannot be left half locked.

    Parameters
    ----------
    name : str
        Begins the names of the threads.

    Attributes
    ----------
    stopped : threading.Event
        Set when the block ends, however it does: nothing more need be done.
    """

    def __init__(self, name: str) -> None:
        self.stopped = threading.Event()
        self._name = name
        self._threads: list[threading.Thread] = []

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` in a thread of its own; it must raise nothing."""
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def __enter__(self) -> TransferThreads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopped.set()
        if kind is None or issubclass(kind, (Exception, GeneratorExit)):
            for thread in self._threads:
                thread.join()
