"""Threads that end with a block, and that nobody waits for who presses Ctrl-C."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_REPORT_EVERY_S = 0.2


class BlockThreads:
    """Threads that end with a block: it asks them to stop, and waits for them.

    A block that is interrupted is left at once: what a silent server or a long training still
    takes would hold the user for as long. The threads are daemons for that, and no futures:
    Python may raise `KeyboardInterrupt` while the main thread holds the lock of a future, which
    then stays locked, and the thread that fills that future waits for ever
    (`concurrent.futures.wait` in slices hung once in some hundred interruptions). Threads should
    answer by `queue.SimpleQueue`, which cannot be left half locked; `run` does.

    `stopped`: set when the block ends, however it does: nothing more need be done.
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

    def run(
        self,
        work: Callable[[Item], Result],
        items: Sequence[Item],
        most_at_once: int,
        report: Callable[[], None] = lambda: None,
    ) -> list[Result]:
        """Do the work for every item, some at once, and return the results in their order.

        `report`: called here after each result, and five times a second while none comes.

        Raises
        ------
        BaseException
            The first that `work` raises; what has not begun by then never does.
        """
        left: queue.SimpleQueue[int] = queue.SimpleQueue()
        ended: queue.SimpleQueue[tuple[int, Result] | BaseException] = queue.SimpleQueue()

        def take_turns() -> None:
            while not self.stopped.is_set():
                try:
                    index = left.get_nowait()
                except queue.Empty:
                    return
                try:
                    ended.put((index, work(items[index])))
                except BaseException as error:
                    ended.put(error)
                    self.stopped.set()

        for index in range(len(items)):
            left.put(index)
        for _ in range(min(most_at_once, len(items))):
            self.start(take_turns)
        results: dict[int, Result] = {}
        while len(results) < len(items):
            try:
                end = ended.get(timeout=_REPORT_EVERY_S)
            except queue.Empty:
                pass
            else:
                if isinstance(end, BaseException):
                    raise end
                results[end[0]] = end[1]
            report()
        return [results[index] for index in range(len(items))]

    def __enter__(self) -> BlockThreads:
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
