"""Workers of a Dask cluster: tasks travel by its scheduler, and run as they do on one machine.

Each thread of a Dask worker keeps one process of ours (`site_agent.work.workers.LocalWorkers`), in
which tasks run in the folder where the command was started. So a task that dies, for lack of
memory or by a fault of a library, takes neither the Dask worker nor the tasks next to it along, and
results, messages and threads are the same as on one machine. Dask itself repeats a task only where
the whole Dask worker was lost.

Files come by a folder that all see; whether they do, and run the same versions, is asked first.
"""

import importlib.util
import os
import pickle
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, get_worker
from distributed.client import FutureCancelledError

from site_agent.errors import InvalidInputError
from site_agent.work import Progress
from site_agent.work.claims import refuse_other_versions, this_host, versions
from site_agent.work.workers import Event, LocalWorkers, Task

_CONNECT_S = 30
_WAIT_S = 0.5
_COUNT_INTERVAL_S = 2.0
_EXTRAS = {"cv2": "vision", "torch": "gaze", "pynwb": "nwb"}
_kept = threading.local()


class DaskWorkers:
    """The workers of a scheduler of Dask; each thread of theirs does one task at a time.

    `folder`: All must see it, and the folder where this process was started.

    Raises `InvalidInputError` when it is entered: the scheduler does not answer or has no workers,
    or a worker lacks a folder, an extra, or has other versions.
    """

    threads = 1

    def __init__(self, address: str, folder: Path, *, advice: str) -> None:
        self._address, self._folder, self._advice = address, folder.absolute(), advice
        self._events = SimpleQueue[tuple[str, Event]]()
        self._run = secrets.token_hex(6)
        self._counted = (0, -_COUNT_INTERVAL_S)
        self._running: dict[str, Future[Any]] = {}
        self._seen = set[str]()

    @property
    def count(self) -> int:
        """Threads of the workers that are there now; those that come later must pass the checks."""
        number, counted_s = self._counted
        if time.monotonic() - counted_s >= _COUNT_INTERVAL_S:
            threads = self._client.nthreads()
            if new := threads.keys() - self._seen:
                self._check(new)
            number = sum(threads.values())
            self._counted = (number, time.monotonic())
        return number

    def run(
        self, next_task: Callable[[], Task | None], on_event: Callable[[str, Event], None]
    ) -> None:
        """Do tasks until there are no more; see `Workers.run`."""
        running = self._running
        while True:
            while len(running) < self.count and (task := next_task()) is not None:
                running[task.key] = self._submit(task)
            if not running:
                return
            try:
                key, event = self._events.get(timeout=_WAIT_S)
            except Empty:
                continue
            if key not in running:
                continue  # news of a task that has ended
            if "progress" not in event:
                del running[key]
            on_event(key, event)

    def _submit(self, task: Task) -> "Future[Any]":
        content = pickle.dumps((str(Path.cwd()), task.do, task.payload))
        future: Future[Any] = self._client.submit(
            _do, content, task.key, self._run, self._advice,
            key=f"poolctl-{self._run}-{task.key}", pure=False, retries=0,
        )  # fmt: skip
        future.add_done_callback(lambda ended: self._events.put((task.key, _event_of(ended))))
        return future

    def _check(self, workers: Any) -> None:
        """Ask workers for their versions, and whether they see the folders."""
        token = self._folder / f".{self._run}"
        extras = [name for name in _EXTRAS if importlib.util.find_spec(name)]
        try:
            token.touch()
            answers = self._client.run(
                _describe,
                [str(token), str(Path.cwd())],
                extras,
                workers=list(workers),
                # A worker that ends meanwhile is asked again when it is back.
                on_error="ignore",
            )
        finally:
            token.unlink(missing_ok=True)
        for address, answer in answers.items():
            where = f"the Dask worker {address} on {answer['host']}"
            refuse_other_versions(where, answer["versions"])
            for missing in answer["missing"]:
                folder = Path(missing).parent if missing == str(token) else missing
                raise InvalidInputError(
                    f"{where} does not see {folder}",
                    hint="share that folder with all machines, under the same path",
                )
            for library in answer["libraries"]:
                extra = _EXTRAS[library]
                raise InvalidInputError(
                    f"{where} has no {library}, which this process has",
                    hint=f"install there: pip install 'poolctl[{extra},cluster]'",
                )
        self._seen.update(answers)

    def __enter__(self) -> "DaskWorkers":
        try:
            self._client = Client(self._address, timeout=_CONNECT_S, set_as_default=False)
        except OSError as error:
            raise InvalidInputError(
                f"--workers {self._address}: no scheduler of Dask answers",
                hint="start one: dask scheduler",
            ) from error
        try:
            self._client.wait_for_workers(1, timeout=_CONNECT_S)
        except TimeoutError as error:
            self._client.close()
            raise InvalidInputError(
                f"--workers {self._address}: the scheduler has no workers",
                hint=f"start some: dask worker {self._address} --nthreads 1",
            ) from error
        try:
            self._client.subscribe_topic(self._run, lambda event: self._events.put(event[1]))
            self._check(self._client.nthreads())
        except BaseException:
            self._client.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        # A scheduler that was lost needs no farewell.
        with suppress(Exception):
            self._client.cancel(list(self._running.values()), force=True)
            self._client.unsubscribe_topic(self._run)
        with suppress(Exception):
            self._client.close()


def _event_of(future: "Future[Any]") -> Event:
    error = future.exception()
    if error is None:
        result: Event = future.result()
        return result
    if isinstance(error, FutureCancelledError):
        return {"failed": "the scheduler of Dask was lost; start it, and run the same again"}
    return {"failed": f"Dask: {error}"}


def _describe(folders: list[str], libraries: list[str]) -> dict[str, Any]:
    """Describe a Dask worker, from inside."""
    return {
        "host": this_host(),
        "versions": versions(),
        "missing": [folder for folder in folders if not os.path.exists(folder)],  # noqa: PTH110
        "libraries": [name for name in libraries if importlib.util.find_spec(name) is None],
    }


def _do(content: bytes, key: str, topic: str, advice: str) -> Event:
    """Do a task in the process of this thread; return its last event."""
    worker = get_worker()
    dask_key = f"poolctl-{topic}-{key}"
    if not hasattr(_kept, "pool"):
        _kept.pool = LocalWorkers(1, threads=1, advice=advice)
    last: list[Event] = []
    tasks: Iterator[Task] = iter([Task(key, do_in_folder, content)])
    over = threading.Event()

    def watch() -> None:
        # A task that nobody waits for: its client was stopped, or has died.
        while not over.wait(_WAIT_S):
            state = worker.state.tasks.get(dask_key)
            if state is None or state.state not in ("executing", "long-running"):
                _pool.stop_task(key)

    def note(_key: str, event: Event) -> None:
        if "progress" in event:
            worker.log_event(topic, (key, event))
        else:
            last.append(event)

    _pool = _kept.pool
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        _pool.run(lambda: next(tasks, None), note)
    finally:
        over.set()
        watcher.join()
    return last[0]


def do_in_folder(content: bytes, progress: Progress) -> Any:
    """Do a task in the folder where its command was started."""
    folder, do, payload = pickle.loads(content)
    os.chdir(folder)
    return do(payload, progress)
