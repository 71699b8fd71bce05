"""Workers do tasks side by side: processes of this machine, or of a cluster of Dask.

`site_agent.work.worker` is a process from inside, `site_agent.work.dask_workers` the cluster.
"""

import json
import os
import pickle
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from subprocess import PIPE
from typing import IO, Any, Protocol

from site_agent.work import Progress
from site_agent.work.processes import describe_end, processor_count, start_python, stop, was_killed

Event = dict[str, Any]
"""``{"progress": share, "text": text}``, ``{"done": result}`` or ``{"failed": reason}``."""
_KEPT_BYTES = 2000
_THREAD_VARIABLES = ("OMP", "OPENBLAS", "MKL", "NUMBA")
# Windows delivers Ctrl-C to a waiting thread only when the wait ends.
_WAIT_S = 0.5
_END_S = 5.0
_LEAST_LIFE_S = 30.0


@dataclass(frozen=True)
class Task:
    """The work of one call of a worker."""

    key: str
    do: Callable[[Any, Progress], Any]
    """A function of a module, of payload and progress; its result must fit into JSON."""
    payload: Any
    """Is pickled."""


class Workers(Protocol):
    """Processes for tasks, from `__enter__` on until the block ends."""

    @property
    def count(self) -> int:
        """Number of tasks that can run at once."""

    @property
    def threads(self) -> int:
        """Number of threads that a task may use."""

    def run(
        self, next_task: Callable[[], Task | None], on_event: Callable[[str, Event], None]
    ) -> None:
        """Do tasks until there are no more.

        `next_task`: Called about twice a second while a worker is free, because a finished task may
        have made others possible. Returns None if none can begin now. `on_event`: Gets a task's key
        with an event; ``done`` or ``failed`` comes once. A worker that dies fails its own task
        only. May raise to stop everything.
        """

    def __enter__(self) -> "Workers": ...

    def __exit__(self, *error: object) -> None: ...


class LocalWorkers:
    """At most `count` worker processes, which start when they are needed and end with the block.

    `advice`: A remedy if memory runs out, such as "run the study again with fewer workers".
    `tasks_each`: A worker is replaced after this many tasks (of short ones after more, as starting
    takes a second), so that leaks of libraries do not add up; None: never.
    `threads`: That each may use; by default all of them share those of the machine.
    """

    def __init__(
        self, count: int, *, advice: str, tasks_each: int | None = 25, threads: int = 0
    ) -> None:
        self.count = max(1, count)
        self.threads = threads or max(1, processor_count() // self.count)
        self._advice, self._tasks_each = advice, tasks_each
        self._running: list[_Worker] = []
        self._events = SimpleQueue[tuple[_Worker, Event | None]]()

    def run(
        self, next_task: Callable[[], Task | None], on_event: Callable[[str, Event], None]
    ) -> None:
        """Do tasks until there are no more; see `Workers.run`."""
        for key, event in self._events_of(next_task):
            on_event(key, event)

    def map(self, do: Callable[[Any, Progress], Any], payloads: Iterable[Any]) -> Iterator[Event]:
        """Yield the last event of each payload, in order; few results wait at any time."""
        waiting = enumerate(payloads)
        ended: dict[int, Event] = {}
        first = 0

        def next_task() -> Task | None:
            if len(ended) > self.count:
                return None
            return next((Task(str(number), do, payload) for number, payload in waiting), None)

        for key, event in self._events_of(next_task):
            if "progress" not in event:
                ended[int(key)] = event
            while first in ended:
                yield ended.pop(first)
                first += 1

    def _events_of(self, next_task: Callable[[], Task | None]) -> Iterator[tuple[str, Event]]:
        while True:
            while sum(worker.busy for worker in self._running) < self.count:
                task = next_task()
                if task is None:
                    break
                self._free_worker().give(task)
            if not any(worker.busy for worker in self._running):
                return
            happened = self._next_event()
            if happened is None:
                continue
            worker, event = happened
            key = worker.note(event)
            if key is not None and event is None:
                event = {"failed": worker.last_words()}
            if worker.dead or (not worker.busy and worker.is_worn(self._tasks_each)):
                self._running.remove(worker)
                worker.stop()
            if key is not None and event is not None:
                yield key, event

    def stop_task(self, key: str) -> None:
        """Kill the worker of a task, which fails; processes of the worker end with it."""
        for worker in self._running:
            if worker.key == key:
                worker.kill()

    def _next_event(self) -> "tuple[_Worker, Event | None] | None":
        """Wait a moment for an event of a running worker, None as event: its process has ended."""
        try:
            worker, event = self._events.get(timeout=_WAIT_S)
        except Empty:
            return None
        # A worker that was replaced has ended, too.
        return (worker, event) if worker in self._running else None

    def _free_worker(self) -> "_Worker":
        worker = next((worker for worker in self._running if not worker.busy), None)
        if worker is None:
            worker = _Worker(self.threads, self._advice, self._events)
            self._running.append(worker)
        return worker

    def __enter__(self) -> "LocalWorkers":
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._running:
            worker.kill()
        for worker in self._running:
            worker.stop()


class _Worker:
    """One worker process, and the thread that reads its output into a queue."""

    def __init__(
        self, threads: int, advice: str, events: "SimpleQueue[tuple[_Worker, Event | None]]"
    ) -> None:
        self.key: str | None = None
        """Of its task; None while it is free."""
        self.tasks_done = 0
        self.dead = False
        self._advice, self._started_s = advice, time.monotonic()
        self._printed: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `stop`)
        self._process = start_python(
            "site_agent.work.worker",
            stdin=PIPE,
            stderr=self._printed,
            environment={f"{name}_NUM_THREADS": str(threads) for name in _THREAD_VARIABLES},
        )
        self._reader = threading.Thread(target=self._read, args=(events,), daemon=True)
        self._reader.start()

    @property
    def busy(self) -> bool:
        return self.key is not None

    def give(self, task: Task) -> None:
        self.key = task.key
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(pickle.dumps((task.do, task.payload)))
            self._process.stdin.flush()
        except OSError:
            pass  # it is dead already; its reader notices

    def note(self, event: Event | None) -> str | None:
        """Count an event, and return the key of its task; its final event makes it idle."""
        key = self.key
        if event is None:
            self.dead, self.key = True, None
        elif "progress" not in event:
            self.key = None
            self.tasks_done += 1
        return key

    def is_worn(self, tasks_each: int | None) -> bool:
        old = time.monotonic() - self._started_s > _LEAST_LIFE_S
        return tasks_each is not None and old and self.tasks_done >= tasks_each

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.kill()
        # Its output ends with it; the pipe must not be closed while it is read.
        self._reader.join(_END_S)
        stop(self._process)
        self._printed.close()

    def last_words(self) -> str:
        """Explain why the process has ended."""
        code = self._process.wait()
        if was_killed(code):
            return f"its process was killed; most likely memory ran out: {self._advice}"
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _KEPT_BYTES))
        lines = self._printed.read().decode("utf-8", "replace").split("\n")
        text = " / ".join(line.strip() for line in lines[-4:] if line.strip())
        return f"its process {describe_end(code)}{': ' + text if text else ''}"

    def _read(self, events: "SimpleQueue[tuple[_Worker, Event | None]]") -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                events.put((self, json.loads(line)))
        except ValueError:
            pass  # a last line without its end
        events.put((self, None))
