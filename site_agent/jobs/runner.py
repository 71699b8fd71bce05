"""The runner: one process for each POOL_HOME that does its jobs, a few at a time.

``python -m site_agent.jobs.runner FOLDER`` starts with the first job (`JobFolder.start_runner`)
and ends ten minutes after the last. Neither app nor terminal is its parent, so closing them stops
no job. It runs at low priority, and keeps no video, model or library in its own memory.
"""

import math
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from site_agent.jobs.folder import ENDED, JobFolder, JobView
from site_agent.jobs.kinds import KINDS, do_job
from site_agent.pool import profiles
from site_agent.work.processes import processor_count, workers_that_fit
from site_agent.work.workers import Event, LocalWorkers, Task

IDLE_S = 600.0
IDLE_VARIABLE = "POOLCTL_RUNNER_IDLE_S"
_LOOK_INTERVAL_S = 0.3
_WRITE_INTERVAL_S = 0.25
_LOCK_PATIENCE_S = 5.0
_EARLIEST_ESTIMATE = 0.03
_LEAST_FOR_ESTIMATE_S = 5.0
_WORKER_BYTES = 900_000_000
_NICE = 10
_MOST_SILENCE_S = 900.0
_SPEAKING = ("analyse", "look")
"""Kinds that report every file or frame; of others dlib may train for long without a word."""

_SHORT = ("look", "download", "merge", "upload", "contribute")
"""Kinds that a person waits for; they go before videos and trainings."""


def chosen_slots() -> int | None:
    """Return the number of jobs side by side that ``config.toml`` names: ``[jobs] slots``."""
    count = profiles.table(profiles.read_toml(profiles.config_file()), "jobs").get("slots")
    return count if isinstance(count, int) and count > 0 else None


def usual_slots() -> int:
    """Return the number of jobs side by side where memory suffices: half of the cores, or two."""
    return max(2, processor_count() // 2)


def run_jobs(jobs: JobFolder, *, slots: int | None = None, idle_s: float = IDLE_S) -> bool:
    """Do the jobs of a folder until none has come for a while; False: another runner does them.

    `slots`: Jobs side by side; by default half of the cores, at least two, fewer where memory is
    short.
    """
    count = (
        slots
        or chosen_slots()
        or workers_that_fit(usual_slots(), [_WORKER_BYTES] * processor_count())
    )
    while True:
        try:
            with FileLock(jobs.runner_lock, mode=0o600).acquire(timeout=_LOCK_PATIENCE_S):
                _Runner(jobs, count).run(idle_s)
        except Timeout:
            return False
        # A job that came while the lock was still held has started no runner.
        if all(view.ended for view in jobs.views()):
            return True


class _Runner:
    def __init__(self, jobs: JobFolder, slots: int) -> None:
        self._jobs, self._slots = jobs, slots
        self._running: dict[str, JobView] = {}
        self._written_s: dict[str, float] = {}
        self._silence_s: dict[str, float] = {}
        self._silent: set[str] = set()

    def run(self, idle_s: float) -> None:
        self._jobs.recover()
        busy_s = time.monotonic()
        with LocalWorkers(self._slots, advice="do fewer jobs at a time") as workers:
            ended = threading.Event()
            watch = threading.Thread(target=self._stop_some, args=(workers, ended))
            watch.start()
            try:
                while True:
                    workers.run(self._next_task, self._note)
                    if self._jobs.has_waiting():
                        busy_s = time.monotonic()
                    elif time.monotonic() - busy_s >= idle_s:
                        return
                    time.sleep(_LOOK_INTERVAL_S)
            finally:
                ended.set()
                watch.join()

    def _next_task(self) -> Task | None:
        """Claim the next job that may begin."""
        if self._jobs.is_paused or not self._jobs.has_waiting():
            return None
        views = self._jobs.views()
        states = {view.job.id: view.state.state for view in views}
        for view in sorted(views, key=lambda view: view.job.kind not in _SHORT):
            job = view.job
            if view.state.state != "waiting" or job.id in self._running:
                continue
            before = [states.get(number, "done") for number in job.after]
            if any(state not in ENDED for state in before):
                continue
            if not self._jobs.claim(job.id):
                continue
            if job.kind not in KINDS:
                self._jobs.finish(job.id, "failed", reason=f"no job of the kind {job.kind!r} here")
            elif not job.gathers and any(state != "done" for state in before):
                reason = "needs the result of a job that failed or was cancelled"
                self._jobs.finish(job.id, "failed", reason=reason)
            else:
                self._silence_s[job.id] = 0.0
                self._running[job.id] = self._jobs.view(job.id)
                self._jobs.note(job.id, f"begins, attempt {view.state.attempt}")
                payload = (self._jobs.path(job.id), job.kind, job.request)
                return Task(job.id, do_job, payload)
        return None

    def _note(self, number: str, event: Event) -> None:
        """Keep an event that a worker reports about its job."""
        if "progress" in event:
            # One that waits for others, without a share, may wait for long.
            is_busy = event["progress"] is not None
            self._silence_s[number] = 0.0 if is_busy else -math.inf
            if time.monotonic() - self._written_s.get(number, 0.0) >= _WRITE_INTERVAL_S:
                self._written_s[number] = time.monotonic()
                self._write_progress(number, event)
            return
        self._running.pop(number)
        self._written_s.pop(number, None)
        if "done" in event:
            self._jobs.finish(number, "done", result=event["done"])
        elif self._jobs.is_cancelled(number):
            self._jobs.finish(number, "cancelled")
        else:
            silence = f"it hung: nothing was heard of it for {_MOST_SILENCE_S / 60:.0f} minutes"
            reason = silence if number in self._silent else str(event["failed"])
            self._jobs.finish(number, "failed", reason=reason)

    def _write_progress(self, number: str, event: Event) -> None:
        state, share = self._running[number].state, event["progress"]
        elapsed_s = time.time() - (state.began or time.time())
        left_s = None
        if share and _EARLIEST_ESTIMATE < share < 1 and elapsed_s > _LEAST_FOR_ESTIMATE_S:
            left_s = round(elapsed_s / share * (1 - share), 1)
        shown = replace(state, share=share, text=str(event["text"]), seconds_left=left_s)
        with suppress(OSError):  # for readers only: a full disk does not end the other jobs
            self._jobs.write_state(number, shown)

    def _stop_some(self, workers: LocalWorkers, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_INTERVAL_S):
            for number, view in list(self._running.items()):
                # Counted by looks: a clock may run on while a laptop sleeps.
                self._silence_s[number] += _LOOK_INTERVAL_S
                if view.job.kind in _SPEAKING and self._silence_s[number] > _MOST_SILENCE_S:
                    self._silent.add(number)
                if number in self._silent or self._jobs.is_cancelled(number):
                    workers.stop_task(number)


def main() -> None:
    """Do the jobs of the folder that is named on the command line."""
    with suppress(psutil.Error, OSError):
        low = psutil.BELOW_NORMAL_PRIORITY_CLASS if sys.platform == "win32" else _NICE
        psutil.Process(os.getpid()).nice(low)
    run_jobs(JobFolder(Path(sys.argv[1])), idle_s=float(os.environ.get(IDLE_VARIABLE, IDLE_S)))


if __name__ == "__main__":
    main()
