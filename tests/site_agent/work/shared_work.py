"""Work of a folder for tests: steps with results, two sums of them, and a table of all.

    python -m tests.site_agent.work.shared_work FOLDER [--share I/N] [--workers N|ADDRESS]
        [--steps N] [--seconds S] [--host NAME] [--user NUMBER]

The file ``log`` has a line for each step that a worker has begun and ended.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

from aggregators.whole_file import write_whole
from site_agent.plain_json import write_json
from site_agent.work import Progress, claims
from site_agent.work.engines import open_workers
from site_agent.work.steps import Schedule, Step, StepOutcome, do_steps
from site_agent.work.workers import Task

Payload = tuple[Path, int, float]


def square(payload: Payload, progress: Progress) -> int:
    """Take some time for the square of a number."""
    folder, number, seconds = payload
    progress(0.5, "half")
    note(folder, f"begun {number}")
    time.sleep(seconds)
    note(folder, f"ended {number}")
    return number * number


def die(payload: Payload, _progress: Progress) -> int:
    """End as a process ends for which there is no memory."""
    os.kill(os.getpid(), 9)
    return 0


def process_number(_payload: Any, _progress: Progress) -> int:
    """Return the number of the worker's process."""
    return os.getpid()


def note(folder: Path, line: str) -> None:
    with (folder / "log").open("a") as log:
        log.write(f"{line}\n")


def work(
    folder: Path, *, share: claims.Share | None = None, workers: str = "1", steps: int = 12,
    seconds: float = 0.0, do: Any = square,
) -> dict[str, StepOutcome]:  # fmt: skip
    """Do all steps of a folder and, if this is the last share, write its table."""
    results = folder / "results"
    listed = [Step(f"n{number}", cost=number + 1.0) for number in range(steps)]
    halves = [tuple(step.key for step in listed[half::2]) for half in range(2)]
    listed += [Step(f"sum{half}", needs) for half, needs in enumerate(halves)]

    def find(key: str) -> Any:
        try:
            return json.loads((results / f"{key}.json").read_text())["result"]
        except OSError as error:
            raise LookupError(key) from error

    def keep(key: str, result: Any, _took_s: float) -> Any:
        write_json(results / f"{key}.json", {"result": result}, lasting=False)
        return result

    def make(step: Step) -> Task:
        number = sum(find(key) for key in step.needs) if step.needs else int(step.key[1:])
        return Task(step.key, do, (folder.absolute(), number, seconds))

    with claims.hold_folder(folder, ".work", what="test", share=share) as held:
        results.mkdir(exist_ok=True)
        kept = {path.stem: find(path.stem) for path in results.glob("*.json")}
        schedule = Schedule(listed, frozenset(kept), share)
        with open_workers(workers, folder, advice="use less") as pool:
            outcomes = do_steps(schedule, pool, make, folder=held, find=find, kept=kept, keep=keep)
        if all(one.state in ("done", "kept") for one in outcomes.values()):
            with held.turn("tables"):
                rows = [f"{step.key},{find(step.key)}\n" for step in listed]
                write_whole(folder / "table.csv", "".join(rows))
    return outcomes


def start(folder: Path, *arguments: str, **settings: Any) -> "subprocess.Popen[bytes]":
    """Start a process that works in a folder."""
    module = "tests.site_agent.work.shared_work"
    command = [sys.executable, "-m", module, str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **settings)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder that the work promises."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        # A killed process may leave a hidden file of an unfinished write.
        if path.is_file() and path.suffix in {".json", ".csv"} and ".work" not in path.parts
    }


def count_log(folder: Path) -> Counter[str]:
    """Return how often each step has begun and ended."""
    return Counter((folder / "log").read_text().splitlines())


def main() -> None:
    """Work as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--share", default="")
    parser.add_argument("--workers", default="1")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--host", default="")
    parser.add_argument("--user", type=int, default=0)
    options = parser.parse_args()
    if options.user:
        os.setuid(options.user)
    if options.host:
        claims.this_host = lambda: str(options.host)
    claims.HEARTBEAT_S, claims.POLL_S = 1.0, 0.2
    share = claims.read_share(options.share) if options.share else None
    work(
        options.folder, share=share, workers=options.workers, steps=options.steps,
        seconds=options.seconds,
    )  # fmt: skip


if __name__ == "__main__":
    # Workers import the module of a task by its name.
    import_module("tests.site_agent.work.shared_work").main()
